"""The threshold without labels: how far average linkage may merge before merges are expected to be wrong.

Two images, or two groups, of different identities are merged by chance: the more of them there are, the higher are the similarities
that chance reaches. So the merges of a dendrogram, from high similarities to low ones, are compared with the number of false merges that the
similarities of impostors let expect: a false discovery rate of merges. Counting merges and not pairs, an identity with hundreds of images
counts for hundreds and not for ten thousands.

    z        similarity in spreads of impostors above their mean; both are read off the lower quantiles of all pairs between groups,
             which genuine pairs do not reach
    q(z)     share of impostors above z: a Weibull tail, log q = -(z / scale)^shape, fitted to the pairs between groups where no
             genuine pairs are expected, and extrapolated
    E(z)     expected false merges above z: with N_s groups of s images, the sum over pairs of groups of q(z / spread(s, s')); the mean
             similarity of large groups spreads less than that of single images
    weight   a merge of a and b images counts 2ab / (a + b): so many images win or lose by it

The threshold is where the weight of all merges above it, less twice that of the false ones to expect, is greatest; a wide gap between
two merges is preferred, which decides among few images. Groups, and with them z, q and E, are found in a few rounds, beginning with mutual
nearest neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csgraph
from scipy.spatial.distance import squareform

from cdp.types.arrays import AnyArray, DoubleArray, LongArray

_FALSE_SHARE = 0.5
"""Share of the merges at the threshold that may be false: there a merge is as likely right as wrong."""

_GAP, _GAP_PER_WEIGHT, _WIDEST_GAP = 3.0, 0.3, 6.0
"""Weight of a gap of one spread between two merges; more where the merge after it is a large one; wider gaps count for no more."""

_MANY_SPREADS, _FEWEST_SPREADS = 6.0, 5.5
_LOWEST = 3.0
"""Least threshold, in spreads of impostors: below it pairs are not worth a merge, however few there are."""

_CLEAR = 3.5
_CROWDED, _NEAR, _FEW_MERGES = 0.12, 0.7, 250
"""What models that separate well reach: the least median z inside groups, and the greatest share of merges just above the threshold, which a few
hundred merges say well enough. Of weaker models the tail of impostors cannot be told from genuine pairs."""

_LOWER = (0.05, 0.25)
_LOWER_NORMAL = (-1.6449, -0.6745)
"""Quantiles of pairs that mean and spread of impostors are read off, and where they are in a normal distribution."""

_STARTS = (0.0, 0.5, 0.8)
"""Shares of genuine pairs among those between the first groups that are tried in turn, until groups are found."""

_SHAPES = (0.9, 2.0)
_PRIOR_SHAPE = 1.15
_PRIOR_GROUPS = 30
"""Range of the tail's shape, 1 = exponential, 2 = normal; what few groups are shrunk to, and how many groups that is worth."""

_FIRST_SHAPE, _FIVE_PERCENT = 1.0, 1.645
"""The tail before there are groups to fit it on: exponential, with the 5 % of a normal distribution."""

_ROUNDS = 6
_MOST_DRAWN = 1000
_LARGE = 3
_FEWEST_LARGE, _MOST_LARGE = 8, 400
_BETWEEN = (0.3, 1.0)
_DEFAULT_BETWEEN = 0.5
_SIZES = np.array([1, 2, 3, 5, 9, 17, 33, 65, 129])
_TYPICAL = np.array([1, 2, 3.5, 6.5, 12, 24, 48, 96, 200])


@dataclass(frozen=True, eq=False)
class MergeThreshold:
    """Where merging ends.

    Attributes:
        threshold: mean similarity between two groups above which they are merged.
        heights: float64 (m,), thresholds just below which two groups are merged, from high to low.
        precision: float64 (m,), expected share of the pairs in groups that are genuine after each of these merges.
        at: the last of these merges.
    """

    threshold: float
    heights: DoubleArray
    precision: DoubleArray
    at: int


def find_merge_threshold(
    similarity: AnyArray, top: float, n_images: int | None = None, background: AnyArray | None = None
) -> MergeThreshold | None:
    """Find the mean similarity between groups above which average linkage merges them.

    Args:
        similarity: float (n, n), of some images; symmetric, the diagonal is not used.
        top: similarity of an image and itself.
        n_images: how many images these were drawn from with their neighbors; they all give rise to false merges.
        background: float (m, m), of images drawn at random, which impostors are measured on: neighbors are more similar than they are.

    Returns:
        None where no merge is trusted: nobody seems to be there twice, or the similarities do not separate well.
    """
    n_drawn = len(similarity)
    if n_drawn < 3:
        return None
    drawn = _Drawn.of(similarity)
    random = drawn if background is None else _Drawn.of(background)
    times = (n_images or n_drawn) / n_drawn
    for share in _STARTS:
        found = _rounds(drawn, random, top, share, times)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Some images: their similarities, without those of an image and itself, and their dendrogram."""

    similarity: AnyArray
    tree: _Tree

    @classmethod
    def of(cls, similarity: AnyArray) -> _Drawn:
        similarity = np.array(similarity, np.float32)
        np.fill_diagonal(similarity, similarity.min())
        return cls(similarity, _Tree.of(similarity))


@dataclass(frozen=True, eq=False)
class _Tree:
    """Average linkage of all images: merges from high to low.

    Attributes:
        links: as scipy has them, of distances.
        height: float64 (n - 1,), mean similarity of the two groups.
        weight: float64 (n - 1,), 2ab / (a + b).
        n_pairs: float64 (n - 1,), a * b.
        groups: float64 (n - 1, sizes), number of groups by size before every merge.
    """

    links: DoubleArray
    height: DoubleArray
    weight: DoubleArray
    n_pairs: DoubleArray
    groups: DoubleArray

    @classmethod
    def of(cls, similarity: AnyArray) -> _Tree:
        top = float(similarity.max())
        distance = squareform(top - similarity, checks=False).astype(np.float64)
        links: DoubleArray = linkage(distance, "average")
        n_images = len(similarity)
        size = np.concatenate([np.ones(n_images), links[:, 3]])
        one, other = size[links[:, 0].astype(np.int64)], size[links[:, 1].astype(np.int64)]
        change = np.zeros((n_images - 1, len(_SIZES)))
        rows = np.arange(n_images - 1)
        for sizes, step in ((one, -1.0), (other, -1.0), (links[:, 3], 1.0)):
            np.add.at(change, (rows, np.searchsorted(_SIZES, sizes, "right") - 1), step)
        groups = np.cumsum(change, axis=0) - change
        groups[:, 0] += n_images
        height = np.minimum.accumulate(top - links[:, 2])
        return cls(links, height, 2 * one * other / (one + other), one * other, groups)

    def cut(self, at: int) -> LongArray:
        """The group of every image after merge `at`; -1 = before the first."""
        n_images = len(self.links) + 1
        if at < 0:
            return np.arange(n_images)
        found: LongArray = np.unique(
            fcluster(self.links, n_images - 1 - at, "maxclust"), return_inverse=True
        )[1]
        return found

    def cut_above(self, height: float) -> LongArray:
        """The group of every image after all merges above a height."""
        return self.cut(int((self.height > height).sum()) - 1)


def _mutual_neighbors(similarity: AnyArray) -> LongArray:
    """Images and their mutual nearest neighbors as the first groups."""
    nearest = similarity.argmax(axis=1)
    mutual = np.flatnonzero(nearest[nearest] == np.arange(len(nearest)))
    shape = (len(nearest), len(nearest))
    graph = sparse.coo_array((np.ones(len(mutual)), (mutual, nearest[mutual])), shape)
    found: LongArray = csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
    return found


def _rounds(drawn: _Drawn, random: _Drawn, top: float, share: float, times: float) -> MergeThreshold | None:
    """Alternate between the distribution of impostors and groups, until these stay the same."""
    seen: set[int] = set()
    groups, others = _mutual_neighbors(drawn.similarity), _mutual_neighbors(random.similarity)
    found = None
    for number in range(_ROUNDS):
        between = _pairs_between(random.similarity, others)
        scale = _Scale.of(between, share if number == 0 else 0.0, top)
        null = _Null.first(scale) if number == 0 else _Null.fitted(scale, between, drawn.similarity, groups)
        at, found = _cut(drawn.tree, null, times)
        groups = drawn.tree.cut(at)
        others = random.tree.cut_above(np.inf if found is None else found.threshold)
        if number and at in seen:
            break
        if number:
            seen.add(at)
    if found is None:
        return None
    groups, others = drawn.tree.cut(found.at), random.tree.cut_above(found.threshold)
    scale = _Scale.of(_pairs_between(random.similarity, others), 0.0, top)
    return found if _separates(drawn, groups, scale, found) else None


def _separates(drawn: _Drawn, groups: LongArray, scale: _Scale, found: MergeThreshold) -> bool:
    """Whether the images in groups are clearly more similar than impostors, and hardly any merge is close to the threshold."""
    if scale.highest < _FEWEST_SPREADS:
        return False
    same = groups[:, None] == groups[None, :]
    np.fill_diagonal(same, False)
    merges = drawn.tree.height[: found.at + 1]
    is_near = merges < found.threshold + _NEAR * scale.spread
    is_crowded = len(merges) >= _FEW_MERGES and is_near.mean() > _CROWDED
    return float(scale.z(np.median(drawn.similarity[same]))) >= _CLEAR and not is_crowded


@dataclass(frozen=True, eq=False)
class _Between:
    """Pairs of images in different groups, each group with the same weight, from low to high.

    Attributes:
        values: similarities.
        below: float64, share of the weight below each.
        weight: of each.
        n_groups: number of groups.
    """

    values: AnyArray
    below: DoubleArray
    weight: DoubleArray
    n_groups: int


def _pairs_between(similarity: AnyArray, groups: LongArray) -> _Between:
    rows = np.arange(len(groups))
    if len(groups) > _MOST_DRAWN:
        rows = np.sort(np.random.default_rng(0).permutation(len(groups))[:_MOST_DRAWN])
    similarity, groups = similarity[np.ix_(rows, rows)], groups[rows]
    share = 1 / np.bincount(groups)[groups]
    one, other = np.triu_indices(len(groups), 1)
    apart = groups[one] != groups[other]
    if np.count_nonzero(apart) < 10:
        apart[:] = True
    one, other = one[apart], other[apart]
    values, weight = similarity[one, other], share[one] * share[other]
    order = np.argsort(values, kind="stable")
    values, weight = values[order], weight[order]
    below = np.cumsum(weight)
    return _Between(values, (below - weight / 2) / below[-1], weight, len(np.unique(groups)))


@dataclass(frozen=True)
class _Scale:
    """Similarities as spreads of impostors above their mean.

    Attributes:
        center, spread: of impostors.
        highest: spreads from the center to an image and itself.
        limit: where z would be stretched without bound. In few dimensions an image and itself are hardly two spreads above the mean,
            and the tail of impostors ends there; so z is stretched, the more the fewer spreads there are.
    """

    center: float
    spread: float
    highest: float
    limit: float

    @classmethod
    def of(cls, between: _Between, genuine: float, top: float) -> _Scale:
        """Of impostors, which are a share of 1 - genuine of the pairs between groups, by their lower quantiles."""
        low, high = np.interp(np.multiply(_LOWER, 1 - genuine), between.below, between.values)
        spread = max(float(high - low) / (_LOWER_NORMAL[1] - _LOWER_NORMAL[0]), 1e-6)
        center = float(high) - _LOWER_NORMAL[1] * spread
        highest = max((top - center) / spread, 1e-3)
        return cls(center, spread, highest, highest * (1 + (highest / _MANY_SPREADS) ** 2))

    def z(self, similarity: AnyArray) -> DoubleArray:
        """Spreads above the center: -limit log(1 - (s - center) / spread / limit) above it, plain below it."""
        plain = (np.asarray(similarity, np.float64) - self.center) / self.spread
        stretched = -self.limit * np.log1p(-np.clip(plain / self.limit, 0, 1 - 1e-9))
        z: DoubleArray = np.where(plain > 0, stretched, plain)
        return z

    def similarity(self, z: float) -> float:
        """The inverse of `z`."""
        plain = self.limit * -np.expm1(-z / self.limit) if z > 0 else z
        return float(self.center + self.spread * plain)


@dataclass(frozen=True, eq=False)
class _Null:
    """The distribution of impostors.

    Attributes:
        scale: of z.
        log_scale, shape: of the tail of z.
        between: variance of the mean z of two large groups, relative to that of two images.
    """

    scale: _Scale
    log_scale: float
    shape: float
    between: float = _DEFAULT_BETWEEN

    @classmethod
    def first(cls, scale: _Scale) -> _Null:
        """Before there are groups to fit a tail on."""
        log_scale = np.log(_FIVE_PERCENT) - np.log(-np.log(0.05)) / _FIRST_SHAPE
        return cls(scale, float(log_scale), _FIRST_SHAPE)

    @classmethod
    def fitted(cls, scale: _Scale, between: _Between, similarity: AnyArray, groups: LongArray) -> _Null:
        """Fit the tail above nearly all impostors and below the genuine pairs that were not merged yet."""
        z, above, n_groups = scale.z(between.values), 1 - between.below, between.n_groups
        lowest, highest = min(3 / n_groups, 0.1), min(max(30 / n_groups, 0.05), 0.25)
        inside = (above >= lowest) & (above <= highest) & (z > 0.05)
        if np.count_nonzero(inside) < 3:
            inside = (above <= 0.3) & (above > 0) & (z > 0.05)
        if np.count_nonzero(inside) < 3:
            return cls.first(scale)
        weight = between.weight[inside] / between.weight[inside].sum()
        # log z = log scale + log(-log q) / shape
        x, y = np.log(-np.log(above[inside])), np.log(z[inside])
        x_mean, y_mean = float(weight @ x), float(weight @ y)
        variance = float(weight @ (x - x_mean) ** 2)
        slope = float(weight @ ((x - x_mean) * (y - y_mean))) / max(variance, 1e-9)
        known = n_groups / (n_groups + _PRIOR_GROUPS)
        slope = float(np.clip(known * slope + (1 - known) / _PRIOR_SHAPE, 1 / _SHAPES[1], 1 / _SHAPES[0]))
        return cls(scale, y_mean - slope * x_mean, 1 / slope, _between_share(scale.z(similarity), groups))

    def share_above(self, z: DoubleArray) -> DoubleArray:
        """Share of impostors above z."""
        exponent = (np.log(np.maximum(z, 1e-3)) - self.log_scale) * self.shape
        share: DoubleArray = np.exp(-np.exp(np.minimum(exponent, 50.0)))
        return share


def _between_share(z: AnyArray, groups: LongArray) -> float:
    """Upper spread of the mean z between large groups, squared, relative to that of single images, for ever larger groups."""
    sizes = np.bincount(groups)
    large = np.flatnonzero(sizes >= _LARGE)[:_MOST_LARGE]
    if len(large) < _FEWEST_LARGE:
        return _DEFAULT_BETWEEN
    rows = np.flatnonzero(np.isin(groups, large))
    place = np.searchsorted(large, groups[rows])
    mean = sparse.csr_array((1 / sizes[large][place], (place, np.arange(len(rows)))))
    inner = z[np.ix_(rows, rows)]
    one, other = np.triu_indices(len(large), 1)
    means = np.asarray(mean @ np.asarray(mean @ inner).T)[one, other]
    singles = inner[place[:, None] < place[None, :]]
    ratio = (_upper_spread(means) / max(_upper_spread(singles), 1e-9)) ** 2
    part = float((1 / sizes[large][one] + 1 / sizes[large][other]).mean()) / 2
    return float(np.clip((ratio - part) / (1 - part), *_BETWEEN))


def _upper_spread(values: AnyArray) -> float:
    center, high = np.quantile(values, [0.5, 0.98])
    return float(high - center)


def _cut(tree: _Tree, null: _Null, times: float) -> tuple[int, MergeThreshold | None]:
    """The last merge to trust, -1 = none, and the threshold below it."""
    z = null.scale.z(tree.height)
    inverse = (1 / _TYPICAL[:, None] + 1 / _TYPICAL[None, :]) / 2
    spreads = np.sqrt(null.between + (1 - null.between) * inverse)
    above = null.share_above(z[:, None, None] / spreads)
    above = np.maximum.accumulate(above, axis=0)
    more = np.diff(above, axis=0, prepend=np.zeros_like(above[:1]))
    pairs = tree.groups[:, :, None] * tree.groups[:, None, :] / 2
    diagonal = np.arange(len(_TYPICAL))
    pairs[:, diagonal, diagonal] -= tree.groups / 2
    false = times * (np.maximum(pairs, 0) * more * _TYPICAL_WEIGHT).sum(axis=(1, 2))
    gap = np.append(z[:-1] - z[1:], 0.0)
    following = np.maximum(1.0, _GAP_PER_WEIGHT * np.append(tree.weight[1:], 0.0))
    gain = np.cumsum(tree.weight - false / _FALSE_SHARE) + _GAP * np.minimum(gap, _WIDEST_GAP) * following
    gain[z < _LOWEST] = -np.inf
    at = int(gain.argmax())
    if not gain[at] > 0:
        return -1, None
    # In the middle of the gap: what is added later may be a little less similar, or a little more.
    half = float(gap[at]) / 2
    n_pairs = _TYPICAL[:, None] * _TYPICAL[None, :]
    false_pairs = times * (np.maximum(pairs, 0) * more * n_pairs).sum(axis=(1, 2))
    wrong = np.cumsum(false_pairs) / np.cumsum(tree.n_pairs)
    threshold = null.scale.similarity(float(z[at]) - half)
    return at, MergeThreshold(threshold, tree.height, np.clip(1 - wrong, 0, 1), at)


_TYPICAL_WEIGHT = 2 * _TYPICAL[:, None] * _TYPICAL[None, :] / (_TYPICAL[:, None] + _TYPICAL[None, :])

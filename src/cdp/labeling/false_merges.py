"""The threshold without labels: how far average linkage may merge before merges are expected to be wrong.

Two images, or two groups, of different identities are merged by chance: the more of them there are, the
higher are the similarities that chance reaches. The merges of a dendrogram, from high similarities to low
ones, are therefore compared with the number of false merges to expect: a false discovery rate of merges.
Merges are counted, not pairs, so an identity with hundreds of images counts for hundreds and not for ten
thousands.

    z        similarity in spreads of impostors above their mean, on a logarithmic scale of distance:
             z = -h log(1 - (s - mean) / (h spread)), where h is the number of spreads from the mean to an
             image and itself. The tail of impostors is then close to exponential in models of many and of
             few dimensions: it is a power of the distance, and the exponent is the intrinsic dimension.
             Mean and spread are read off the lower quantiles of the pairs between groups, which genuine
             pairs do not reach
    q(z)     share of impostors above z: a Weibull tail, log q = -(z / scale)^shape, fitted to the pairs
             between groups where no genuine pairs are expected, and extrapolated
    E(z)     expected false merges above z: with N_s groups of s images, the sum over pairs of groups of
             q(z / spread(s, s')); the mean similarity of large groups spreads less than that of images
    weight   a merge of a and b images counts 2ab / (a + b): so many images win or lose by it

The threshold is where the weight of all merges above it, less twice that of the expected false ones, is
greatest; a wide gap between two merges is preferred, which decides among few images, unless both are so high
that no false merge is expected. Groups, and with them
z, q and E, are found in a few rounds. These begin with mutual nearest neighbors, which are right for
identities of few images. Where that finds nothing, as among identities that are most of the images, rounds
begin with the groups above the widest gap between two merges, then with groups of four on average; hardly any
merge may be false there, or the fewer the fewer images there are.

Merges end at a clear gap, one that doubles the distance between groups after at least half of the images
were merged, unless many more are trusted. A few well-separated identities say little about impostors, and
need not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cdp.grouping.dendrogram import merge_groups
from cdp.grouping.exact_linkage import ExactMerges
from cdp.runtime.kernels import kernel
from cdp.types import Softness
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, IntArray, LongArray, read_only

_FALSE_SHARE = 0.5
"""Share of the merges at the threshold that may be false: there a merge is as likely right as wrong."""

_GAP, _GAP_PER_WEIGHT = 2.0, 0.3
"""Weight of a gap of one spread between two merges; more where the merge after it is a large one."""

_SURE_FALSE = 0.1
"""Where so few false pairs are expected in all, merges are sure, and gaps between them mean nothing."""

_LOWEST = 4.0
"""Least threshold, as z: below it pairs are not worth a merge, however few there are."""

_HARDLY_FALSE = 0.02
"""Most expected share of false merges where rounds began with the groups above the widest gap."""

_LARGER_GROUPS, _SURE_IMAGES = 4, 1000
"""Mean size of the groups of the last start. Its share of false merges may be n / 1000 among n images: among
few images of a weak model, chance looks like groups."""

_STRONG, _FALSE_IF_STRONG = 7.0, 0.25
"""In models with so many spreads from impostors to an image and itself chance does not look like groups, so
more merges may be false."""

_CLEAR_RATIO, _FEW = 2.0, 0.2
"""A gap after which distances are so many times as large is clear, whatever impostors are like, unless more
than this share of the groups are merged below it: then it is the gap below copies."""

_LOWER = (0.05, 0.25)
_LOWER_NORMAL = (-1.6449, -0.6745)
"""Quantiles of pairs that mean and spread of impostors are read off, and where they are in a normal
distribution."""

_SHAPES = (0.75, 2.0)
_PRIOR_SHAPE = 1.0
_PRIOR_GROUPS = 30
"""Range of the tail's shape; what few groups are shrunk to, and how many groups that is worth."""

_FIRST_SHAPE, _FIVE_PERCENT = 1.0, 1.645
"""The tail where too few pairs are left to fit it on: exponential, with the 5 % of a normal distribution."""

_ROUNDS = 6
_MOST_DRAWN, _MOST_IN_GROUPS, _MOST_OF_GROUP = 1000, 1000, 100
"""Images drawn at random, and images in groups that are drawn, of one group at most so many."""

_MOST_STEPS = 4000
_FEWEST_GROUPS = 8
_BETWEEN = (0.5, 1.0)
_DEFAULT_BETWEEN = 0.75
_SIZES = np.array([1, 2, 3, 5, 9, 17, 33, 65, 129])
_TYPICAL = np.array([1, 2, 3.5, 6.5, 12, 24, 48, 96, 200])
_SOFTNESS = np.geomspace(0.01, 1.5, 60)
"""Scales of the logistic function from z-score to probability that are tried, relative to the spread of
impostors."""


@dataclass(frozen=True, eq=False)
class MergeThreshold:
    """Where merging ends.

    Attributes:
        threshold: mean similarity between two groups above which they are merged.
        softness: scales of the logistic function of the similarity that gives the probability that a merge
            is right; one half at the threshold.
        heights: float64 (m,), thresholds just below which two groups are merged, from high to low.
        precision: float64 (m,), expected share of the pairs in groups that are genuine after each of these
            merges.
        at: the last of these merges.
        false_share: expected share of the merges that are false.
    """

    threshold: float
    softness: Softness
    heights: DoubleArray
    precision: DoubleArray
    at: int
    false_share: float


@dataclass(frozen=True, eq=False)
class LinkedImages:
    """Images under average linkage.

    Attributes:
        n_images: how many.
        merges: of average linkage.
        first: int64 (n,), the first groups: images and their mutual nearest neighbors.
        similarity: of all pairs of some images: rows of m images -> float (m, m).
        top: similarity of an image and itself.
        lowest: the mean similarity that linkage ended at.
    """

    n_images: int
    merges: ExactMerges
    first: LongArray
    similarity: Callable[[LongArray], AnyArray]
    top: float
    lowest: float


def find_merge_threshold(images: LinkedImages, seed: int = 0) -> MergeThreshold | None:
    """Find the mean similarity between groups above which average linkage merges them.

    Args:
        images: and their merges.
        seed: of the images that impostors are measured on.

    Returns:
        None where no merge is trusted: nobody seems to be there twice, or the similarities do not separate
        well.
    """
    if images.n_images < 3 or not len(images.merges.height):
        return None
    tree = _Tree.of(images)
    drawn = np.random.default_rng([seed, 11]).permutation(images.n_images)[:_MOST_DRAWN]
    random = _Sample.of(images, np.sort(drawn))
    found = _first_trusted(images, tree, random, seed)
    clear = tree.clear_gap(images.top)
    if clear is not None and (found is None or not tree.goes_on(clear, found.at)):
        return _merge_threshold(tree, _null_between(images, random, tree.cut(clear), seed), clear)
    return found


@dataclass(frozen=True, eq=False)
class _Sample:
    """Some images and the similarities between them; those of an image and itself are not used."""

    rows: LongArray
    similarity: AnyArray

    @classmethod
    def of(cls, images: LinkedImages, rows: LongArray) -> _Sample:
        return cls(rows, np.asarray(images.similarity(rows), np.float32))


def _sample_groups(images: LinkedImages, groups: LongArray, seed: int) -> _Sample:
    """Draw whole groups of two images or more, of very large ones a part."""
    sizes = np.bincount(groups)
    drawn = np.random.default_rng([seed, 12]).permutation(len(sizes))
    drawn = drawn[sizes[drawn] > 1]
    taken = np.cumsum(np.minimum(sizes[drawn], _MOST_OF_GROUP)) <= _MOST_IN_GROUPS
    is_drawn = np.zeros(len(sizes), np.bool_)
    is_drawn[drawn[taken]] = True
    rows = np.flatnonzero(is_drawn[groups])
    order = rows[np.argsort(groups[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    number = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return _Sample.of(images, np.sort(order[number < _MOST_OF_GROUP]))


@dataclass(frozen=True, eq=False)
class _Tree:
    """Merges of average linkage from high to low, in steps of one merge, or of several where there are many.

    Attributes:
        merges: one by one.
        stop: int64 (m,), merges up to the end of each step.
        first, height: float64 (m,), mean similarity of the first and the last two groups merged in it.
        weight: float64 (m,), sum of 2ab / (a + b).
        n_pairs: float64 (m,), sum of a * b.
        gap: float64 (m,), how far the mean similarity falls after it.
        groups: float64 (m, sizes), number of groups by size before every step.
        n_images: how many.
    """

    merges: ExactMerges
    stop: LongArray
    first: DoubleArray
    height: DoubleArray
    weight: DoubleArray
    n_pairs: DoubleArray
    gap: DoubleArray
    groups: DoubleArray
    n_images: int

    @classmethod
    def of(cls, images: LinkedImages) -> _Tree:
        merges, n_images = images.merges, images.n_images
        n_merges = len(merges.height)
        sizes = _sizes(merges.kept, merges.gone, n_images)
        one, other = sizes.T.astype(np.float64)
        change = np.zeros((n_merges, len(_SIZES)))
        rows = np.arange(n_merges)
        for size, step in ((one, -1.0), (other, -1.0), (one + other, 1.0)):
            change[rows, np.searchsorted(_SIZES, size, "right") - 1] += step
        groups = np.cumsum(change, axis=0) - change
        groups[:, 0] += n_images
        edges = np.unique(np.linspace(0, n_merges, min(n_merges, _MOST_STEPS) + 1).astype(np.int64))
        start, stop = edges[:-1], edges[1:]
        weight, n_pairs = (
            np.add.reduceat(values, start) for values in (2 * one * other / (one + other), one * other)
        )
        first, last = merges.height[start], merges.height[stop - 1]
        gap = last - np.append(first[1:], min(images.lowest, last[-1]))
        return cls(merges, stop, first, last, weight, n_pairs, gap, groups[start], n_images)

    def step_of(self, size: int) -> int:
        """Return the step after which groups have this mean size, or the last one."""
        wanted = self.n_images * (1 - 1 / size)
        return min(int(np.searchsorted(self.stop, wanted)), len(self.stop) - 1)

    def clear_gap(self, top: float) -> int | None:
        """Return the last step after which distances double, if it merges at least half of the images."""
        distance = top - self.height
        is_clear = (distance + self.gap >= _CLEAR_RATIO * distance) & (self.stop >= self.n_images / 2)
        return int(np.flatnonzero(is_clear)[-1]) if is_clear.any() else None

    def goes_on(self, clear: int, at: int) -> bool:
        """Whether more than a few of the groups at one step are merged up to another."""
        n_groups = self.n_images - int(self.stop[clear])
        return int(self.stop[at] - self.stop[clear]) > _FEW * n_groups

    def cut(self, at: int) -> LongArray:
        """Return the group of every image after step `at`; -1 = before the first."""
        group = np.arange(self.n_images, dtype=np.int32)
        n_merges = int(self.stop[at]) if at >= 0 else 0
        merge_groups(group, read_only(self.merges.kept[:n_merges]), read_only(self.merges.gone[:n_merges]))
        found: LongArray = np.unique(group, return_inverse=True)[1].astype(np.int64)
        return found


@kernel
def _sizes(kept: IntArray, gone: IntArray, n_images: int) -> IntArray:
    """Sizes of the two groups of every merge, int32 (m, 2)."""
    size, found = np.ones(n_images, np.int32), np.empty((len(kept), 2), np.int32)
    for merge in range(len(kept)):
        found[merge, 0], found[merge, 1] = size[kept[merge]], size[gone[merge]]
        size[kept[merge]] += size[gone[merge]]
    return found


def _first_trusted(images: LinkedImages, tree: _Tree, random: _Sample, seed: int) -> MergeThreshold | None:
    """Run rounds from one start after the other, until the end of one has few enough false merges."""
    found = _rounds(images, tree, random, images.first, seed)
    if found is not None:
        return found
    for at, most in (
        (int(tree.gap.argmax()), _HARDLY_FALSE),
        (tree.step_of(_LARGER_GROUPS), images.n_images / _SURE_IMAGES),
    ):
        found = _rounds(images, tree, random, tree.cut(at), seed)
        if found is None:
            continue
        scale = _null_between(images, random, tree.cut(found.at), seed).scale
        if found.false_share <= (max(most, _FALSE_IF_STRONG) if scale.highest >= _STRONG else most):
            return found
    return None


def _rounds(
    images: LinkedImages, tree: _Tree, random: _Sample, groups: LongArray, seed: int
) -> MergeThreshold | None:
    """Alternate between the distribution of impostors and groups, until these stay the same."""
    seen: set[int] = set()
    found = None
    for number in range(_ROUNDS):
        null = _null_between(images, random, groups, seed)
        at = _last_trusted(tree, null)
        found = None if at < 0 else _merge_threshold(tree, null, at)
        groups = tree.cut(at)
        if number and at in seen:
            break
        seen.add(at)
    return found


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
    """Similarities as spreads of impostors above their mean, on a logarithmic scale of distance.

    Attributes:
        center, spread: of impostors.
        highest: spreads from the center to an image and itself.
    """

    center: float
    spread: float
    highest: float

    @classmethod
    def of(cls, between: _Between, top: float) -> _Scale:
        """Fit the impostors by the lower quantiles of the pairs between groups."""
        low, high = np.interp(_LOWER, between.below, between.values)
        spread = max(float(high - low) / (_LOWER_NORMAL[1] - _LOWER_NORMAL[0]), 1e-6)
        center = float(high) - _LOWER_NORMAL[1] * spread
        return cls(center, spread, max((top - center) / spread, 1e-3))

    def z(self, similarity: AnyArray) -> DoubleArray:
        """Spreads above the center: logarithmic above it, linear below it."""
        plain = (np.asarray(similarity, np.float64) - self.center) / self.spread
        stretched = -self.highest * np.log1p(-np.clip(plain / self.highest, 0, 1 - 1e-9))
        z: DoubleArray = np.where(plain > 0, stretched, plain)
        return z

    def similarity(self, z: float) -> float:
        """Return the inverse of `z`."""
        plain = self.highest * -np.expm1(-z / self.highest) if z > 0 else z
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
        """Where too few pairs are left to fit a tail on."""
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

    def z_of(self, share: float) -> float:
        """Return the inverse of `share_above`."""
        return float(np.exp(self.log_scale + np.log(-np.log(share)) / self.shape))


def _between_share(z: AnyArray, groups: LongArray) -> float:
    """Estimate the squared upper spread between ever larger groups, relative to single images."""
    sizes = np.bincount(groups)
    large = np.flatnonzero(sizes > 1)
    if len(large) < _FEWEST_GROUPS:
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
    above = values - np.median(values)
    return float(np.sqrt((above[above > 0] ** 2).mean())) if (above > 0).any() else 0.0


def _null_between(images: LinkedImages, random: _Sample, groups: LongArray, seed: int) -> _Null:
    """Return the distribution of impostors, by the pairs between groups."""
    between = _pairs_between(random.similarity, groups[random.rows])
    inside = _sample_groups(images, groups, seed)
    return _Null.fitted(_Scale.of(between, images.top), between, inside.similarity, groups[inside.rows])


def _false_merges(tree: _Tree, null: _Null, worth: DoubleArray) -> DoubleArray:
    """Return expected false merges of every step, each worth something by the sizes of its groups."""
    z = null.scale.z(tree.height)
    inverse = (1 / _TYPICAL[:, None] + 1 / _TYPICAL[None, :]) / 2
    spreads = np.sqrt(null.between + (1 - null.between) * inverse)
    above = np.maximum.accumulate(null.share_above(z[:, None, None] / spreads), axis=0)
    more = np.diff(above, axis=0, prepend=np.zeros_like(above[:1]))
    pairs = tree.groups[:, :, None] * tree.groups[:, None, :] / 2
    diagonal = np.arange(len(_TYPICAL))
    pairs[:, diagonal, diagonal] -= tree.groups / 2
    false: DoubleArray = (np.maximum(pairs, 0) * more * worth).sum(axis=(1, 2))
    return false


def _last_trusted(tree: _Tree, null: _Null) -> int:
    """Return the last step to trust; -1 = none."""
    z, after = null.scale.z(tree.height), null.scale.z(tree.height - tree.gap)
    sure = null.z_of(_SURE_FALSE / (tree.n_images * (tree.n_images - 1) / 2))
    gap = np.minimum(z, sure) - np.minimum(after, sure)
    following = np.maximum(1.0, _GAP_PER_WEIGHT * np.append(tree.weight[1:], 0.0))
    plain = np.cumsum(tree.weight - _false_merges(tree, null, _TYPICAL_WEIGHT) / _FALSE_SHARE)
    gain = plain + _GAP * gap * following
    gain[(z < _LOWEST) | (plain <= 0)] = -np.inf
    at = int(gain.argmax())
    return at if gain[at] > 0 else -1


def _merge_threshold(tree: _Tree, null: _Null, at: int) -> MergeThreshold:
    """Return the threshold below step `at`, and what to expect of it."""
    false = _false_merges(tree, null, _TYPICAL_WEIGHT)
    wrong = np.cumsum(_false_merges(tree, null, _TYPICAL_PAIRS)) / np.cumsum(tree.n_pairs)
    # In the middle of the gap: what is added later may be a little less similar, or a little more.
    ends = null.scale.z(np.array([tree.height[at], tree.height[at] - tree.gap[at]]))
    threshold = null.scale.similarity(float(ends.mean()))
    return MergeThreshold(
        threshold=threshold,
        softness=_softness(tree, false, threshold, null.scale.spread),
        heights=tree.height,
        precision=np.clip(1 - wrong, 0, 1),
        at=at,
        false_share=float(false[: at + 1].sum() / tree.weight[: at + 1].sum()),
    )


def _softness(tree: _Tree, false: DoubleArray, threshold: float, spread: float) -> Softness:
    """Fit the logistic function to the expected numbers of right merges above and below the threshold.

    Below it there are more pairs of groups than are merged, and nearly all of them are false.
    """
    right, pairs = np.maximum(tree.weight - false, 0), np.maximum(tree.weight, false)
    scales = _SOFTNESS * spread
    above = tree.height > threshold

    def fit(rows: BoolArray) -> float:
        if not rows.any():
            return float(scales[-1])
        with np.errstate(over="ignore"):
            probability = 1 / (1 + np.exp((threshold - tree.height[rows])[:, None] / scales))
        return float(scales[np.abs(pairs[rows] @ probability - right[rows].sum()).argmin()])

    return Softness(fit(above), fit(~above))


_TYPICAL_PAIRS = _TYPICAL[:, None] * _TYPICAL[None, :]
_TYPICAL_WEIGHT = 2 * _TYPICAL_PAIRS / (_TYPICAL[:, None] + _TYPICAL[None, :])

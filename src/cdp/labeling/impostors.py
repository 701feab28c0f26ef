"""The similarities of impostors: mean and spread, the tail, and how the means of large groups spread.

z        similarity in spreads of impostors above their mean, on a logarithmic scale of distance:
z = -h log(1 - (s - mean) / (h spread)), where h is the number of spreads from the mean to an
image and itself. The tail of impostors is then close to exponential in models of many and of
few dimensions: it is a power of the distance, and the exponent is the intrinsic dimension.
Mean and spread are read off the lower quantiles of the pairs between groups, which genuine
pairs do not reach
q(z)     share of impostors above z: a Weibull tail, log q = -(z / scale)^shape, fitted to the pairs
between groups where no genuine pairs are expected, and extrapolated
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cdp.labeling.merge_steps import LinkedImages
from cdp.types.arrays import AnyArray, DoubleArray, LongArray

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

MOST_DRAWN, _MOST_IN_GROUPS, _MOST_OF_GROUP = 1000, 1000, 100
"""Images drawn at random, and images in groups that are drawn, of one group at most so many."""

_FEWEST_GROUPS = 8
_BETWEEN = (0.5, 1.0)
_DEFAULT_BETWEEN = 0.75


@dataclass(frozen=True, eq=False)
class ImageSample:
    """Some images and the similarities between them; those of an image and itself are not used."""

    rows: LongArray
    similarity: AnyArray

    @classmethod
    def of(cls, images: LinkedImages, rows: LongArray) -> ImageSample:
        """Compare some images with each other."""
        return cls(rows, np.asarray(images.similarity(rows), np.float32))


def _sample_groups(images: LinkedImages, groups: LongArray, seed: int) -> ImageSample:
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
    return ImageSample.of(images, np.sort(order[number < _MOST_OF_GROUP]))


@dataclass(frozen=True, eq=False)
class PairsBetween:
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


def pairs_between(similarity: AnyArray, groups: LongArray) -> PairsBetween:
    """Take the pairs of images in different groups, or all pairs where there are hardly any."""
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
    return PairsBetween(values, (below - weight / 2) / below[-1], weight, len(np.unique(groups)))


@dataclass(frozen=True)
class ZScale:
    """Similarities as spreads of impostors above their mean, on a logarithmic scale of distance.

    Attributes:
        center, spread: of impostors.
        highest: spreads from the center to an image and itself.
    """

    center: float
    spread: float
    highest: float

    @classmethod
    def of(cls, between: PairsBetween, top: float) -> ZScale:
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
class ImpostorTail:
    """The distribution of impostors.

    Attributes:
        scale: of z.
        log_scale, shape: of the tail of z.
        between: variance of the mean z of two large groups, relative to that of two images.
    """

    scale: ZScale
    log_scale: float
    shape: float
    between: float = _DEFAULT_BETWEEN

    @classmethod
    def first(cls, scale: ZScale) -> ImpostorTail:
        """Where too few pairs are left to fit a tail on."""
        log_scale = np.log(_FIVE_PERCENT) - np.log(-np.log(0.05)) / _FIRST_SHAPE
        return cls(scale, float(log_scale), _FIRST_SHAPE)

    @classmethod
    def fitted(
        cls, scale: ZScale, between: PairsBetween, similarity: AnyArray, groups: LongArray
    ) -> ImpostorTail:
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


def fit_impostors(images: LinkedImages, random: ImageSample, groups: LongArray, seed: int) -> ImpostorTail:
    """Return the distribution of impostors, by the pairs between groups."""
    between = pairs_between(random.similarity, groups[random.rows])
    inside = _sample_groups(images, groups, seed)
    return ImpostorTail.fitted(
        ZScale.of(between, images.top), between, inside.similarity, groups[inside.rows]
    )

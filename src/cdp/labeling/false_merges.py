"""The threshold without labels: how far average linkage may merge before merges are expected to be wrong.

Two images, or two groups, of different identities are merged by chance: the more of them there are, the
higher are the similarities that chance reaches. The merges of a dendrogram, from high similarities to low
ones, are therefore compared with the number of false merges to expect: a false discovery rate of merges.
Merges are counted, not pairs, so an identity with hundreds of images counts for hundreds and not for ten
thousands.

    q(z)     share of impostors above z, a similarity in spreads (`cdp.labeling.impostors`)
    E(z)     expected false merges above z: with N_s groups of s images, the sum over pairs of groups of
             q(z / spread(s, s')); the mean similarity of large groups spreads less than that of images
    weight   a merge of a and b images counts 2ab / (a + b): so many images win or lose by it

The threshold is where the weight of all merges above it, less twice that of the expected false ones, is
greatest; a wide gap between two merges is preferred, which decides among few images, unless both are so high
that no false merge is expected. Groups, and with them z, q and E, are found in a few rounds. These begin with
mutual nearest neighbors, which are right for identities of few images. Where that finds nothing, as among
identities that are most of the images, they begin with the groups above the widest gap between two merges,
then with groups of four on average. What these find may have few false merges only, in weak models the fewer
the fewer images there are.

Merges end at a clear gap, one that doubles the distance between groups after at least half of the images
were merged, unless many more are trusted. A few well-separated identities say little about impostors, and
need not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.labeling.impostors import MOST_DRAWN, ImageSample, ImpostorTail, fit_impostors
from cdp.labeling.merge_steps import LinkedImages, MergeSteps
from cdp.types import Softness
from cdp.types.arrays import BoolArray, DoubleArray, LongArray

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

_ROUNDS = 6
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
    tree = MergeSteps.of(images)
    drawn = np.random.default_rng([seed, 11]).permutation(images.n_images)[:MOST_DRAWN]
    random = ImageSample.of(images, np.sort(drawn))
    found = _first_trusted(images, tree, random, seed)
    clear = tree.clear_gap(images.top)
    if clear is not None and (found is None or not tree.goes_on(clear, found.at)):
        return _merge_threshold(tree, fit_impostors(images, random, tree.cut(clear), seed), clear)
    return found


def _first_trusted(
    images: LinkedImages, tree: MergeSteps, random: ImageSample, seed: int
) -> MergeThreshold | None:
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
        scale = fit_impostors(images, random, tree.cut(found.at), seed).scale
        if found.false_share <= (max(most, _FALSE_IF_STRONG) if scale.highest >= _STRONG else most):
            return found
    return None


def _rounds(
    images: LinkedImages, tree: MergeSteps, random: ImageSample, groups: LongArray, seed: int
) -> MergeThreshold | None:
    """Alternate between the distribution of impostors and groups, until these stay the same."""
    seen: set[int] = set()
    found = None
    for number in range(_ROUNDS):
        null = fit_impostors(images, random, groups, seed)
        at = _last_trusted(tree, null)
        found = None if at < 0 else _merge_threshold(tree, null, at)
        groups = tree.cut(at)
        if number and at in seen:
            break
        seen.add(at)
    return found


def _false_merges(tree: MergeSteps, null: ImpostorTail, worth: DoubleArray) -> DoubleArray:
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


def _last_trusted(tree: MergeSteps, null: ImpostorTail) -> int:
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


def _merge_threshold(tree: MergeSteps, null: ImpostorTail, at: int) -> MergeThreshold:
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


def _softness(tree: MergeSteps, false: DoubleArray, threshold: float, spread: float) -> Softness:
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

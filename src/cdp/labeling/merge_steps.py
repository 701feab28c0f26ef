"""The merges of average linkage from high to low, in steps: weights, gaps, and the groups before each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cdp.grouping.dendrogram import merge_groups
from cdp.grouping.exact_linkage import ExactMerges
from cdp.runtime.kernels import kernel
from cdp.types.arrays import AnyArray, DoubleArray, IntArray, LongArray, read_only

SIZES = np.array([1, 2, 3, 5, 9, 17, 33, 65, 129])
"""Least sizes of the groups that are counted together."""

_MOST_STEPS = 4000
_CLEAR_RATIO, _FEW = 2.0, 0.2
"""A gap after which distances are so many times as large is clear, whatever impostors are like, unless more
than this share of the groups are merged below it: then it is the gap below copies."""


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


@dataclass(frozen=True, eq=False)
class MergeSteps:
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
    def of(cls, images: LinkedImages) -> MergeSteps:
        """Sum the merges of images up to at most 4,000 steps."""
        merges, n_images = images.merges, images.n_images
        n_merges = len(merges.height)
        sizes = _sizes(merges.kept, merges.gone, n_images)
        one, other = sizes.T.astype(np.float64)
        change = np.zeros((n_merges, len(SIZES)))
        rows = np.arange(n_merges)
        for size, step in ((one, -1.0), (other, -1.0), (one + other, 1.0)):
            change[rows, np.searchsorted(SIZES, size, "right") - 1] += step
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

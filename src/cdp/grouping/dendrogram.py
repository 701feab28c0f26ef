"""`Dendrogram`: the merges of average linkage, built once and cut at any threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError
from cdp.grouping.propagation import measure_ties, number_groups
from cdp.grouping.union_find import compress_paths, find_root, make_union_find
from cdp.runtime.kernels import kernel
from cdp.types import ConsensusGraph, Labels, SimilarityGraph, Status
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, FloatArray, IntArray, read_only
from cdp.types.constraints import Constraints, confirm


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """Merges of average linkage in descending order of height.

    The mean between two groups may rise when one of them grows, so the means of successive merges need not
    fall. Linkage at a threshold t stops the first time that the best mean is not greater than t. The height
    of a merge is therefore the smallest best mean up to that merge, which never rises: a merge is made at
    threshold t if and only if its height is greater than t, and the dendrogram of a low threshold contains
    those of all higher ones.

    Attributes:
        graph: the scored pairs that were linked; under constraints, without those that cannot be.
        kept: int32 (m,), the group that remains after each merge, named after one of its images.
        gone: int32 (m,), the group merged into it; an image occurs here at most once.
        height: float64 (m,), descending.
        lowest: the threshold that linkage stopped at; every height is greater.
        constraints: what the merges keep. Images that must be together are one group at every threshold.
    """

    graph: ConsensusGraph
    kept: IntArray
    gone: IntArray
    height: DoubleArray
    lowest: float
    constraints: Constraints | None = None

    def __post_init__(self) -> None:
        for name in ("kept", "gone", "height"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.height)

    def cut(self, threshold: float) -> Labels:
        """Return the groups of average linkage with this threshold, as `agglomerate` does.

        Args:
            threshold: a mean probability, `lowest` or more and below 1.
        """
        group = self._group_of_images(threshold)
        size = np.bincount(group, minlength=self.graph.n_images)[group]
        has_likely_pair = np.zeros(self.graph.n_images, np.bool_)
        _mark_likely(self.graph.ids, self.graph.doubt, threshold, has_likely_pair)
        alone = np.where(has_likely_pair, Status.ISOLATED, Status.NO_ACCEPTED_PAIR)
        status = np.where(size > 1, Status.LABELED, alone).astype(np.uint8)
        labels = number_groups(group, status)
        return Labels(labels, status, self._confidence(labels, threshold))

    def _confidence(self, labels: IntArray, threshold: float) -> FloatArray:
        """Compute the confidence of every image in its group, float32 (n,)."""
        if isinstance(self.graph, SimilarityGraph):
            n_merges = self._n_merges(threshold)
            right = read_only(self.height[:n_merges])
            return expected_shares(self._at_start(), self.kept[:n_merges], self.gone[:n_merges], right)
        graph = self.graph if self.constraints is None else confirm(self.graph, self.constraints)
        keep_below = np.full(graph.n_images, 1 - threshold)
        return measure_ties(graph.ids, graph.doubt, labels, keep_below)

    def _group_of_images(self, threshold: float) -> IntArray:
        """Name the group of every image after one of its images, int32 (n,)."""
        if not self.lowest <= threshold < 1:
            raise InputError(
                f"Dendrogram.cut(threshold={threshold}): the dendrogram was built for thresholds from "
                f"{self.lowest} to 1; build it with a lower one.",
                code="threshold-not-in-dendrogram",
                value=threshold,
                lowest=self.lowest,
            )
        n_merges, parent = self._n_merges(threshold), self._at_start()
        merge_groups(parent, self.kept[:n_merges], self.gone[:n_merges])
        return parent

    def _n_merges(self, threshold: float) -> int:
        """Count the merges above a threshold."""
        return len(self) - int(np.searchsorted(self.height[::-1], threshold, side="right"))

    def _at_start(self) -> IntArray:
        """Return the forest before the first merge: images that must be together are united."""
        if self.constraints is not None:
            return make_union_find(self.graph.n_images, self.constraints).parent
        return np.arange(self.graph.n_images, dtype=np.int32)


@kernel
def merge_groups(parent: IntArray, kept: IntArray, gone: IntArray) -> None:
    """Apply merges to a union-find forest, and let every image point to the root of its group."""
    for merge in range(len(kept)):
        parent[find_root(parent, gone[merge])] = find_root(parent, kept[merge])
    compress_paths(parent)


@kernel
def expected_shares(parent: IntArray, kept: IntArray, gone: IntArray, right: DoubleArray) -> FloatArray:
    """Compute the expected share of the other images of a group that show the same identity, float32 (n,).

    An image shows the same identity as the images that one merge brings to its group with the probability
    that this merge is right. Images that are united before the first merge do so for certain.

    Args:
        parent: int32 (n,), the forest before the first merge; it is changed.
        kept: int32 (m,), the group that remains after each merge, named after an image.
        gone: int32 (m,), the group merged into it.
        right: float64 (m,), probability that each merge is right.

    Returns:
        1 for an image that must be with all others of its group, 0 for one that is alone.
    """
    n_images, n_merges = len(parent), len(kept)
    compress_paths(parent)
    size = np.zeros(n_images, np.int64)
    for image in range(n_images):
        size[parent[image]] += 1
    # A node is an image that names a group, or n + the number of a merge.
    node = np.arange(n_images)
    above = np.full(n_images + n_merges, -1, np.int64)
    added = np.zeros(n_images + n_merges, np.float64)
    start = parent.copy()
    for image in range(n_images):
        added[image] = size[image] - 1
    for merge in range(n_merges):
        one, other = find_root(parent, kept[merge]), find_root(parent, gone[merge])
        for side, far in ((one, other), (other, one)):
            added[node[side]] += size[far] * right[merge]
            above[node[side]] = n_images + merge
        parent[other] = one
        size[one] += size[other]
        node[one] = n_images + merge
    for at in range(n_images + n_merges - 1, -1, -1):
        if above[at] >= 0:
            added[at] += added[above[at]]
    share = np.zeros(n_images, np.float32)
    for image in range(n_images):
        others = size[find_root(parent, image)] - 1
        if others > 0:
            share[image] = min(added[start[image]] / others, 1.0)
    return share


@kernel
def _mark_likely(ids: IntArray, doubt: AnyArray, threshold: float, has_likely_pair: BoolArray) -> None:
    """Mark the images that have a pair more probable than the threshold."""
    for row in range(len(ids)):
        if max(1.0 - np.float64(doubt[row]), 0.0) > threshold:
            has_likely_pair[ids[row, 0]] = True
            has_likely_pair[ids[row, 1]] = True

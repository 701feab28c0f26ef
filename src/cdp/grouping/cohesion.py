"""Cohesion of finished groups: mean probability between an image and its group, and between two groups.

Means are those of average linkage: over the pairs that a k-NN graph can hold, others counting as probability
0. Of pairs scored by similarity it is the probability at the mean z-score of all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.runtime.kernels import kernel
from cdp.types import ConsensusGraph, Labels, SimilarityGraph
from cdp.types.arrays import AnyArray, DoubleArray, FloatArray, IntArray, LongArray

_ROWS_PER_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class GroupTies:
    """Pairs of groups with scored pairs between them, in descending order of the mean probability.

    Attributes:
        ids: int32 (m, 2), two labels, the smaller first.
        probability: float64 (m,), mean over the pairs between them that a k-NN graph can hold, as in
            `agglomerate`.
    """

    ids: IntArray
    probability: DoubleArray

    def __len__(self) -> int:
        return len(self.ids)


def tie_to_group(scored: ConsensusGraph, labels: Labels, k: int) -> DoubleArray:
    """Compute the mean probability between every image and the rest of its group, float64 (n,).

    The mean is over min(size - 1, k) pairs, or those present if more; missing pairs count as 0, as in
    `agglomerate`. It is 0 for images without a group.
    """
    if isinstance(scored, SimilarityGraph):
        return _tie_by_sums(scored, labels)
    total, present = np.zeros(labels.n_images), np.zeros(labels.n_images, np.int64)
    _add_up(scored.ids, scored.doubt, labels.labels, total, present)
    possible = np.minimum(group_sizes(labels) - 1, k)
    tie: DoubleArray = total / np.maximum(np.maximum(present, possible), 1)
    return tie


@kernel
def _add_up(ids: IntArray, doubt: AnyArray, labels: IntArray, total: DoubleArray, present: LongArray) -> None:
    """Add up the probabilities of every image's pairs inside its group, and count them."""
    for row in range(len(ids)):
        if labels[ids[row, 0]] >= 0 and labels[ids[row, 0]] == labels[ids[row, 1]]:
            for image in ids[row]:
                total[image] += 1.0 - np.float64(doubt[row])
                present[image] += 1


def tie_groups(scored: ConsensusGraph, labels: Labels, k: int) -> GroupTies:
    """Compute the mean probability between all pairs of groups that have a scored pair between them."""
    n_groups = max(1, labels.n_identities)
    key = np.unique(np.concatenate([np.empty(0, np.int64), *map(np.unique, _keys_between(scored, labels))]))
    ids = np.stack([key // n_groups, key % n_groups], axis=1)
    if isinstance(scored, SimilarityGraph):
        mean = _mean_between(scored, labels, ids)
        order = np.argsort(-mean, kind="stable")
        return GroupTies(ids[order].astype(np.int32), mean[order])
    total, present = np.zeros(len(key)), np.zeros(len(key), np.int64)
    for keys, probability in _between(scored, labels):
        position = np.searchsorted(key, keys)
        np.add.at(total, position, probability)
        np.add.at(present, position, 1)
    sizes = np.bincount(labels.labels[labels.labels >= 0], minlength=n_groups).astype(np.float64)[ids]
    possible = sizes.prod(axis=1) * np.minimum(1, k / np.maximum(sizes.sum(axis=1) - 1, 1))
    mean = total / np.maximum(possible, present)
    order = np.argsort(-mean, kind="stable")
    return GroupTies(ids[order].astype(np.int32), mean[order])


def _tie_by_sums(scored: SimilarityGraph, labels: Labels) -> DoubleArray:
    """Compute the probability at the mean z-score between every image and the rest of its group."""
    sums, sizes = _sum_groups(scored, labels), group_sizes(labels)
    tie = np.zeros(labels.n_images)
    for start, stop in spans(labels.n_images, _ROWS_PER_BLOCK):
        rows = start + np.flatnonzero(sizes[start:stop] > 1)
        own = scored.vectors[rows].astype(np.float32)
        rest = sums[labels.labels[rows]] - own
        z = scored.offset + np.einsum("ij,ij->i", own, rest, dtype=np.float64) / (sizes[rows] - 1)
        tie[rows] = scored.probability_of(z)
    return tie


def _mean_between(scored: SimilarityGraph, labels: Labels, ids: LongArray) -> DoubleArray:
    """Compute the probability at the mean z-score between two groups, for pairs of groups (m, 2)."""
    sums = _sum_groups(scored, labels)
    sizes = np.bincount(labels.labels[labels.labels >= 0], minlength=len(sums)).astype(np.float64)
    mean = np.empty(len(ids))
    for start, stop in spans(len(ids), _ROWS_PER_BLOCK):
        one, other = ids[start:stop].T
        products = np.einsum("ij,ij->i", sums[one], sums[other], dtype=np.float64)
        mean[start:stop] = scored.offset + products / (sizes[one] * sizes[other])
    probability: DoubleArray = scored.probability_of(mean)
    return probability


def _sum_groups(scored: SimilarityGraph, labels: Labels) -> FloatArray:
    """Add up the vectors of every group, float32 (groups, d)."""
    sums = np.zeros((max(1, labels.n_identities), scored.vectors.shape[1]), np.float32)
    for start, stop in spans(labels.n_images, _ROWS_PER_BLOCK):
        number = labels.labels[start:stop]
        rows = np.flatnonzero(number >= 0)
        groups, place = np.unique(number[rows], return_inverse=True)
        one = sparse.csr_array(
            (np.ones(len(rows), np.float32), (place, np.arange(len(rows)))), (len(groups), len(rows))
        )
        sums[groups] += one @ scored.vectors[start + rows].astype(np.float32)
    return sums


def as_probability(tie: DoubleArray, threshold: float) -> DoubleArray:
    """Map mean probabilities between groups to the probability that they are one identity.

    Piecewise linear: 0 at 0, 1/2 at the threshold, which was chosen so that it separates the two cases, and 1
    at 1.
    """
    below, above = tie / (2 * threshold), 0.5 + (tie - threshold) / (2 * (1 - threshold))
    probability: DoubleArray = np.clip(np.where(tie < threshold, below, above), 0, 1)
    return probability


def _between(scored: ConsensusGraph, labels: Labels) -> Iterator[tuple[LongArray, DoubleArray]]:
    """Yield keys (smaller label · groups + larger label) and probabilities of pairs between groups."""
    n_groups = max(1, labels.n_identities)
    for start, stop in spans(len(scored), PAIRS_PER_BLOCK):
        one, other = (labels.labels[scored.ids[start:stop, end]] for end in range(2))
        rows = np.flatnonzero((one >= 0) & (other >= 0) & (one != other))
        first, second = one[rows].astype(np.int64), other[rows]
        keys = np.minimum(first, second) * n_groups + np.maximum(first, second)
        yield keys, 1 - scored.doubt[start + rows].astype(np.float64)


def _keys_between(scored: ConsensusGraph, labels: Labels) -> Iterator[LongArray]:
    return (keys for keys, _ in _between(scored, labels))


def group_sizes(labels: Labels) -> LongArray:
    """Return the size of every image's group, int64 (n,); 1 for images without one."""
    found = labels.labels
    sizes = np.bincount(found[found >= 0], minlength=1)
    return np.where(found >= 0, sizes[np.maximum(found, 0)], 1)

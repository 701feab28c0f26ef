"""What is known about every group: its majority, its wrong members, the discarded images it misses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.types import ConsensusGraph, KnnGraph, Labels
from cdp.types.arrays import BoolArray, DoubleArray, LongArray


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known about n images in C groups.

    Attributes:
        labels: int64 (n,), -1 = discarded.
        identities: int64 (n,), -1 = unknown; None if none is known.
        sizes: int64 (C,).
        confidence: float64 (C,), mean over the members.
        majority: int64 (C,), the most frequent known identity, the smallest among equals; -1 if unknown.
        wrong: bool (n,), labeled images known to be of another identity than their group's majority.
        expected: int64 (n,), for a discarded image the group it would belong to, -1 if there is none. Where
            identities are known: the largest group whose majority is the image's identity. Else the group of
            its surest accepted pair, or of its nearest neighbor with a label.
        n_wrong: int64 (C,), wrong members.
        n_missed: int64 (C,), discarded images that belong to the group.
    """

    labels: LongArray
    identities: LongArray | None
    sizes: LongArray
    confidence: DoubleArray
    majority: LongArray
    wrong: BoolArray
    expected: LongArray
    n_wrong: LongArray
    n_missed: LongArray

    def members(self, group: int) -> LongArray:
        """Rows of a group: right ones first, wrong ones last."""
        rows = np.flatnonzero(self.labels == group)
        return rows[np.argsort(self.wrong[rows], kind="stable")]

    def missed(self, group: int) -> LongArray:
        """Discarded rows that belong to a group."""
        return np.flatnonzero(self.expected == group)

    def split_identities(self) -> list[tuple[int, LongArray]]:
        """List (identity, groups) of identities split over several groups, most groups first."""
        known = np.flatnonzero(self.majority >= 0)
        _, person, count = np.unique(self.majority[known], return_inverse=True, return_counts=True)
        split = known[count[person] > 1]
        groups_of: dict[int, list[int]] = {}
        for group, identity in zip(split.tolist(), self.majority[split].tolist(), strict=True):
            groups_of.setdefault(identity, []).append(group)
        several = [(who, np.array(groups, np.int64)) for who, groups in groups_of.items()]
        several.sort(key=lambda entry: (-len(entry[1]), -int(self.sizes[entry[1]].sum()), entry[0]))
        return [(who, groups[np.argsort(-self.sizes[groups], kind="stable")]) for who, groups in several]


def survey_groups(
    labels: Labels,
    identities: LongArray | None,
    consensus: ConsensusGraph | None = None,
    base_graph: KnnGraph | None = None,
) -> Survey:
    """Return the survey of all groups; identities that are all unknown count as none."""
    found = labels.labels.astype(np.int64)
    truth = None if identities is None or not (identities >= 0).any() else identities
    sizes = labels.sizes.astype(np.int64)
    kept = found >= 0
    confidence = np.bincount(found[kept], labels.confidence[kept], len(sizes)) / np.maximum(sizes, 1)
    majority = np.full(len(sizes), -1, np.int64)
    wrong = np.zeros(len(found), np.bool_)
    if truth is None:
        expected = _expected_by_neighbors(found, consensus, base_graph)
    else:
        majority = majorities(found, truth, len(sizes))
        wrong[kept] = (truth[kept] >= 0) & (truth[kept] != majority[found[kept]])
        expected = _expected_by_identity(found, truth, majority, sizes)
    n_wrong = np.bincount(found[wrong], minlength=len(sizes)).astype(np.int64)
    n_missed = np.bincount(expected[expected >= 0], minlength=len(sizes)).astype(np.int64)
    return Survey(found, truth, sizes, confidence, majority, wrong, expected, n_wrong, n_missed)


def majorities(found: LongArray, truth: LongArray, n_groups: int) -> LongArray:
    """Return every group's most frequent known identity, the smallest of equals; -1 if unknown."""
    majority = np.full(n_groups, -1, np.int64)
    both = (found >= 0) & (truth >= 0)
    names, person = np.unique(truth[both], return_inverse=True)
    cells, counts = np.unique(found[both] * max(1, len(names)) + person, return_counts=True)
    group, person = np.divmod(cells, max(1, len(names)))
    # The last write wins: cells in ascending count, and among equals the smaller identity last.
    order = np.lexsort((-person, counts))
    majority[group[order]] = names[person[order]]
    return majority


def _expected_by_identity(
    found: LongArray, truth: LongArray, majority: LongArray, sizes: LongArray
) -> LongArray:
    known = np.flatnonzero(majority >= 0)
    order = known[np.lexsort((-known, sizes[known]))]
    expected = np.full(len(found), -1, np.int64)
    discarded = (found < 0) & (truth >= 0)
    if order.size and discarded.any():
        names, numbers = np.unique(truth, return_inverse=True)
        group_of = np.full(len(names), -1, np.int64)
        group_of[np.searchsorted(names, majority[order])] = order
        expected[discarded] = group_of[numbers[discarded]]
    return expected


def _expected_by_neighbors(
    found: LongArray, consensus: ConsensusGraph | None, base_graph: KnnGraph | None
) -> LongArray:
    expected = np.full(len(found), -1, np.int64)
    discarded = found < 0
    if base_graph is not None:
        rows = np.flatnonzero(discarded)
        neighbors = base_graph.neighbors[rows]
        near = np.where(neighbors >= 0, found[neighbors], -1)
        first = (near >= 0).argmax(axis=1)
        expected[rows] = near[np.arange(len(rows)), first]
    if consensus is not None:
        ends = np.concatenate([consensus.ids, consensus.ids[:, ::-1]]).astype(np.int64)
        doubt = np.concatenate([consensus.doubt, consensus.doubt])
        usable = discarded[ends[:, 0]] & ~discarded[ends[:, 1]]
        ends, doubt = ends[usable], doubt[usable]
        order = np.argsort(-doubt, kind="stable")
        expected[ends[order, 0]] = found[ends[order, 1]]
    return expected

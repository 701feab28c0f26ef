"""Scored pairs by image, and their probabilities in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cdp.types import ConsensusGraph
from cdp.types.arrays import DoubleArray, IntArray, LongArray
from cdp.web.words import chance


@dataclass(frozen=True)
class Between:
    """Summary of the scored pairs between two sets of images.

    Attributes:
        scored: number of scored pairs.
        likely: how many of them are more likely one person than two.
        best: the highest probability.
        mean: the mean probability.
    """

    scored: int
    likely: int
    best: float
    mean: float


@dataclass(frozen=True, eq=False)
class PairProbabilities:
    """Scored pairs by either of their images.

    Attributes:
        graph: all scored pairs.
    """

    graph: ConsensusGraph

    @cached_property
    def _second_first(self) -> LongArray:
        """The pairs in the order of their second image; in the order of the first they are already."""
        return np.argsort(self.graph.ids[:, 1], kind="stable")

    @cached_property
    def _seconds(self) -> IntArray:
        seconds: IntArray = self.graph.ids[self._second_first, 1]
        return seconds

    def partners(self, rows: LongArray) -> tuple[LongArray, LongArray, DoubleArray]:
        """Return (image, other image, probability) of every scored pair with an image of `rows`."""
        firsts = _ranges(self.graph.ids[:, 0], rows)
        seconds = self._second_first[_ranges(self._seconds, rows)]
        pairs = np.concatenate([firsts, seconds])
        ids = self.graph.ids[pairs].astype(np.int64)
        own, other = ids[:, 0].copy(), ids[:, 1].copy()
        own[len(firsts) :], other[len(firsts) :] = ids[len(firsts) :, 1], ids[len(firsts) :, 0]
        return own, other, 1 - self.graph.doubt[pairs].astype(np.float64)

    def between(self, one: Sequence[int], other: Sequence[int]) -> Between:
        """Summarize the scored pairs between two disjoint sets of images."""
        fewer, more = sorted((np.asarray(one, np.int64), np.asarray(other, np.int64)), key=len)
        _, partner, probability = self.partners(fewer)
        found = probability[np.isin(partner, more)]
        if not len(found):
            return Between(0, 0, 0.0, 0.0)
        likely = int(np.count_nonzero(found > 0.5))
        return Between(len(found), likely, float(found.max()), float(found.mean()))

    def nearest_groups(self, rows: LongArray, identity: IntArray, most: int = 5) -> list[tuple[int, float]]:
        """Return (group, share of the summed probability) of the other groups most tied to images."""
        if not len(rows):
            return []
        own, partner, probability = self.partners(rows)
        group = identity[partner].astype(np.int64)
        outside = (group >= 0) & (group != identity[own])
        if not outside.any():
            return []
        numbers, at = np.unique(group[outside], return_inverse=True)
        tie = np.bincount(at, probability[outside])
        order = np.argsort(-tie, kind="stable")[:most]
        whole = max(float(probability.sum()), 1e-12)
        return [(int(numbers[one]), float(tie[one]) / whole) for one in order]


def _ranges(column: IntArray, rows: LongArray) -> LongArray:
    """Return where a sorted column holds one of some values."""
    starts, stops = np.searchsorted(column, rows), np.searchsorted(column, rows, side="right")
    lengths = stops - starts
    offsets = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return (offsets + np.arange(int(lengths.sum()))).astype(np.int64)


def probabilities_in_words(found: Between) -> str:
    """Return what the models say about two sets of images, in a sentence or two.

    >>> probabilities_in_words(Between(12, 4, 0.97, 0.42)).partition(". ")[0]
    'The models compared 12 pairs across them: 4 look like one person, 8 do not'
    """
    if not found.scored:
        return "No model has any of these pairs among its nearest neighbors, so they were not compared."
    if found.scored == 1:
        return (
            f"The models compared one pair across them, and take it for one person with {chance(found.best)}."
        )
    unlike = found.scored - found.likely
    share = (
        "all look like one person"
        if not unlike
        else "none looks like one person"
        if not found.likely
        else f"{found.likely:,} {'looks' if found.likely == 1 else 'look'} like one person, {unlike:,} "
        f"{'does' if unlike == 1 else 'do'} not"
    )
    return (
        f"The models compared {found.scored:,} pairs across them: {share}. The most alike are "
        f"{chance(found.best)} likely "
        f"one person, on average it is {chance(found.mean)}."
    )

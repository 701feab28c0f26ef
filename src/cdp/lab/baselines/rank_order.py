"""Approximate rank-order clustering (Otto, Wang and Jain, "Clustering Millions of Faces by Identity", 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.kernels import kernel
from cdp.lab.baselines.baseline import Baseline, check_at_least, graph_for, labels_of
from cdp.lab.baselines.links import Links
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray, DoubleArray, IntArray


@dataclass(frozen=True)
class RankOrder(Baseline):
    """Link neighbors whose lists of neighbors agree; groups are what is linked.

    Only who is in whose list counts, not how similar; the whole k of the given graph is used.

    Attributes:
        threshold: two neighbors are linked if D_m is less than this; small D_m = their lists agree.
    """

    threshold: float = 1.0

    def __post_init__(self) -> None:
        check_at_least("RankOrder", "threshold", self.threshold, 0)

    @property
    def name(self) -> str:
        """`rank_order`."""
        return "rank_order"

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Transitive closure of the links."""
        held = graph_for("RankOrder", embeddings, graph)
        row, place = np.nonzero(rank_order(held) < self.threshold)
        other: IntArray = held.neighbors[row, place]
        first: IntArray = row.astype(np.int32)
        return labels_of(Links(first, other, held.similarity[row, place], held.n_images).groups())


def rank_order(graph: KnnGraph) -> DoubleArray:
    """D_m of every image and each of its neighbors, float64 (n, k); infinite where there is no neighbor.

    With O_a(b) the place of b in a's list, from 1, and f_a(i) the image in place i:
        d_m(a, b) = sum over i = 1..min(O_a(b), k) of [f_a(i) is not among b's k nearest]
        D_m(a, b) = (d_m(a, b) + d_m(b, a)) / min(O_a(b), O_b(a))
    An image is in its own list, at place 0; O_b(a) of an image that is not in b's list is beyond k.
    """
    return _rank_order(graph.neighbors, np.sort(graph.neighbors, axis=1))


@kernel
def _rank_order(neighbors: AnyArray, in_order: AnyArray) -> AnyArray:
    n_images, k = neighbors.shape
    found = np.full((n_images, k), np.inf)
    for a in range(n_images):
        for place in range(k):
            b = neighbors[a, place]
            if b < 0:
                break
            back = k
            for i in range(k):
                if neighbors[b, i] == a:
                    back = i
                    break
            strangers = _strangers(neighbors[a], place + 1, in_order[b], b) + _strangers(
                neighbors[b], min(back + 1, k), in_order[a], a
            )
            found[a, place] = strangers / (min(place, back) + 1)
    return found


@kernel
def _strangers(friends: AnyArray, n_friends: int, in_order: AnyArray, owner: int) -> int:
    """How many of the first friends are not in the owner's list."""
    strangers = 0
    for i in range(n_friends):
        friend = friends[i]
        if friend < 0:
            break
        if friend == owner:
            continue
        at = np.searchsorted(in_order, friend)
        if at == len(in_order) or in_order[at] != friend:
            strangers += 1
    return strangers

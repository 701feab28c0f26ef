"""Approximate rank-order clustering (Otto et al., "Clustering Millions of Faces by Identity", 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.runtime.kernels import kernel
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray, DoubleArray
from cdp_lab.baselines.baseline import Baseline, components, labels_of


@dataclass(frozen=True)
class RankOrder(Baseline):
    """Link neighbors whose lists of neighbors agree; groups are what is linked.

    Only who is in whose list counts, not how similar; the whole k of the given graph is used.
    """

    name = "rank_order"
    threshold: float = setting(1.0, "Two neighbors are linked if D_m is less than this.", low=0)

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Transitive closure of the links."""
        graph = self.graph_of(embeddings, graph)
        row, column = np.nonzero(rank_order(graph) < self.threshold)
        return labels_of(components(row, graph.neighbors[row, column], graph.n_images))


def rank_order(graph: KnnGraph) -> DoubleArray:
    """D_m of every image and each of its neighbors, float64 (n, k); infinite where there is no neighbor.

    With O_a(b) the rank of b in a's list, from 1, and f_a(i) the image of rank i:
        d_m(a, b) = sum over i = 1..min(O_a(b), k) of [f_a(i) is not among b's k nearest]
        D_m(a, b) = (d_m(a, b) + d_m(b, a)) / min(O_a(b), O_b(a))
    An image is in its own list, at rank 0; O_b(a) of an image that is not in b's list is beyond k.
    """
    return _rank_order(graph.neighbors, np.sort(graph.neighbors, axis=1))


@kernel
def _rank_order(neighbors: AnyArray, sorted_neighbors: AnyArray) -> AnyArray:
    n_images, k = neighbors.shape
    found = np.full((n_images, k), np.inf)
    for a in range(n_images):
        for rank in range(k):
            b = neighbors[a, rank]
            if b < 0:
                break
            back = k
            for i in range(k):
                if neighbors[b, i] == a:
                    back = i
                    break
            missing = _count_missing(neighbors[a], rank + 1, sorted_neighbors[b], b) + _count_missing(
                neighbors[b], min(back + 1, k), sorted_neighbors[a], a
            )
            found[a, rank] = missing / (min(rank, back) + 1)
    return found


@kernel
def _count_missing(neighbors: AnyArray, n_first: int, sorted_list: AnyArray, owner: int) -> int:
    """Return how many of the first neighbors are not in the owner's list."""
    missing = 0
    for i in range(n_first):
        image = neighbors[i]
        if image < 0:
            break
        if image == owner:
            continue
        at = np.searchsorted(sorted_list, image)
        if at == len(sorted_list) or sorted_list[at] != image:
            missing += 1
    return missing

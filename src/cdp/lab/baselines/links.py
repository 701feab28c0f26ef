"""A k-NN graph as undirected links: what most graph methods cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cdp.lab.baselines.baseline import components
from cdp.types import KnnGraph
from cdp.types.arrays import DoubleArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Links:
    """Undirected links between images, each once.

    Attributes:
        first: int32 (m,), the smaller id.
        second: int32 (m,), the larger id; links are sorted by (first, second).
        similarity: float32 (m,).
        n_images: how many images the ids are drawn from.
    """

    first: IntArray
    second: IntArray
    similarity: FloatArray
    n_images: int

    def __len__(self) -> int:
        return len(self.first)

    def groups(self) -> IntArray:
        """The connected component of every image, int32 (n,)."""
        return components(self.first, self.second, self.n_images)

    def rows(self) -> sparse.csr_array:
        """Both directions as a sparse matrix of float64 similarities; a similarity of 0 stays an entry."""
        ends = np.concatenate([self.first, self.second]), np.concatenate([self.second, self.first])
        values: DoubleArray = np.concatenate([self.similarity, self.similarity]).astype(np.float64)
        order = np.lexsort((ends[1], ends[0]))
        starts = np.searchsorted(ends[0][order], np.arange(self.n_images + 1))
        return sparse.csr_array(
            (values[order], ends[1][order].astype(np.int32), starts.astype(np.int32)),
            shape=(self.n_images, self.n_images),
        )


def links_of(graph: KnnGraph, at_least: float = -np.inf) -> Links:
    """The links of similarity `at_least` or more: either image has the other among its neighbors."""
    row, column = np.nonzero((graph.neighbors >= 0) & (graph.similarity >= np.float32(at_least)))
    other = graph.neighbors[row, column].astype(np.int64)
    similarity = graph.similarity[row, column]
    keys = np.minimum(row, other) * np.int64(graph.n_images) + np.maximum(row, other)
    # Where the two directions differ by a rounding, the greater similarity is kept.
    order = np.lexsort((-similarity, keys))
    once = order[np.concatenate([[True], np.diff(keys[order]) > 0])] if len(order) else order
    first, second = np.divmod(keys[once], graph.n_images)
    return Links(first.astype(np.int32), second.astype(np.int32), similarity[once], graph.n_images)

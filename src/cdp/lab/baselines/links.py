"""A k-NN graph as undirected links: what most graph methods cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from cdp.types import KnnGraph
from cdp.types.arrays import AnyArray, FloatArray, IntArray


class Links(NamedTuple):
    """Links between images, each once with first < second, sorted by (first, second); arrays of shape (m,)."""

    first: IntArray
    second: IntArray
    similarity: FloatArray
    n_images: int

    def rows(self) -> sparse.csr_array:
        """Both directions as a sparse matrix of float64 similarities; a similarity of 0 stays an entry."""
        ends = np.concatenate([self.first, self.second]), np.concatenate([self.second, self.first])
        values = np.tile(self.similarity.astype(np.float64), 2)
        return sparse.csr_array(sparse.coo_array((values, ends), shape=(self.n_images,) * 2))


def links_of(graph: KnnGraph, at_least: float = -np.inf) -> Links:
    """The links of similarity `at_least` or more: either image has the other among its neighbors."""
    row, column = np.nonzero((graph.neighbors >= 0) & (graph.similarity >= np.float32(at_least)))
    other = graph.neighbors[row, column].astype(np.int64)
    similarity = graph.similarity[row, column]
    keys = np.minimum(row, other) * np.int64(graph.n_images) + np.maximum(row, other)
    # Where the two directions differ by a rounding, the greater similarity is kept.
    order = np.lexsort((-similarity, keys))
    once = order[np.diff(keys[order], prepend=-1) > 0]
    first, second = np.divmod(keys[once], graph.n_images)
    return Links(first.astype(np.int32), second.astype(np.int32), similarity[once], graph.n_images)


def components(first: AnyArray, second: AnyArray, n_images: int) -> IntArray:
    """The connected component of every image, int32 (n,), where first[i] and second[i] are linked."""
    ones = np.ones(len(first), np.int8)
    matrix = sparse.coo_array((ones, (first, second)), shape=(n_images, n_images))
    numbers: IntArray = sparse.csgraph.connected_components(matrix, directed=False)[1].astype(np.int32)
    return numbers

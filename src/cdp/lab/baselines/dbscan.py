"""DBSCAN (scikit-learn) on the k-NN graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cdp.lab.baselines.baseline import Baseline, labels_of
from cdp.lab.baselines.links import links_of
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels


@dataclass(frozen=True)
class DBSCAN(Baseline):
    """Density-based clustering: images with enough close neighbors carry a group onward.

    Only neighbors in the k-NN graph are seen, so memory grows with the links. With `min_samples=2` groups are the
    connected components of the links that are close enough.
    """

    name = "dbscan"
    similarity: float = setting(
        0.5, "The least similarity of close images, 1 - eps.", meaning="a cosine", low=-1, below=1
    )
    min_samples: int = setting(
        2, "An image with so many close images, itself included, carries its group onward.", low=1
    )

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """The groups; noise is discarded."""
        from sklearn.cluster import dbscan
        from sklearn.neighbors import sort_graph_by_row_values

        matrix = links_of(self.graph_of(embeddings, graph), self.similarity).rows()
        matrix.data = np.maximum(1 - matrix.data, 0)
        # Links below `similarity` are gone already; a tenth of slack keeps those exactly at it, rounding or not.
        sorted_rows = sort_graph_by_row_values(
            _with_zero_diagonal(matrix), copy=False, warn_when_not_sorted=False
        )
        _, groups = dbscan(
            sorted_rows, eps=1.1 * (1 - self.similarity), min_samples=self.min_samples, metric="precomputed"
        )
        return labels_of(groups)


def _with_zero_diagonal(matrix: sparse.csr_array) -> sparse.csr_matrix:
    """The matrix with an explicit 0 as the first entry of every row: an image is its own neighbor."""
    n_images = matrix.shape[0]
    data = np.insert(matrix.data, matrix.indptr[:-1], 0.0)
    indices = np.insert(matrix.indices, matrix.indptr[:-1], np.arange(n_images, dtype=np.int32))
    indptr = matrix.indptr + np.arange(n_images + 1, dtype=matrix.indptr.dtype)
    return sparse.csr_matrix((data, indices, indptr), shape=matrix.shape)

"""DBSCAN (scikit-learn) on the k-NN graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cdp.errors import InputError
from cdp.lab.baselines.baseline import Baseline, check_at_least, check_similarity, graph_for, labels_of
from cdp.lab.baselines.links import links_of
from cdp.types import Embeddings, KnnGraph, Labels


@dataclass(frozen=True)
class DBSCAN(Baseline):
    """Density-based clustering: images with enough close neighbors carry a group onward.

    Only neighbors in the k-NN graph are seen, so memory grows with the links. With `min_samples=2` groups are the
    connected components of the links that are close enough.

    Attributes:
        similarity: two images are close if they are at least this similar (1 - scikit-learn's `eps`).
        min_samples: an image with so many close images, itself included, carries its group onward.
    """

    similarity: float = 0.5
    min_samples: int = 2

    def __post_init__(self) -> None:
        check_similarity("DBSCAN", self.similarity)
        if self.similarity == 1:
            raise InputError("DBSCAN(similarity=1): no two images are more than equal; choose less than 1.")
        check_at_least("DBSCAN", "min_samples", self.min_samples, 1)

    @property
    def name(self) -> str:
        """`dbscan`."""
        return "dbscan"

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """The groups; noise is discarded."""
        from sklearn.cluster import dbscan
        from sklearn.neighbors import sort_graph_by_row_values

        links = links_of(graph_for("DBSCAN", embeddings, graph), self.similarity)
        matrix = links.rows()
        matrix.data = np.maximum(1 - matrix.data, 0)
        # Links below `similarity` are gone already; a tenth of slack keeps those exactly at it, rounding or not.
        farness = _with_zero_diagonal(matrix)
        ordered = sort_graph_by_row_values(farness, copy=False, warn_when_not_sorted=False)
        _, groups = dbscan(
            ordered, eps=1.1 * (1 - self.similarity), min_samples=self.min_samples, metric="precomputed"
        )
        return labels_of(groups)


def _with_zero_diagonal(matrix: sparse.csr_array) -> sparse.csr_matrix:
    """The matrix with an explicit 0 as the first entry of every row: an image is its own neighbor."""
    n_images = matrix.shape[0]
    data = np.insert(matrix.data, matrix.indptr[:-1], 0.0)
    indices = np.insert(matrix.indices, matrix.indptr[:-1], np.arange(n_images, dtype=np.int32))
    indptr = matrix.indptr + np.arange(n_images + 1, dtype=matrix.indptr.dtype)
    return sparse.csr_matrix((data, indices, indptr), shape=matrix.shape)

"""Methods of scikit-learn: k-means and HDBSCAN on unit vectors, DBSCAN on the k-NN graph."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from cdp.runtime.memory import parse_bytes
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp_lab.baselines.baseline import Baseline, labels_of, links_of

# Of HDBSCAN, per image squared: float64 values, and a second such matrix while scikit-learn works on them.
_HDBSCAN_BYTES = 16


@dataclass(frozen=True)
class KMeans(Baseline):
    """Lloyd's k-means. The number of clusters grows with the number of images, so a tuned value transfers.

    Runs on one thread: scikit-learn adds up centers in the order its threads finish, so several would not
    give the same result twice. Initial centers are drawn by row number: reordered images may be grouped
    otherwise.
    """

    name = "kmeans"
    images_per_cluster: float = setting(10.0, "Number of images / number of clusters.", low=1)
    seed: int = setting(0, "Seed of the initial centers.")

    def n_clusters(self, n_images: int) -> int:
        """Return the number of clusters for a number of images."""
        return min(n_images, max(1, round(n_images / self.images_per_cluster)))

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:  # noqa: ARG002
        """Return the cluster of every image; the graph is not needed."""
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings(), threadpool_limits(limits=1):
            # Copies of an image leave clusters empty, which is as it should be.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return labels_of(self._model(embeddings.n_images).fit_predict(embeddings.vectors))

    def _model(self, n_images: int) -> Any:
        from sklearn import cluster

        return cluster.KMeans(self.n_clusters(n_images), n_init=1, max_iter=100, random_state=self.seed)


@dataclass(frozen=True)
class MiniBatchKMeans(KMeans):
    """k-means that moves its centers by batches of images: less exact, for large sets."""

    name = "minibatch_kmeans"
    batch: int = setting(1024, "Images per batch.", low=1)

    def _model(self, n_images: int) -> Any:
        from sklearn import cluster

        n_clusters = self.n_clusters(n_images)
        init_size = min(n_images, max(3 * n_clusters, 3 * self.batch))
        return cluster.MiniBatchKMeans(
            n_clusters, batch_size=self.batch, init_size=init_size, n_init=1, random_state=self.seed
        )


@dataclass(frozen=True)
class DBSCAN(Baseline):
    """Density-based clustering: images with enough close neighbors carry a group onward.

    Only neighbors in the k-NN graph are seen, so memory grows with the links. With `min_samples=2` groups are
    the connected components of the links that are close enough.
    """

    name = "dbscan"
    similarity: float = setting(
        0.5, "The least similarity of close images, 1 - eps.", meaning="a cosine", low=-1, below=1
    )
    min_samples: int = setting(2, "Minimum number of close images, itself included, of a core image.", low=1)

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Return the groups; noise is discarded."""
        from sklearn.cluster import dbscan
        from sklearn.neighbors import sort_graph_by_row_values

        matrix = links_of(self.graph_of(embeddings, graph), self.similarity).rows()
        matrix.data = np.maximum(1 - matrix.data, 0)
        # Links below `similarity` are gone already; a tenth of slack keeps those exactly at it, rounding or
        # not.
        sorted_rows = sort_graph_by_row_values(
            _with_zero_diagonal(matrix), copy=False, warn_when_not_sorted=False
        )
        _, groups = dbscan(
            sorted_rows, eps=1.1 * (1 - self.similarity), min_samples=self.min_samples, metric="precomputed"
        )
        return labels_of(groups)


def _with_zero_diagonal(matrix: sparse.csr_array) -> sparse.csr_matrix:
    """Return the matrix with an explicit 0 as the first entry of every row: an image is its own neighbor."""
    n_images = matrix.shape[0]
    data = np.insert(matrix.data, matrix.indptr[:-1], 0.0)
    indices = np.insert(matrix.indices, matrix.indptr[:-1], np.arange(n_images, dtype=np.int32))
    indptr = matrix.indptr + np.arange(n_images + 1, dtype=matrix.indptr.dtype)
    return sparse.csr_matrix((data, indices, indptr), shape=matrix.shape)


@dataclass(frozen=True)
class HDBSCAN(Baseline):
    """Density-based clustering with a density per group.

    On unit vectors, where Euclidean order is cosine order. All pairs are looked at: at once while they fit
    the budget, else a row at a time, which is slower; the groups are the same, except for ties within
    rounding.
    """

    name = "hdbscan"
    min_cluster_size: int = setting(2, "Minimum number of images of a group.", low=2)
    min_samples: int = setting(0, "How many close images make a region dense; 0 = min_cluster_size.", low=0)
    memory_budget: int | str = "1GB"

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_bytes(self.memory_budget)

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:  # noqa: ARG002
        """Return the groups; noise is discarded. The graph is not needed."""
        from sklearn.cluster import HDBSCAN as Clustering  # noqa: N811 - the class here has the same name

        n_images = embeddings.n_images
        min_samples = self.min_samples or self.min_cluster_size
        if n_images < max(min_samples, self.min_cluster_size):
            return labels_of(np.full(n_images, -1))
        all_at_once = _HDBSCAN_BYTES * n_images**2 <= parse_bytes(self.memory_budget)
        model = Clustering(
            min_cluster_size=self.min_cluster_size,
            min_samples=min_samples,
            algorithm="brute" if all_at_once else "kd_tree",
            n_jobs=1,
            copy=True,
        )
        return labels_of(model.fit_predict(embeddings.vectors))

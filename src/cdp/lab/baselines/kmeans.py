"""k-means and mini-batch k-means (scikit-learn) on unit vectors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from cdp.lab.baselines.baseline import Baseline, labels_of
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels


@dataclass(frozen=True)
class KMeans(Baseline):
    """Lloyd's k-means. The number of clusters grows with the number of images, so a tuned value transfers.

    Runs on one thread: scikit-learn adds up centers in the order its threads finish, so several would not give
    the same result twice. Initial centers are drawn by row number: reordered images may be grouped otherwise.
    """

    name = "kmeans"
    images_per_cluster: float = setting(10.0, "Number of images / number of clusters.", low=1)
    seed: int = setting(0, "Seed of the initial centers.")

    def n_clusters(self, n_images: int) -> int:
        """Number of clusters for so many images."""
        return min(n_images, max(1, round(n_images / self.images_per_cluster)))

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:  # noqa: ARG002
        """The cluster of every image; the graph is not needed."""
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

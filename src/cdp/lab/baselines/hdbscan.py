"""HDBSCAN (scikit-learn's own) on unit vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.lab.baselines.baseline import Baseline, labels_of
from cdp.memory import parse_bytes
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels

# Per image squared: float64 values, and a second such matrix while scikit-learn works on them.
_BYTES = 16


@dataclass(frozen=True)
class HDBSCAN(Baseline):
    """Density-based clustering with a density per group.

    On unit vectors, where Euclidean order is cosine order. All pairs are looked at: at once while they fit the
    budget, else a row at a time, which is slower; the groups are the same, but for ties within rounding.
    """

    name = "hdbscan"
    min_cluster_size: int = setting(2, "A group has at least so many images.", low=2)
    min_samples: int = setting(0, "How many close images make a region dense; 0 = min_cluster_size.", low=0)
    memory_budget: int | str = "1GB"

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_bytes(self.memory_budget)

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:  # noqa: ARG002
        """The groups; noise is discarded. The graph is not needed."""
        from sklearn.cluster import HDBSCAN as Clustering  # noqa: N811 - the class here has the same name

        n_images = embeddings.n_images
        min_samples = self.min_samples or self.min_cluster_size
        if n_images < max(min_samples, self.min_cluster_size):
            return labels_of(np.full(n_images, -1))
        all_at_once = _BYTES * n_images**2 <= parse_bytes(self.memory_budget)
        model = Clustering(
            min_cluster_size=self.min_cluster_size,
            min_samples=min_samples,
            algorithm="brute" if all_at_once else "kd_tree",
            n_jobs=1,
            copy=True,
        )
        return labels_of(model.fit_predict(embeddings.vectors))

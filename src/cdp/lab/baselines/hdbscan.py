"""HDBSCAN (scikit-learn's own) on unit vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.lab.baselines.baseline import Baseline, check_at_least, labels_of
from cdp.memory import parse_bytes
from cdp.types import Embeddings, KnnGraph, Labels

# Per image squared: float64 values, and a second such matrix while scikit-learn works on them.
_BYTES = 16


@dataclass(frozen=True)
class HDBSCAN(Baseline):
    """Density-based clustering with a density per group.

    On unit vectors, where Euclidean order is cosine order. All pairs are looked at: at once while they fit the
    budget, else a row at a time, which is slower; the groups are the same, but for ties within rounding.

    Attributes:
        min_cluster_size: a group has at least so many images.
        min_samples: how many close images make a place dense; None = `min_cluster_size`.
        memory_budget: bytes for the pairs, as a number or like "2GB".
    """

    min_cluster_size: int = 2
    min_samples: int | None = None
    memory_budget: int | str = "1GB"

    def __post_init__(self) -> None:
        check_at_least("HDBSCAN", "min_cluster_size", self.min_cluster_size, 2)
        if self.min_samples is not None:
            check_at_least("HDBSCAN", "min_samples", self.min_samples, 1)
        parse_bytes(self.memory_budget)

    @property
    def name(self) -> str:
        """`hdbscan`."""
        return "hdbscan"

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:  # noqa: ARG002
        """The groups; noise is discarded. The graph is not needed."""
        from sklearn.cluster import HDBSCAN as Clustering  # noqa: N811 - the class here has the same name

        n_images = embeddings.n_images
        least = self.min_cluster_size if self.min_samples is None else self.min_samples
        if n_images < max(2, least, self.min_cluster_size):
            return labels_of(np.full(n_images, -1))
        all_at_once = _BYTES * n_images**2 <= parse_bytes(self.memory_budget)
        model = Clustering(
            min_cluster_size=self.min_cluster_size,
            min_samples=least,
            algorithm="brute" if all_at_once else "kd_tree",
            n_jobs=1,
            copy=True,
        )
        return labels_of(model.fit_predict(embeddings.vectors))

"""Infomap (infomap) on the k-NN graph; it is copyleft and used only if it is installed and asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.errors import MissingExtraError, install_command
from cdp.lab.baselines.baseline import Baseline, check_similarity, graph_for, labels_of
from cdp.lab.baselines.links import links_of
from cdp.types import Embeddings, KnnGraph, Labels


@dataclass(frozen=True)
class Infomap(Baseline):
    """Community detection by the map equation, two levels, undirected, links weighted by similarity.

    Attributes:
        similarity: only links at least this similar are seen.
        seed: of everything random.
    """

    similarity: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_similarity("Infomap", self.similarity)

    @property
    def name(self) -> str:
        """`infomap`."""
        return "infomap"

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """The modules; images without a link, or with links of no or negative similarity only, are discarded."""
        try:
            import infomap
        except ImportError:
            raise MissingExtraError(
                f"Infomap needs infomap; install it with {install_command('infomap')}."
            ) from None
        links = links_of(graph_for("Infomap", embeddings, graph), self.similarity)
        groups = np.full(links.n_images, -1)
        positive = links.similarity > 0
        if not positive.any():
            return labels_of(groups)
        # Infomap's seed starts at 1.
        network = infomap.Infomap(silent=True, two_level=True, num_trials=1, seed=self.seed + 1)
        ends = np.column_stack([links.first, links.second])[positive].tolist()
        network.add_links(
            (first, second, weight)
            for (first, second), weight in zip(ends, links.similarity[positive].tolist(), strict=True)
        )
        for image, module in network.run().modules().items():
            groups[image] = module
        return labels_of(groups)

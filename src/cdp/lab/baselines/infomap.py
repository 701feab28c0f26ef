"""Infomap (infomap) on the k-NN graph; it is copyleft and used only if it is installed and asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.errors import MissingExtraError, install_command
from cdp.lab.baselines.baseline import Baseline, cosine_setting, labels_of
from cdp.lab.baselines.links import links_of
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels


@dataclass(frozen=True)
class Infomap(Baseline):
    """Community detection by the map equation, two levels, undirected, links weighted by similarity."""

    name = "infomap"
    similarity: float = cosine_setting("Only links at least this similar are seen.")
    seed: int = setting(0, "Seed of everything random.")

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """The modules; images without a link, or with links of no or negative similarity only, are discarded."""
        try:
            import infomap
        except ImportError:
            raise MissingExtraError(
                f"Infomap needs infomap; install it with {install_command('infomap')}."
            ) from None
        links = links_of(self.graph_of(embeddings, graph), self.similarity)
        groups = np.full(links.n_images, -1)
        positive = links.similarity > 0
        if not positive.any():
            return labels_of(groups)
        # Infomap's seed starts at 1.
        network = infomap.Infomap(silent=True, two_level=True, num_trials=1, seed=self.seed + 1)
        columns = (links.first, links.second, links.similarity)
        network.add_links(zip(*(column[positive].tolist() for column in columns), strict=True))
        for image, module in network.run().modules().items():
            groups[image] = module
        return labels_of(groups)

"""Leiden (leidenalg, igraph) on the k-NN graph; both are copyleft and used only if they are installed and asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.errors import MissingExtraError, install_command
from cdp.lab.baselines.baseline import Baseline, cosine_setting, labels_of
from cdp.lab.baselines.links import links_of
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels


@dataclass(frozen=True)
class Leiden(Baseline):
    """Community detection with the constant Potts model.

    Not modularity: its resolution depends on the size of the graph, so a tuned value would not transfer. Here
    two groups are not merged if the mean weight between them (no link = 0) is below the resolution. An image has k
    links however large its identity is, so a resolution alone favors groups of one size; weak links are cut first.
    """

    name = "leiden"
    similarity: float = cosine_setting("Only links at least this similar are seen, and only positive ones.")
    resolution: float = setting(0.02, "The higher, the smaller the groups.", low=0)
    rounds: int = setting(2, "Iterations; -1 = until nothing improves.", low=-1)
    seed: int = setting(0, "Seed of everything random.")

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """The communities."""
        try:
            import igraph
            import leidenalg
        except ImportError:
            raise MissingExtraError(
                f"Leiden needs leidenalg and igraph; install them with {install_command('leiden')}."
            ) from None
        links = links_of(self.graph_of(embeddings, graph), max(0.0, self.similarity))
        network = igraph.Graph(links.n_images, np.column_stack([links.first, links.second]))
        partition = leidenalg.find_partition(
            network,
            leidenalg.CPMVertexPartition,
            weights=links.similarity.astype(np.float64).tolist(),
            resolution_parameter=self.resolution,
            n_iterations=self.rounds,
            seed=self.seed,
        )
        return labels_of(np.asarray(partition.membership))

"""FC-ES, unsupervised face clustering (Liu, "Face Clustering via Early Stopping and Edge Recall", 2024).

Links have probabilities that shared neighbors give; an image is linked to its nearest neighbors up to the
first that is improbable; the map equation groups what is linked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.runtime.kernels import kernel
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray, DoubleArray
from cdp_lab.baselines.baseline import Baseline, labels_of
from cdp_lab.baselines.communities import map_equation


@dataclass(frozen=True)
class EarlyStopping(Baseline):
    """FC-ES: links of shared neighbors, early stopping, and the map equation.

    The whole k of the given graph is used; the paper has 80 neighbors for large sets.
    """

    name = "fc_es"
    probability: float = setting(0.22, "Links end before the first neighbor below it.", low=0, high=1)
    temperature: float = setting(0.5, "Scale of squared distances, tau.", low=0.01)
    seed: int = setting(0, "Seed of everything random.")

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Return the modules; images that nobody is linked with are discarded."""
        graph = self.graph_of(embeddings, graph)
        probability = edge_probabilities(graph, self.temperature)
        linked = np.logical_and.accumulate(probability >= max(self.probability, 1e-12), axis=1)
        row, column = np.nonzero(linked)
        others = graph.neighbors[row, column]
        return labels_of(
            map_equation(row, others, probability[row, column], graph.n_images, self.seed, directed=True)
        )


def edge_probabilities(graph: KnnGraph, temperature: float) -> DoubleArray:
    """Probability of every image and each of its neighbors, float64 (n, k); 0 where there is no neighbor.

    With N_i the image i and its k nearest neighbors, and cosine a_ij:
        p_ij = exp(-(2 - 2 a_ij) / tau) / sum over l in N_i of exp(-(2 - 2 a_il) / tau)
        P_ij = sum over l in N_i and N_j of (p_il + p_jl) / 2
    """
    # An image is the first of its own list.
    own = np.arange(graph.n_images, dtype=np.int32)[:, None]
    members = np.concatenate([own, graph.neighbors], axis=1)
    cosine = np.concatenate([np.ones(own.shape), graph.similarity.astype(np.float64)], axis=1)
    share = np.where(members >= 0, np.exp(-(2 - 2 * cosine) / temperature), 0.0)
    share /= share.sum(axis=1, keepdims=True)
    return _shared_probabilities(members, share)


@kernel
def _shared_probabilities(members: AnyArray, share: AnyArray) -> AnyArray:
    n_images, n_members = members.shape
    found = np.zeros((n_images, n_members - 1))
    place = np.full(n_images, -1)
    for i in range(n_images):
        for at in range(n_members):
            if members[i, at] >= 0:
                place[members[i, at]] = at
        for rank in range(1, n_members):
            j = members[i, rank]
            if j < 0:
                break
            for at in range(n_members):
                image = members[j, at]
                if image >= 0 and place[image] >= 0:
                    found[i, rank - 1] += (share[i, place[image]] + share[j, at]) / 2
        for at in range(n_members):
            if members[i, at] >= 0:
                place[members[i, at]] = -1
    return found

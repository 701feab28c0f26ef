"""`SimilarityScorer`: candidates of the fused graph, scored by z-score, without labels.

Not in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cdp.knn.model_graphs import Graphs, ModelGraphs, find_graphs
from cdp.runtime.runtime import Runtime
from cdp.scoring.fused_graph import search_fused
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.scored_pairs import Insertion, ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.zscore import ZScoredPairs, measure_null, z_score_pairs
from cdp.types import KnnGraph, Views
from cdp.types.arrays import IntArray, LongArray


@dataclass(frozen=True, eq=False)
class SimilarityScorer:
    """Similarity in all models as a z-score; it becomes a probability once the threshold is known.

    Attributes:
        settings: of section 3.1.
        seed: of random pairs and approximate searches.
        part: precedes names of steps in progress and timings.
    """

    settings: ConsensusSettings
    seed: int = 0
    part: str = ""
    needs_labels = False

    def score(
        self, views: Views, identities: LongArray, runtime: Runtime, graphs: Graphs | None = None
    ) -> ScoredPairs:
        """Compute the z-scores of the edges of the fused graph; identities are passed on, not used."""
        longer = replace(self.settings, k=min(2 * self.settings.k, views.n_images - 1))
        lists = () if graphs is None else graphs.values() if isinstance(graphs, Mapping) else graphs
        wanted = longer if all(graph.k >= longer.k for graph in lists) else self.settings
        found = find_graphs(views, wanted, graphs, seed=self.seed, runtime=runtime, part=self.part)
        with runtime.step(f"{self.part}all models"):
            fused = search_fused(views, list(found), longer.k, runtime=runtime)
        scored = self.score_edges(views, fused, runtime)
        return ScoredPairs(scored, found.graphs, fused, self.settings.k, identities)

    def score_edges(self, views: Views, fused: KnnGraph, runtime: Runtime) -> ZScoredPairs:
        """Compute the z-scores of the edges of a fused graph."""
        with runtime.step(f"{self.part}all models"):
            pairs = candidate_pairs(fused.nearest(self.settings.k), runtime)
            null = measure_null(views, mutual_neighbors(fused), self.seed)
            return z_score_pairs(views, pairs, null, runtime)

    def update(
        self,
        before: ScoredPairs,
        views: Views,
        identities: LongArray,
        graphs: ModelGraphs,
        inserted: Insertion,  # noqa: ARG002
        runtime: Runtime,
    ) -> ScoredPairs:
        """Recompute all z-scores, which is as cheap as finding out which of them changed."""
        assert isinstance(before.scored, ZScoredPairs)
        found = self.score(views, identities, runtime, graphs.graphs)
        return found.with_softness(before.scored.softness)


def mutual_neighbors(graph: KnnGraph) -> IntArray:
    """Pairs of images that are each other's nearest neighbor, int32 (m, 2)."""
    nearest = graph.neighbors[:, 0]
    rows = np.flatnonzero(nearest >= 0).astype(np.int32)
    rows = rows[(nearest[nearest[rows]] == rows) & (rows < nearest[rows])]
    return np.stack([rows, nearest[rows]], axis=1)

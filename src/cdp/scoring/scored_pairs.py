"""`PairScorer`, the one protocol of the four ways to score pairs, and `ScoredPairs`, what they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from cdp.knn.model_graphs import Graphs, ModelGraphs
from cdp.runtime.runtime import Runtime
from cdp.scoring.trees import TreeScores
from cdp.scoring.zscore import ZScoredPairs
from cdp.types import ConsensusGraph, KnnGraph, Pairs, Softness, Views
from cdp.types.arrays import BoolArray, IntArray, LongArray


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Candidate pairs of all images as a scorer scored them, and what scoring more pairs will need.

    Attributes:
        scored: the pairs that may count when groups are made, with their doubts; z-scores where nobody is
            labeled.
        graphs: by model, base first; for trees and similarity the lists have 2k neighbors.
        fused: graph whose edges are the candidates: of all models fused, or of the base (vote, mediator).
        k: number of neighbors in `fused` that are candidates.
        identities: int64 (n,), labeled identities that were used, -1 elsewhere.
        candidates: all candidate pairs; trees only.
        tree_scores: the trees and their scores of all candidates.
        same_identity_recall: by model, recall of an approximate graph among neighbors with the same identity.
        notes: sentences for the user.
    """

    scored: ConsensusGraph | ZScoredPairs
    graphs: dict[str, KnnGraph]
    fused: KnnGraph
    k: int
    identities: LongArray
    candidates: Pairs | None = None
    tree_scores: TreeScores | None = None
    same_identity_recall: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_softness(self, softness: Softness | None) -> ScoredPairs:
        """Set how fast the probability falls with the z-score."""
        assert isinstance(self.scored, ZScoredPairs)
        return replace(self, scored=replace(self.scored, softness=softness))

    @property
    def candidate_graph(self) -> KnnGraph:
        """The graph whose edges are the candidate pairs."""
        return self.fused.nearest(self.k)


@dataclass(frozen=True, eq=False)
class Insertion:
    """New images among those that were scored before.

    Attributes:
        start, count: rows of the new images, start to start + count; rows from `start` on moved up.
        changed: bool (n,), images whose list changed in some model.
        fused: the previous fused graph, with empty rows for the new images.
    """

    start: int
    count: int
    changed: BoolArray
    fused: KnnGraph

    def moved(self, ids: IntArray) -> IntArray:
        """Rows of images before the insertion as rows after it."""
        return ids + np.where(ids >= self.start, np.int32(self.count), np.int32(0))


class PairScorer(Protocol):
    """Scores candidate pairs: `VoteScorer`, `MediatorScorer`, `TreeScorer` or `SimilarityScorer`."""

    @property
    def needs_labels(self) -> bool:
        """Whether some images must be labeled."""

    def score(
        self, views: Views, identities: LongArray, runtime: Runtime, graphs: Graphs | None = None
    ) -> ScoredPairs:
        """Score the candidate pairs of all images.

        Args:
            views: of all images, labeled ones among them.
            identities: int64 (n,), -1 where unlabeled.
            runtime: how it runs.
            graphs: k-NN graphs that exist already.
        """

    def update(
        self,
        before: ScoredPairs,
        views: Views,
        identities: LongArray,
        graphs: ModelGraphs,
        inserted: Insertion,
        runtime: Runtime,
    ) -> ScoredPairs:
        """Score all pairs after images were inserted; pairs whose features did not change keep their scores.

        Args:
            before: the previous scores.
            views: of all images, new ones among them.
            identities: int64 (n,), of all images.
            graphs: of all images.
            inserted: where the new images are, and what changed.
            runtime: how it runs.
        """

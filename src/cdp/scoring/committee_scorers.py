"""Scorers of section 3.1.iii: committee opinions, weighed by the mediator or counted as votes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.knn.model_graphs import Graphs, ModelGraphs, find_graphs
from cdp.runtime.runtime import Runtime
from cdp.scoring.mediator import Mediator, is_more_probable
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import FeatureSource, extract_features, prepare_features
from cdp.scoring.scored_pairs import Insertion, ScoredPairs
from cdp.scoring.settings import ConsensusSettings, kept_above
from cdp.scoring.vote import vote
from cdp.types import ConsensusGraph, Pairs, Views
from cdp.types.arrays import BoolArray, FloatArray, IntArray, LongArray


@dataclass(frozen=True, eq=False)
class _CommitteeScorer:
    """Candidates are the edges of the base model's graph; the paper's opinions are collected about each.

    Attributes:
        settings: of section 3.1.
        threshold: the lowest one that will be tried.
        seed: of approximate searches.
    """

    settings: ConsensusSettings
    threshold: float
    seed: int = 0

    @property
    def mediator(self) -> Mediator | None:
        """The trained mediator; None for the vote."""
        raise NotImplementedError

    def score(
        self, views: Views, identities: LongArray, runtime: Runtime, graphs: Graphs | None = None
    ) -> ScoredPairs:
        """Collect opinions about every edge of the base graph, and score them."""
        found = find_graphs(
            views, self.settings, graphs, seed=self.seed, runtime=runtime, identities=identities
        )
        with runtime.step("consensus"):
            scored = self._score(candidate_pairs(found.base, runtime), views, found, runtime)
        return ScoredPairs(
            scored,
            found.graphs,
            found.base,
            self.settings.k,
            identities,
            same_identity_recall=found.same_identity_recall,
        )

    def update(
        self,
        before: ScoredPairs,
        views: Views,
        identities: LongArray,
        graphs: ModelGraphs,
        inserted: Insertion,
        runtime: Runtime,
    ) -> ScoredPairs:
        """Score pairs of images whose lists changed; the others keep their scores."""
        assert isinstance(before.scored, ConsensusGraph)
        pairs = candidate_pairs(graphs.base, runtime)
        touched = inserted.changed[pairs.ids].any(axis=1)
        with runtime.step("consensus"):
            fresh = self._score(Pairs(pairs.ids[touched], pairs.n_images), views, graphs, runtime)
        ids = inserted.moved(before.scored.ids)
        kept = ~inserted.changed[ids].any(axis=1)
        all_ids = np.concatenate([ids[kept], fresh.ids])
        doubt = np.concatenate([before.scored.doubt[kept], fresh.doubt])
        order = np.lexsort((all_ids[:, 1], all_ids[:, 0]))
        scored = ConsensusGraph(all_ids[order], doubt[order], views.n_images)
        return ScoredPairs(scored, graphs.graphs, graphs.base, before.k, identities)

    def _score(self, pairs: Pairs, views: Views, graphs: ModelGraphs, runtime: Runtime) -> ConsensusGraph:
        inputs = self.settings.inputs if self.mediator is None else self.mediator.inputs
        source = prepare_features(views, list(graphs), inputs)
        return score_pairs(pairs, source, self.mediator, self.settings, self.threshold, runtime)


@dataclass(frozen=True, eq=False)
class VoteScorer(_CommitteeScorer):
    """The paper's baseline: pairs with enough committee votes, scored by the base similarity."""

    needs_labels = False

    @property
    def mediator(self) -> None:
        """None: votes are counted."""
        return


@dataclass(frozen=True, eq=False)
class MediatorScorer(_CommitteeScorer):
    """The paper's mediator: an MLP from opinions to the probability that two images are one identity."""

    trained: Mediator | None = None
    needs_labels = True

    @property
    def mediator(self) -> Mediator:
        """The trained mediator."""
        assert self.trained is not None
        return self.trained


def score_pairs(
    pairs: Pairs,
    source: FeatureSource,
    mediator: Mediator | None,
    settings: ConsensusSettings,
    threshold: float,
    runtime: Runtime | None = None,
) -> ConsensusGraph:
    """Score candidate pairs, block by block, and keep those that groups are made from.

    With grouping "components" these are the accepted ones; with "average" all that are not negligible.

    Args:
        pairs: candidates.
        source: what opinions are computed from.
        mediator: None for the vote.
        settings: how groups will be made.
        threshold: the lowest one that will be tried.
        runtime: how it runs.
    """
    runtime = runtime or Runtime()
    rows = min(PAIRS_PER_BLOCK, runtime.rows_per_block(source.bytes_per_pair))
    ids, doubts = runtime.empty((len(pairs), 2), np.int32), runtime.empty(len(pairs), np.float32)
    start, n_kept = 0, 0
    # Without the images' paths, which would be sent to every worker for nothing.
    bare = replace(source, views=Views(source.views.base, source.views.committee))
    blocks = (pairs.ids[first:last] for first, last in spans(len(pairs), rows))
    shared = (bare, mediator, settings, threshold)
    for part, doubt in runtime.map(_score_block, shared, blocks, block_bytes=rows * source.bytes_per_pair):
        stop, end = start + len(part), n_kept + len(doubt)
        ids[n_kept:end], doubts[n_kept:end] = pairs.ids[start:stop][part], doubt
        start, n_kept = stop, end
        runtime.progress("pairs", stop, len(pairs))
    return ConsensusGraph(runtime.copy(ids[:n_kept]), runtime.copy(doubts[:n_kept]), pairs.n_images)


def _score_block(
    shared: tuple[FeatureSource, Mediator | None, ConsensusSettings, float], ids: IntArray
) -> tuple[BoolArray, FloatArray]:
    """Return which of some pairs are kept, and the doubt about those."""
    source, mediator, settings, threshold = shared
    opinions = extract_features(source, ids)
    if mediator is None:
        least = threshold if settings.threshold_kind == "similarity" else -1.0
        accepted, doubt = vote(opinions, settings.min_votes, least)
    else:
        doubt = mediator.doubt(opinions.matrix(mediator.inputs))
        accepted = is_more_probable(doubt, kept_above(settings, threshold))
    return accepted, doubt[accepted]

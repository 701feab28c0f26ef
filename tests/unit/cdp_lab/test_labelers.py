"""Fixed pair recall: the threshold from its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.refusals import refuses

from cdp.grouping.group import pairs_at
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph, Pairs
from cdp_lab.labelers import threshold_at_recall


def scored_pairs(seed: int, n_images: int, accepted: float) -> tuple[ConsensusGraph, Pairs, np.ndarray]:
    generator = np.random.default_rng(seed)
    ids = np.stack(np.triu_indices(n_images, 1), axis=1).astype(np.int32)
    ids = ids[generator.random(len(ids)) < 0.5]
    kept = generator.random(len(ids)) < accepted
    doubt = generator.choice(np.linspace(0, 1.5, 40), len(ids)).astype(np.float32)
    identities = generator.integers(-1, 4, n_images)
    return ConsensusGraph(ids[kept], doubt[kept], n_images), Pairs(ids, n_images), identities


@given(st.integers(0, 2**32 - 1), st.integers(6, 20), st.floats(0, 1), st.floats(0, 1))
@example(2429, 6, 0.5, 1.0)  # the only pair has no doubt at all
@settings(max_examples=100, deadline=None)
def test_no_threshold_comes_closer(seed: int, n_images: int, accepted: float, wanted: float) -> None:
    graph, candidates, identities = scored_pairs(seed, n_images, accepted)

    def n_true(ids: np.ndarray) -> int:
        return sum(identities[a] == identities[b] >= 0 for a, b in ids)

    total = n_true(candidates.ids)
    if not total:
        return
    threshold = threshold_at_recall(graph, candidates, identities, wanted)
    got = n_true(pairs_at(graph, ConsensusSettings.of("paper", mediator="vote"), threshold).ids)
    target = min(round(wanted * total), n_true(graph.ids))
    # All cuts that doubts allow; pairs of one doubt go together.
    reachable = [n_true(graph.ids[graph.doubt < cut]) for cut in [*np.unique(graph.doubt), np.inf]]
    tied = [count for count in reachable if count >= target]
    assert got in reachable
    assert got <= min(tied)
    if target in reachable:
        assert got == target


def test_without_truth_it_is_refused() -> None:
    graph, candidates, identities = scored_pairs(0, 10, 0.5)
    with refuses("pair-recall-without-truth"):
        threshold_at_recall(graph, candidates, np.full_like(identities, -1), 0.3)

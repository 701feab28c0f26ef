"""Thresholds that are given: the lowest one accepts all pairs, and a z-score is none where people are labeled."""

import pytest
from tests.refusals import refuses

from cdp.knn import model_graphs
from cdp.labeling.pipeline import label
from cdp.scoring.settings import ConsensusSettings


def test_with_components_the_threshold_0_accepts_what_every_other_one_does(small_views):
    known = small_views.identities < 25
    labeled, others = small_views.take(known), small_views.take(~known)
    accepted = [
        label(others, ConsensusSettings.of("paper", k=8, threshold=threshold), labeled=[labeled]).accepted
        for threshold in (0.0, 0.5)
    ]
    assert len(accepted[0]) > len(accepted[1])
    everywhere, some = (set(map(tuple, one.ids.tolist())) for one in accepted)
    assert some < everywhere
    assert accepted[0].doubt.max() > 0.5


def test_a_z_score_is_refused_before_anything_is_searched_where_people_are_labeled(small_views, monkeypatch):
    monkeypatch.setattr(model_graphs, "each_knn_graph", lambda *_, **__: pytest.fail("searched"))
    known = small_views.identities < 25
    labeled, others = small_views.take(known), small_views.take(~known)
    with refuses("threshold-out-of-range", key="threshold", value=5.0):
        label(others, ConsensusSettings.of(k=8, threshold=5.0), labeled=[labeled])

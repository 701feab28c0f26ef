"""Figures of a labeling, and the folder it is written to."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy import sparse

from cdp import Labels, Mediator, Views, measure_labels
from cdp.knn import autotune
from cdp.labeling.figures import measure_labeling
from cdp.labeling.output import write_labeling
from cdp.labeling.pipeline import label
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ALL_INPUTS
from cdp.types.run_record import Results

SETTINGS = ConsensusSettings.of(k=10, mediator="mlp", soft_depth=1)


@pytest.fixture(scope="module")
def labeled(large_split):
    """A labeling with validation rows among the unlabeled images, and the views."""
    half = large_split.labeled.identities % 2 == 0
    views = Views.concatenate([large_split.unlabeled, large_split.labeled.take(~half)])
    mask = np.arange(views.n_images) >= large_split.unlabeled.n_images
    return label(views, SETTINGS, labeled=[large_split.labeled.take(half)], validation=mask), views


def test_images_that_the_bar_was_chosen_on_do_not_count(labeled):
    labeling, views = labeled
    results = measure_labeling(labeling, views)
    counted = np.where(labeling.validation, -1, views.identities)
    expected = measure_labels(labeling.labels, counted)
    true = results.labels.true
    assert true.images == (~labeling.validation).sum() == expected.images
    assert true.discards_kept.pairwise.f == expected.discards_kept.pairwise.f
    inside = (~labeling.validation)[labeling.accepted.ids].all(axis=1)
    assert true.pairs.accepted == inside.sum()
    assert results.labels.identities_found == labeling.labels.n_identities
    assert sum(results.labels.statuses.values()) == views.n_images


def test_what_needs_no_truth_is_there_without_it(labeled):
    labeling, views = labeled
    results = measure_labeling(labeling, Views(views.base, views.committee), names=["a", "b", "c"])
    assert results.labels.true is None
    assert results.labels.coverage == pytest.approx(labeling.labels.coverage)
    assert (results.labels.threshold_kind, results.labels.threshold) == (
        "mean probability",
        labeling.tuning.chosen,
    )
    assert [member.name for member in results.committee.members] == ["a", "b", "c"]
    assert [member.edge_precision for member in results.committee.members] == [None] * 3
    assert results.mediator.importance == []
    np.testing.assert_allclose(np.diag(results.committee.agreement.matrix), 1)


def test_members_and_inputs_are_measured_where_identities_are_known(labeled):
    labeling, views = labeled
    results = measure_labeling(labeling, views)
    assert [member.role for member in results.committee.members] == ["base", "member", "member"]
    assert all(0.3 < member.edge_precision < 1 for member in results.committee.members)
    assert {one.block for one in results.mediator.importance} == set(ALL_INPUTS)
    assert results.mediator.training_pairs["pairs"] > 0


def test_a_vote_has_no_mediator_to_measure(large_split):
    labeling = label(large_split.unlabeled, replace(SETTINGS, mediator="vote", threshold=0.3))
    assert measure_labeling(labeling, large_split.unlabeled).mediator is None


def test_a_folder_holds_all_that_belongs_to_labels(labeled, tmp_path):
    labeling, views = labeled
    results = measure_labeling(labeling, views)
    paths = tuple(f"{row}.jpg" for row in range(views.n_images))
    write_labeling(tmp_path / "labels", labeling, results, paths=paths, made_from={"x": "y"})
    folder = tmp_path / "labels"
    np.testing.assert_array_equal(Labels.load(folder).labels, labeling.labels.labels)
    assert Mediator.load(folder / "mediator").training == labeling.mediator.training
    soft = sparse.load_npz(folder / "soft_labels.npz")
    np.testing.assert_allclose(soft.toarray(), labeling.soft_labels.toarray())
    assert msgspec.json.decode((folder / "metrics.json").read_bytes(), type=Results) == results
    card = json.loads((folder / "card.json").read_text())
    assert (card["settings"]["threshold"], card["settings"]["k"]) == (None, labeling.settings.k)
    assert set(card["settings"]["graphs"]) == set(views.names)
    assert card["made_from"] == {"x": "y"}
    lines = (folder / "labels.csv").read_text().splitlines()
    assert lines[0] == '"row","path","photo","identity","name","status","confidence"'
    assert len(lines) == views.n_images + 1


def test_what_approximate_graphs_found_is_said_overall_and_for_the_same_identity(
    large_split, monkeypatch, tmp_path
):
    monkeypatch.setattr(autotune, "_exact_cost", lambda embeddings: np.inf)
    monkeypatch.setattr(autotune, "LAYOUTS", ((20, (2, 4, 8, 12), False),))
    settings = replace(SETTINGS, method="approximate", recall=0.8, mediator="vote", soft_depth=0)
    labeling = label(large_split.unlabeled, settings, labeled=[large_split.labeled])
    assert list(labeling.same_identity_recall) == list(large_split.unlabeled.names)
    results = measure_labeling(labeling, large_split.unlabeled)
    for member, graph in zip(results.committee.members, labeling.graphs.values(), strict=True):
        assert member.graph_recall == graph.recall
        # Images of one identity are nearer than others, and what is nearest is found first.
        assert max(0.8, graph.recall) < member.same_identity_recall <= 1
    write_labeling(tmp_path, labeling, results)
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["settings"]["graphs"]["base"] == {
        "method": "approximate",
        "recall": labeling.graphs["base"].recall,
        "same_identity_recall": labeling.same_identity_recall["base"],
    }

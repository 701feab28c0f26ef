"""Choosing the threshold: on which images, by what, and what is said where it cannot be chosen."""

from dataclasses import replace

import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp import Views, knn_graph
from cdp.grouping.group import group, pairs_at
from cdp.labeling.fitting import Fitted, LabeledImages, fit
from cdp.labeling.pipeline import label
from cdp.labeling.tuning import MIN_IDENTITIES, THRESHOLDS, best_of, count_shared, hold_out, tune
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph
from cdp.types.run_record import TuningPoint

BEST = ConsensusSettings.of(k=10, mediator="mlp")


def test_whole_identities_are_held_out():
    identities = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 4))
    identities[:30] = -1
    mask = hold_out(identities, seed=0)
    assert not set(identities[mask]) & set(identities[~mask])
    assert not mask[identities < 0].any()
    assert len(np.unique(identities[mask])) == 30
    assert np.any(hold_out(identities, seed=1) != mask)


def test_too_few_identities_are_not_held_out():
    assert hold_out(np.repeat(np.arange(MIN_IDENTITIES), 5), seed=0) is None
    assert hold_out(np.arange(500), seed=0) is None  # one image each: there is nothing to be found
    assert count_shared(np.array([0, 0, 1, 2, 2, 2, -1, -1])) == 2


def point(threshold, precision, recall):
    return TuningPoint(threshold=threshold, f=0.0, precision=precision, recall=recall, coverage=1.0)


def test_the_weight_of_recall_decides():
    curve = [point(0.1, 0.5, 1.0), point(0.5, 0.8, 0.8), point(0.9, 1.0, 0.5)]
    assert [best_of(curve, 0.3, weight).chosen for weight in (0.2, 1, 5)] == [0.9, 0.5, 0.1]
    assert best_of([point(0.1, None, None), point(0.5, 0.1, 0.1)], 0.3).chosen == 0.5


def test_of_bars_that_are_as_good_the_one_nearest_to_what_was_set_is_taken():
    # A curve as LFW's: what a high threshold does to the largest people does not show on a few hundred known ones.
    curve = [
        point(0.1, 0.984, 0.991),
        point(0.25, 0.995, 0.991),
        point(0.3, 0.9953, 0.991),
        point(0.5, 0.9965, 0.9902),
    ]
    assert best_of(curve, 0.3).chosen == 0.3
    assert best_of(curve, 0.26).chosen == 0.25
    assert best_of(curve, 0.0).chosen == 0.25, "0.1 is worse by more than that"


def twin_f(labels, identities):
    """Pairwise F over ordered pairs with a known image: others in its group are mistakes, fewer without the known ones."""
    known = np.flatnonzero(identities >= 0)
    scale = (identities < 0).mean()
    together = found = true = 0
    for image in known:
        for other in range(len(identities)):
            same_group = other != image and labels[image] == labels[other] >= 0
            same_identity = other != image and identities[image] == identities[other]
            together, found, true = (
                together + (same_group and same_identity),
                found + same_group * (1 if same_identity else scale),
                true + same_identity,
            )
    return 2 * together / (found + true) if found + true else 0.0


@pytest.mark.parametrize(
    "given", [{}, {"grouping": "components"}, {"grouping": "components", "mediator": "vote"}]
)
def test_the_chosen_bar_has_the_best_f_among_all_images(given):
    generator = np.random.default_rng(3)
    truth = np.repeat(np.arange(20), 5)
    ends = np.array([(a, b) for a in range(100) for b in range(a + 1, 100)])
    ends = ends[(generator.random(len(ends)) < 0.05) | (truth[ends[:, 0]] == truth[ends[:, 1]])]
    is_same = truth[ends[:, 0]] == truth[ends[:, 1]]
    doubt = np.where(is_same, 0.5 * generator.random(len(ends)), 0.3 + 0.6 * generator.random(len(ends)))
    scored = ConsensusGraph(ends, doubt.astype(np.float32), 100)
    identities = np.where(truth < 10, truth, -1)
    settings = ConsensusSettings.of(**given)
    tuning, dendrogram = tune(scored, identities, settings)
    assert (dendrogram is None) == (settings.grouping == "components")
    assert [one.threshold for one in tuning.curve] == list(THRESHOLDS[settings.threshold_kind])
    for one in tuning.curve:
        labels = group(pairs_at(scored, settings, one.threshold), settings, one.threshold)
        assert one.f == pytest.approx(twin_f(labels.labels, identities))
    best = max(one.f for one in tuning.curve)
    good = [one.threshold for one in tuning.curve if one.f >= best - 0.002]
    assert tuning.chosen == min(good, key=lambda threshold: abs(threshold - settings.default_threshold))


@pytest.mark.parametrize(
    "given",
    [
        {"mediator": "mlp"},
        {"mediator": "vote"},
        {"grouping": "components", "mediator": "mlp"},
        {"grouping": "components", "mediator": "vote"},
    ],
)
def test_a_tuned_bar_gives_the_labels_of_the_same_bar_given(large_split, given):
    settings = ConsensusSettings.of(k=10, **given)
    fitted = fit(LabeledImages((large_split.labeled,)), settings)
    views = Views.concatenate([large_split.unlabeled, fitted.joined])
    mask = np.arange(views.n_images) >= large_split.unlabeled.n_images
    alone = replace(fitted, joined=None)
    tuned = label(views, settings, fitted=alone, validation=mask)
    assert tuned.tuning.chosen == tuned.threshold
    given = replace(fitted.settings, threshold=tuned.threshold)
    again = label(views, given, fitted=replace(alone, settings=given))
    np.testing.assert_array_equal(again.labels.labels, tuned.labels.labels)
    np.testing.assert_array_equal(again.accepted.ids, tuned.accepted.ids)
    assert len(tuned.accepted) > 0


def test_held_out_identities_are_among_the_unlabeled_images_but_not_in_the_result(large_split):
    fitted = fit(LabeledImages((large_split.labeled,)), BEST)
    held_out = set(fitted.joined.identities)
    assert fitted.mediator.training["pairs"] > 0
    assert 0.2 < len(held_out) / len(np.unique(large_split.labeled.identities)) < 0.4
    labeling = label(large_split.unlabeled, BEST, fitted=fitted)
    assert labeling.labels.n_images == large_split.unlabeled.n_images
    assert labeling.tuning is not None
    assert not labeling.validation.any()


@pytest.mark.parametrize("mediator", ["mlp", "vote"])
def test_too_few_labeled_identities_are_a_note(split, mediator):
    settings = ConsensusSettings.of(k=10, mediator=mediator)
    few = split.labeled.take(split.labeled.identities < 40)
    labeling = label(split.unlabeled, settings, labeled=[few])
    why = "too few labeled identities have two images or more"
    assert labeling.notes == (f"threshold = 0.3, the default, was not chosen on labeled identities: {why}.",)
    assert labeling.tuning is None
    assert labeling.threshold == 0.3


@pytest.mark.slow
def test_nothing_is_held_out_if_too_few_images_for_k_would_be_left():
    generator = np.random.default_rng(0)
    identities = np.repeat(np.arange(80), 2)
    people = generator.normal(size=(80, 8))
    views = Views(people[identities] + 0.3 * generator.normal(size=(160, 8)), identities=identities)
    assert fit(LabeledImages((views,)), replace(BEST, k=111)).joined.n_images == 48
    fitted = fit(LabeledImages((views,)), replace(BEST, k=112))
    assert fitted.joined is None
    assert "was not chosen" in fitted.notes[0]


@pytest.mark.slow
def test_given_graphs_are_a_note(large_split):
    graphs = [knn_graph(view, 10) for view in large_split.unlabeled]
    labeling = label(large_split.unlabeled, BEST, labeled=[large_split.labeled], graphs=graphs)
    assert labeling.notes == (
        "threshold = 0.3, the default, was not chosen on labeled identities: the given k-NN graphs do not contain the images to "
        "choose it on.",
    )
    # All labeled identities train the mediator then: nothing is held out for nothing.
    whole = fit(LabeledImages((large_split.labeled,)), replace(BEST, threshold=0.3))
    assert labeling.mediator.training == whole.mediator.training
    labeled_graphs = [knn_graph(view, 10) for view in large_split.labeled]
    fitted = fit(LabeledImages((large_split.labeled,)), BEST, labeled_graphs=labeled_graphs)
    assert fitted.joined is None
    assert fitted.mediator.training == whole.mediator.training
    assert fitted.notes == (
        "threshold = 0.3, the default, was not chosen on labeled identities: given k-NN graphs contain all labeled images, so that no "
        "identity can be held out.",
    )


def test_a_trained_mediator_alone_is_a_note(large_split):
    fitted = fit(LabeledImages((large_split.labeled,)), replace(BEST, threshold=0.3))
    labeling = label(large_split.unlabeled, BEST, fitted=replace(fitted, settings=BEST))
    assert labeling.notes == (
        "threshold = 0.3, the default, was not chosen on labeled identities: no validation images are labeled.",
    )


def test_a_vote_without_any_identity_is_a_note_and_with_validation_is_tuned(large_split):
    settings = ConsensusSettings.of(k=10, mediator="vote")
    alone = label(large_split.unlabeled, settings)
    assert alone.notes == (
        "threshold = 0.3, the default, was not chosen on labeled identities: no validation images are labeled.",
    )
    tuned = label(large_split.unlabeled, settings, validation=large_split.labeled)
    assert (tuned.notes, tuned.tuning is None) == ((), False)


def test_validation_identities_with_one_image_each_choose_nothing(large_split):
    # Every threshold has F 0 on them, and the first one, the lowest, would have joined everybody.
    singles = large_split.labeled.take(np.unique(large_split.labeled.identities, return_index=True)[1])
    labeling = label(large_split.unlabeled, BEST, labeled=[large_split.labeled], validation=singles)
    assert labeling.notes == (
        "threshold = 0.3, the default, was not chosen on labeled identities: no validation identity has two images.",
    )
    assert labeling.threshold == 0.3


def test_few_validation_identities_are_used_and_noted(large_split):
    few = large_split.labeled.take(large_split.labeled.identities < 12)
    n_shared = count_shared(few.identities)
    assert 0 < n_shared < MIN_IDENTITIES
    labeling = label(large_split.unlabeled, BEST, labeled=[large_split.labeled], validation=few)
    assert labeling.tuning is not None
    assert labeling.notes == (
        f"The threshold was chosen on {n_shared} validation identities with two images or more, which is few.",
    )


def test_a_validation_part_that_is_not_used_is_noted(large_split):
    paper = ConsensusSettings.of("paper", k=10)
    labeling = label(
        large_split.unlabeled, paper, labeled=[large_split.labeled], validation=large_split.labeled
    )
    assert labeling.notes == ("threshold = 0.96 was given, so the validation part was not used.",)


def test_validation_without_identities_is_refused(large_split):
    blind = Views(large_split.labeled.base, large_split.labeled.committee)
    with refuses("validation-identities-missing", key="threshold"):
        label(large_split.unlabeled, BEST, labeled=[large_split.labeled], validation=blind)


def test_groups_of_the_fitted_vote_are_those_of_no_labeled_part(large_split):
    settings = ConsensusSettings.of("paper", k=10, mediator="vote")
    with_part = label(large_split.unlabeled, settings, labeled=[large_split.labeled])
    blind = Views(large_split.labeled.base, large_split.labeled.committee)
    for other in (
        label(large_split.unlabeled, settings),
        label(large_split.unlabeled, settings, fitted=Fitted(settings)),
        label(large_split.unlabeled, settings, labeled=[blind]),
    ):
        assert reference.partition(other.labels.labels) == reference.partition(with_part.labels.labels)

"""Labels without labels: the threshold that is estimated from all pairs, or on which two halves of the models agree."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from tests import reference
from tests.refusals import refuses
from tests.unit.scoring.test_zscore import make_views

from cdp import CDP, Labels, Views, measure_labels
from cdp.evaluate.label_figures import measure_agreement
from cdp.labeling.pipeline import label
from cdp.labeling.split_half import THRESHOLDS, cut_in_two, lower_end
from cdp.labeling.unsupervised_threshold import describe_estimate
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings

SETTINGS = ConsensusSettings.of(k=8)


def hide(views):
    return Views(views.base, views.committee)


def pairwise_f(labeling, views):
    return measure_labels(labeling.labels, views.identities).discards_kept.pairwise.f or 0.0


@pytest.fixture(scope="module")
def views():
    return make_views(n_people=60, per_person=5, models=2)


@pytest.fixture(scope="module")
def labeling(views):
    return label(hide(views), SETTINGS)


def test_agreement_of_groupings_equals_the_equation():
    generator = np.random.default_rng(0)
    for size in (2, 5, 30):
        first, second = (Labels.from_array(generator.integers(-1, max(2, size // 3), size)) for _ in range(2))
        expected = reference.agreement_of_groupings(first.labels, second.labels)
        assert measure_agreement(first, second) == pytest.approx(expected)
        assert measure_agreement(second, first) == pytest.approx(expected)
    with refuses("measured-labels-differ", found=(30, 2)):
        measure_agreement(first, Labels.from_array(np.array([0, 0])))


@pytest.mark.parametrize(("hits", "count"), [(0, 4), (3, 4), (4, 4), (500, 1000)])
def test_lower_end_is_wilsons(hits, count):
    twin = binomtest(hits, count).proportion_ci(0.95, method="wilson").low
    assert lower_end(hits / count, count) == pytest.approx(twin, abs=1e-4)
    assert lower_end(0.5, 0) == 0


def test_halves_are_even_and_odd_dimensions_and_nothing_is_copied(views):
    first, second = cut_in_two(views)
    for whole, even, odd in zip(views, first, second, strict=True):
        assert np.shares_memory(whole.source, even.source)
        np.testing.assert_array_equal(even.source, whole.source[:, 0::2])
        np.testing.assert_array_equal(odd.source, whole.source[:, 1::2])
    assert first.names == views.names


def test_within_three_points_of_the_best_threshold(views, labeling):
    best = max(
        pairwise_f(label(hide(views), replace(SETTINGS, mediator="similarity", threshold=threshold)), views)
        for threshold in THRESHOLDS[::3]
    )
    assert pairwise_f(labeling, views) >= best - 0.03
    assert best > 0.75


def test_the_note_and_the_record_say_how_sure_that_is(labeling):
    found = labeling.estimate
    assert labeling.threshold == found.chosen
    assert labeling.settings.mediator == "similarity"
    bars = [point.threshold for point in found.curve]
    assert bars == sorted(bars)
    assert bars[-1] < 3  # the most similarity there is lies low here
    assert labeling.notes == (
        "Nobody is labeled, so the threshold was estimated without labels: as similar as only 1 of "
        f"{round(1 / found.share_above)} pairs of images (threshold = {found.chosen:g}). About {1 - found.precision:.0%} of these "
        f"pairs are expected to be wrong, and {1 - found.recall:.0%} of the right ones to be missed. Two halves of the models make "
        f"the same groups to a pairwise F of {found.agreement:.3f}; this measures stability, not correctness."
        + (" Look at the groups with care." if found.agreement < 0.9 else ""),
    )
    assert labeling.tuning is None
    assert labeling.expected is None


def test_a_few_dozen_images_are_compared_by_halves(views):
    found = label(hide(views.take(np.arange(views.n_images) < 40)), SETTINGS)
    assert len(found.estimate.curve) == len(THRESHOLDS)
    assert (found.estimate.precision, found.estimate.recall) == (None, None)
    assert "expected to be wrong" not in found.notes[0]


def test_where_nobody_is_there_twice_only_copies_are_joined():
    strangers = make_views(n_people=200, per_person=1, models=2)
    found = label(hide(strangers), SETTINGS)
    assert (found.labels.labels >= 0).mean() < 0.05
    assert "only copies are joined, because no pair is more similar than impostors are" in found.notes[0]


@pytest.fixture(scope="module")
def many():
    return make_views(n_people=100, per_person=20, models=1)


@pytest.mark.slow
def test_of_many_images_the_threshold_is_read_off_all_pairs(many):
    one, four = (label(hide(many), SETTINGS, runtime=Runtime(RuntimeSettings(threads=n))) for n in (1, 4))
    assert one.estimate == four.estimate
    found = one.estimate
    assert 0 < found.agreement <= 1
    assert found.precision == pytest.approx(
        min(found.curve, key=lambda point: abs(point.threshold - found.chosen)).precision, abs=0.01
    )
    best = max(
        pairwise_f(label(hide(many), replace(SETTINGS, mediator="similarity", threshold=threshold)), many)
        for threshold in (1.6, 2.0, 2.4, 2.8)
    )
    assert pairwise_f(one, many) >= best - 0.05
    assert one.notes == (describe_estimate(found),)
    assert f"About {1 - found.precision:.0%} of these pairs are expected to be wrong" in one.notes[0]


def test_the_same_for_any_number_of_threads(views):
    one, four = (label(hide(views), SETTINGS, runtime=Runtime(RuntimeSettings(threads=n))) for n in (1, 4))
    assert one.estimate == four.estimate
    np.testing.assert_array_equal(one.labels.labels, four.labels.labels)


def test_a_threshold_that_is_given_is_kept(views):
    found = label(hide(views), replace(SETTINGS, mediator="similarity", threshold=4.5))
    assert found.estimate is None
    assert found.threshold == 4.5


def test_the_estimator_needs_no_identities(views, labeling):
    model = CDP(k=8)
    labels = model.fit_predict(hide(views))
    np.testing.assert_array_equal(labels, labeling.labels.labels)
    assert CDP(k=8).fit_predict(views.base.vectors).shape == (views.n_images,)


def test_what_cannot_be_cut_in_two_is_said():
    line = Views(np.random.default_rng(0).normal(size=(40, 1)))
    with refuses("halves-one-dimension", model="base"):
        label(line, SETTINGS)
    flat = np.zeros((40, 4))
    flat[:, 0] = 1
    with refuses("embeddings-zero-length", model="base", row=0, count=40):
        label(Views(flat), SETTINGS)


def test_similarity_goes_with_average_linkage():
    with refuses("grouping-needs-average"):
        ConsensusSettings.of(mediator="similarity", grouping="components")


@pytest.mark.slow
def test_the_threshold_of_a_collection_is_chosen_anew_when_it_has_grown_by_half(views, tmp_path):
    from cdp.collection.creation import create_collection
    from cdp.collection.extension import extend

    rows = np.arange(views.n_images)
    first, later = (hide(views.take(part)) for part in (rows < 150, rows >= 150))
    grown = extend(create_collection(tmp_path / "album", first, settings=SETTINGS), later)[0]
    whole = label(hide(views), SETTINGS)
    assert grown.state.threshold == whole.threshold
    assert grown.state.notes == whole.notes
    np.testing.assert_array_equal(grown.identity >= 0, whole.labels.labels >= 0)
    given = replace(SETTINGS, mediator="similarity", threshold=4.0)
    kept = extend(create_collection(tmp_path / "given", first, settings=given), later)[0]
    assert kept.state.threshold == 4


def test_a_collection_of_nobody_known_is_extended_at_the_same_threshold(views, tmp_path):
    from cdp.collection.creation import create_collection
    from cdp.collection.extension import extend

    rows = np.arange(views.n_images)
    first, later = (hide(views.take(part)) for part in (rows < 240, rows >= 240))
    collection = create_collection(tmp_path / "album", first, settings=SETTINGS)
    threshold = collection.state.threshold
    assert threshold > 0
    grown = extend(collection, later)[0]
    assert (grown.n_images, grown.state.threshold) == (300, threshold)
    assert measure_labels(np.array(grown.identity), views.identities).discards_kept.pairwise.f > 0.7


def test_a_collection_is_regrouped_at_any_z_score(views, tmp_path):
    from cdp import Collection
    from cdp.collection.collection_settings import GrowthSettings

    free = GrowthSettings(id_stability=0.0)
    faces = Collection.create(tmp_path / "album", hide(views), settings=SETTINGS)
    for threshold in (1.8, 2.6):
        settings = replace(faces.settings, threshold=threshold)
        regrouped, _ = faces.regroup(settings=settings, growth=free)
        expected = label(hide(views), settings).labels
        assert regrouped.state.threshold == threshold
        assert reference.partition(regrouped.identity) == reference.partition(expected.labels)

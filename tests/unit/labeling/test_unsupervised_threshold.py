"""Labels without labels: the threshold that is estimated from the merges of a sample."""

from dataclasses import replace

import numpy as np
import pytest
from tests import reference
from tests.refusals import refuses
from tests.unit.scoring.test_zscore import make_views

from cdp import CDP, Views, measure_labels
from cdp.labeling.pipeline import label
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


def test_within_three_points_of_the_best_threshold(views, labeling):
    best = max(
        pairwise_f(label(hide(views), replace(SETTINGS, mediator="similarity", threshold=threshold)), views)
        for threshold in np.arange(1.5, 10, 0.75)
    )
    assert pairwise_f(labeling, views) >= best - 0.03
    assert best > 0.75


@pytest.fixture(scope="module")
def clear():
    """Sixty people in 64 dimensions, as models see them that separate well."""
    generator = np.random.default_rng(0)
    people = np.repeat(np.arange(60), 5)
    vectors = generator.normal(size=(60, 64))[people] + 0.6 * generator.normal(size=(300, 64))
    return Views(vectors.astype(np.float32), identities=people)


def test_models_that_separate_well_and_badly(clear, views, labeling):
    assert pairwise_f(label(hide(clear), SETTINGS), clear) > 0.99
    assert pairwise_f(labeling, views) > 0.7


def test_the_note_and_the_record_say_how_sure_that_is(clear):
    labeling = label(hide(clear), SETTINGS)
    found = labeling.estimate
    assert labeling.threshold == found.chosen
    assert labeling.settings.mediator == "similarity"
    thresholds = [point.threshold for point in found.curve]
    assert thresholds == sorted(thresholds)
    assert labeling.notes == (
        "Nobody is labeled, so the threshold was estimated without labels: "
        f"{found.chosen:g}, which 1 of {round(1 / found.share_above)} pairs of images reaches. About {1 - found.precision:.1%} of the "
        "pairs in groups are expected to be wrong.",
    )
    assert labeling.tuning is None
    assert labeling.expected is None


@pytest.mark.parametrize("n_images", [15, 25, 40])
def test_a_few_dozen_images_are_enough(clear, n_images):
    few = clear.take(np.arange(n_images))
    assert pairwise_f(label(hide(few), ConsensusSettings.of()), few) > 0.95


@pytest.mark.parametrize("n_images", [12, 25])
def test_a_few_dozen_images_are_enough_for_weaker_models(n_images):
    few = make_views(n_people=n_images // 5 + 1, per_person=5, models=2).take(np.arange(n_images))
    assert pairwise_f(label(hide(few), ConsensusSettings.of()), few) > 0.7


def test_where_nobody_is_there_twice_only_copies_are_joined():
    strangers = make_views(n_people=200, per_person=1, models=2)
    found = label(hide(strangers), SETTINGS)
    assert (found.labels.labels >= 0).mean() < 0.05
    assert "no pair of images is clearly more similar than images of different people" in found.notes[0]


@pytest.fixture(scope="module")
def many():
    generator = np.random.default_rng(0)
    people = np.repeat(np.arange(100), 20)
    vectors = generator.normal(size=(100, 64))[people] + 0.8 * generator.normal(size=(2000, 64))
    return Views(vectors.astype(np.float32), identities=people)


@pytest.mark.slow
def test_of_many_images_the_threshold_is_read_off_all_pairs(many):
    one, four = (label(hide(many), SETTINGS, runtime=Runtime(RuntimeSettings(threads=n))) for n in (1, 4))
    assert one.estimate == four.estimate
    found = one.estimate
    next_above = min(point.threshold for point in found.curve if point.threshold > found.chosen)
    assert found.precision == pytest.approx(
        next(point.precision for point in found.curve if point.threshold == next_above), abs=0.05
    )
    best = max(
        pairwise_f(label(hide(many), replace(SETTINGS, mediator="similarity", threshold=threshold)), many)
        for threshold in (2.0, 3.0, 4.0, 5.0)
    )
    assert pairwise_f(one, many) >= best - 0.05
    assert one.notes == (describe_estimate(found),)


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

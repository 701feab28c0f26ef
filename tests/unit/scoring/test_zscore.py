"""Similarity on one scale: the equation, and what does not change it."""

import numpy as np
import pytest
from tests import reference

from cdp import Views
from cdp.runtime.runtime import Runtime
from cdp.scoring.zscore import (
    NullStatistics,
    default_softness,
    measure_null,
    z_score_pairs,
)
from cdp.types import Pairs, Softness


def make_views(n_people=40, per_person=3, seed=0, models=2):
    generator = np.random.default_rng(seed)
    people = np.repeat(np.arange(n_people), per_person)
    faces = generator.normal(size=(n_people, 12))[people]
    seen = [
        (faces + 0.4 * generator.normal(size=faces.shape)) @ generator.normal(size=(12, dimensions))
        for dimensions in (32, 20, 48)[:models]
    ]
    return Views(seen[0], {f"m{at}": one for at, one in enumerate(seen[1:], 1)}, people)


def some_pairs(views, n=60):
    ids = np.random.default_rng(1).integers(0, views.n_images, (n, 2))
    return Pairs(
        np.unique(np.sort(ids[ids[:, 0] != ids[:, 1]], axis=1), axis=0).astype(np.int32), views.n_images
    )


def test_equals_the_equation(monkeypatch):
    monkeypatch.setattr("cdp.scoring.zscore._RANDOM_PAIRS", 500)
    views = make_views()
    ids = np.random.default_rng([3, 8]).integers(0, views.n_images, (500, 2))
    ids = ids[ids[:, 0] != ids[:, 1]]
    pairs = some_pairs(views)
    found = z_score_pairs(views, pairs, measure_null(views, seed=3), Runtime()).z
    twin = reference.standard_similarity([one.vectors for one in views], ids, pairs.ids)
    np.testing.assert_allclose(found, twin, rtol=2e-4, atol=2e-4)


def test_a_model_whose_cosines_are_elsewhere_has_the_same_z_scores():
    """Adding a constant direction to all vectors raises all cosines; their order and standing hardly change."""
    views = make_views(models=1)
    unit = views.base.vectors.astype(np.float64)
    crowded = np.concatenate([unit, np.full((len(unit), 1), 2.0)], axis=1)
    pairs = some_pairs(views)
    plain = z_score_pairs(views, pairs, measure_null(views), Runtime()).z
    raised = Views(crowded)
    assert measure_null(raised).models[0][0] > 0.7
    found = z_score_pairs(raised, pairs, measure_null(raised), Runtime()).z
    np.testing.assert_allclose(found, plain, atol=1e-3)


def test_pairs_of_one_person_among_the_random_ones_hardly_move_the_scale():
    """In a small album every tenth random pair is one person; a plain standard deviation would be three quarters larger."""
    views = make_views(n_people=10, per_person=8, models=1)
    cosine = reference.cosines(views.base.vectors)
    strangers = cosine[views.identities[:, None] != views.identities[None, :]]
    lower, center = np.quantile(strangers, [0.1587, 0.5])
    assert measure_null(views).models[0] == pytest.approx((center, center - lower), abs=0.08)


def test_equal_embeddings_have_no_spread_and_are_no_error():
    views = Views(np.ones((30, 4)))
    assert np.isfinite(z_score_pairs(views, some_pairs(views), measure_null(views), Runtime()).z).all()


def test_doubt_is_a_half_at_the_threshold_and_falls_with_similarity():
    doubt = Softness(0.7, 0.7).doubt(np.array([-1e6, 3.3, 4.0, 4.7, 1e6], np.float32), 4.0)
    np.testing.assert_allclose(doubt, [1, 0.7311, 0.5, 0.2689, 0], atol=1e-4)


def test_doubt_falls_faster_where_an_image_and_itself_are_hardly_more_similar_than_others():
    assert default_softness(9.0) == (0.7, 0.7)
    assert default_softness(1.2) == pytest.approx((0.2, 0.2))


def test_probability_and_z_score_are_inverse_on_both_sides_of_the_threshold():
    softness = Softness(above=0.2, below=1.5)
    z = np.array([-3.0, 2.9, 4.0, 4.1, 5.0])
    probability = softness.probability(z, 4.0)
    np.testing.assert_allclose(probability + softness.doubt(z, 4.0), 1)
    np.testing.assert_allclose([softness.z_score(one, 4.0) for one in probability], z)


def test_null_statistics_are_a_value():
    assert measure_null(make_views()) == measure_null(make_views())
    assert isinstance(measure_null(make_views()), NullStatistics)

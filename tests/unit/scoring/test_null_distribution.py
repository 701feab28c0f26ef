"""Precision and recall of thresholds without labels: by what is counted beyond the null distribution."""

import numpy as np
import pytest
from tests.unit.scoring.test_zscore import make_views

from cdp import Views
from cdp.scoring.null_distribution import (
    N_BINS,
    SimilarityCounts,
    count_similarities,
    estimate_curve,
    fit_null,
)
from cdp.scoring.zscore import fused_z_score, max_z_score, measure_null


def compare_all(views):
    """The slow twin: standard similarity of every pair, and whether it is of one identity."""
    background = measure_null(views)
    cosines = [model.vectors @ model.vectors.T for model in views]
    upper = np.triu_indices(views.n_images, 1)
    same = views.identities[upper[0]] == views.identities[upper[1]]
    return fused_z_score(cosines, background)[upper], same


def test_all_pairs_are_counted_but_those_of_an_image_and_itself():
    views = make_views(n_people=30, per_person=5, models=2)
    background = measure_null(views)
    found = count_similarities(views, background)
    standard, _ = compare_all(views)
    expected = np.histogram(standard, found.edges)[0]
    assert found.edges[-1] == max_z_score(background) == -found.edges[0]
    # Pairs on an edge may round either way.
    np.testing.assert_allclose(found.counts[1:], 2 * expected[1:], atol=6)
    assert found.counts.sum() == pytest.approx(150 * 149, abs=4)
    for edge in found.edges[[210, 260, 300]]:
        assert found.share_above(edge) == pytest.approx((standard > edge).mean(), abs=1e-3)


@pytest.mark.parametrize(("people", "images"), [(4, 250), (100, 20), (500, 4)])
def test_precision_is_about_right_and_the_threshold_nearly_best_for_many_and_for_few_identities(
    people, images
):
    views = make_views(n_people=people, per_person=images, models=1)
    standard, same = compare_all(views)
    found = estimate_curve(count_similarities(views, measure_null(views)))
    threshold = found.thresholds[found.best]
    above = standard > threshold
    assert found.precision[found.best] == pytest.approx(same[above].mean(), abs=0.12)

    def f_of(threshold):
        return 2 * (same & (standard > threshold)).sum() / ((standard > threshold).sum() + same.sum())

    assert f_of(threshold) >= max(f_of(one) for one in np.arange(0.5, 6, 0.1)) - 0.05


def test_the_fit_is_the_beta_distribution_where_there_is_nothing_else():
    x = (np.arange(N_BINS) + 0.5) / (N_BINS / 2) - 1
    exact = 1e9 * ((1 - x) * (1 + x)) ** 30
    counts = SimilarityCounts(exact, np.linspace(-10, 10, N_BINS + 1), 10_000)
    expected, stop = fit_null(counts)
    np.testing.assert_allclose(expected[200:stop], exact[200:stop], rtol=1e-6)
    # It climbs to the end, and no pair is left that would be of one identity.
    assert counts.counts[stop:].sum() / counts.counts.sum() <= 10 / 10_000
    assert estimate_curve(counts).precision.max() < 0.01


def test_where_nobody_has_two_images_nothing_is_joined():
    found = estimate_curve(_counts_of(make_views(n_people=2000, per_person=1, models=1)))
    assert found.best == N_BINS - 1


def _counts_of(views):
    hidden = Views(views.base, views.committee)
    return count_similarities(hidden, measure_null(hidden))

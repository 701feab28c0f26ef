"""Precision and recall of thresholds of few images: by two distributions that are fitted at once."""

import numpy as np
import pytest
from scipy.stats import beta, norm
from tests.unit.scoring.test_null_distribution import compare_all
from tests.unit.scoring.test_zscore import make_views

from cdp.scoring.mixture import estimate_curve_of_few, fit_mixture
from cdp.scoring.null_distribution import N_BINS, SimilarityCounts, count_similarities
from cdp.scoring.zscore import measure_null


def make_counts(n_pairs=20_000, share=0.05):
    """A normal distribution and a Beta distribution, binned."""
    edges = np.linspace(-10, 10, N_BINS + 1)
    null = np.diff(norm.cdf(edges))
    same = np.diff(beta.cdf((edges / 10 + 1) / 2, 20, 5))
    counts = np.round(2 * n_pairs * ((1 - share) * null + share * same))
    return SimilarityCounts(counts, edges, 200), null, same


@pytest.mark.parametrize("share", [0.005, 0.05, 0.2])
def test_two_distributions_are_told_apart(share):
    counts, null, same = make_counts(share=share)
    found = fit_mixture(counts)
    assert found.share == pytest.approx(share, rel=0.05)
    first = N_BINS - len(found.null)
    np.testing.assert_allclose(found.null.cumsum(), null[first:].cumsum(), atol=0.01)
    np.testing.assert_allclose(found.same.cumsum(), same[first:].cumsum(), atol=0.05)


def test_precision_and_recall_are_those_of_the_equation():
    counts, null, same = make_counts()
    found = estimate_curve_of_few(counts)
    above = slice(260, 330)
    true, false = (0.05 * same[::-1].cumsum()[::-1], 0.95 * null[::-1].cumsum()[::-1])
    np.testing.assert_allclose(found.precision[above], (true / (true + false))[above], atol=0.02)
    np.testing.assert_allclose(found.recall[above], same[::-1].cumsum()[::-1][above], atol=0.025)
    assert not found.precision[:150].any()


@pytest.mark.parametrize(("people", "images"), [(5, 40), (40, 5), (20, 10)])
def test_the_threshold_is_nearly_best_for_many_and_for_few_identities(people, images):
    views = make_views(n_people=people, per_person=images, models=2)
    standard, same = compare_all(views)
    found = estimate_curve_of_few(count_similarities(views, measure_null(views)))

    def f_of(threshold):
        return 2 * (same & (standard > threshold)).sum() / ((standard > threshold).sum() + same.sum())

    assert f_of(found.thresholds[found.f.argmax()]) >= max(f_of(one) for one in np.arange(0.5, 6, 0.1)) - 0.05


@pytest.mark.parametrize("counts", [np.zeros(N_BINS), np.eye(1, N_BINS, 200)[0] * 50])
def test_where_nothing_can_be_said_nothing_is(counts):
    found = SimilarityCounts(counts, np.linspace(-10, 10, N_BINS + 1), 60)
    assert fit_mixture(found) is None
    assert not estimate_curve_of_few(found).f.any()

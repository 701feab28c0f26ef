"""Figures of a few known images among many others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses

from cdp.evaluate.label_figures import measure_among_others, measure_labels
from cdp.types import Labels
from cdp.types.run_record import Score


def test_among_others_counts_every_companion():
    """Known images 0..4 of two people; images 5..8 are others."""
    truth = np.array([0, 0, 0, 1, 1, -1, -1, -1, -1])
    labels = Labels.from_array([0, 0, 1, 1, -1, 0, 2, 2, -1])
    together = grouped = 0
    for one in range(5):
        for other in range(9):
            if one != other and labels.labels[one] >= 0 and labels.labels[one] == labels.labels[other]:
                grouped += 1
                together += bool(truth[one] == truth[other])
    score = measure_among_others(labels, truth)
    assert score.precision == pytest.approx(together / grouped)
    assert score.recall == pytest.approx(together / (3 * 2 + 2 * 1))
    with refuses("measured-others-unknown"):
        measure_among_others(labels, np.full(9, -1))


def test_among_others_is_the_plain_score_if_everybody_is_known():
    generator = np.random.default_rng(0)
    truth, labels = generator.integers(0, 9, 80), Labels.from_array(generator.integers(-1, 7, 80))
    plain = measure_labels(labels, truth)
    score = measure_among_others(labels, truth)
    assert score.precision == pytest.approx(plain.discards_removed.pairwise.precision)
    assert score.recall == pytest.approx(plain.discards_kept.pairwise.recall)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 10))
def test_weighted_f_is_the_weighted_harmonic_mean(precision, recall, weight):
    score = Score(precision=precision, recall=recall)
    if precision * recall > 1e-6:
        share = weight**2 / (1 + weight**2)
        assert score.weighted(weight) == pytest.approx(1 / ((1 - share) / precision + share / recall))
    assert Score(recall=recall).weighted(weight) == 0


def test_a_larger_weight_of_recall_prefers_recall():
    careful, bold = Score(precision=0.8, recall=0.4), Score(precision=0.4, recall=0.8)
    assert careful.weighted(1) == pytest.approx(bold.weighted(1))
    assert bold.weighted(2) > careful.weighted(2)
    assert bold.weighted(0.5) < careful.weighted(0.5)

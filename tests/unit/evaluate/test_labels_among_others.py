"""Figures of a few known images among many others."""

import numpy as np
import pytest

from cdp.errors import InputError
from cdp.evaluate.labels import measure_among_others, measure_labels
from cdp.types import Labels


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
    with pytest.raises(InputError, match="some must be known"):
        measure_among_others(labels, np.full(9, -1))


def test_among_others_is_the_plain_score_if_everybody_is_known():
    generator = np.random.default_rng(0)
    truth, labels = generator.integers(0, 9, 80), Labels.from_array(generator.integers(-1, 7, 80))
    plain = measure_labels(labels, truth)
    score = measure_among_others(labels, truth)
    assert score.precision == pytest.approx(plain.discards_removed.pairwise.precision)
    assert score.recall == pytest.approx(plain.discards_kept.pairwise.recall)

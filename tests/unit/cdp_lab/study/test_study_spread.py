"""Mean, spread, what is called a significant difference, and the exponent of growth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdp_lab.study.result_tables import exponent, is_significant, summarize, verdicts

figures = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=5)


@given(figures)
def test_mean_and_deviation_are_those_of_what_is_known(values):
    mean, sd = summarize(values)
    known = [value for value in values if value is not None]
    if known:
        assert mean == pytest.approx(np.mean(known))
    else:
        assert mean is None
    if len(known) > 1:
        assert sd == pytest.approx(np.std(known, ddof=1), abs=1e-12)
    else:
        assert sd is None


@given(figures, figures)
def test_a_difference_is_mutual_and_greater_than_the_spread(one, other):
    assert is_significant(one, other) == is_significant(other, one)
    if is_significant(one, other):
        a, b = ([value for value in row if value is not None] for row in (one, other))
        spread = math.sqrt(np.var(a, ddof=1) + np.var(b, ddof=1))
        assert abs(np.mean(a) - np.mean(b)) > spread - 1e-12
    assert not is_significant(one, one)


def test_verdicts():
    rows = [[0.5, 0.6], [0.9, 0.92], [0.89, 0.93], [None, None]]
    assert verdicts(rows) == ["behind", "best", "no significant difference", ""]
    assert verdicts(rows, "low") == ["best", "behind", "behind", ""]
    assert verdicts([[0.5], [0.9]]) == ["", ""], "one seed has no spread, so nothing is called a difference"
    assert verdicts([[0.5, 0.6], [None, None]]) == ["", ""]
    assert verdicts([]) == []


@given(st.floats(-3, 3), st.floats(0.1, 10))
def test_the_exponent_of_a_power_law(power, factor):
    sizes = [100, 200, 400, 1000]
    assert exponent(sizes, [factor * size**power for size in sizes]) == pytest.approx(power, abs=1e-6)


def test_the_exponent_of_noise_is_least_squares():
    sizes, seconds = [10.0, 20.0, 50.0, 90.0], [1.0, 2.5, 4.0, 11.0]
    assert exponent(sizes, seconds) == pytest.approx(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    assert exponent([10], [1.0]) is None
    assert exponent([10, 10], [1.0, 2.0]) is None

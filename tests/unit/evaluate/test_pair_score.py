"""F of pairs: one definition."""

import pytest

from cdp.evaluate.label_figures import pair_score


@pytest.mark.parametrize(
    ("found", "in_groups", "to_find", "precision", "recall", "f"),
    [
        (6, 8, 12, 0.75, 0.5, 0.6),
        (0, 8, 12, 0.0, 0.0, 0.0),
        (0, 0, 12, None, 0.0, 0.0),
        (0, 8, 0, 0.0, None, None),
    ],
)
def test_f_is_zero_where_nothing_was_found_and_undefined_where_there_is_nothing_to_find(
    found, in_groups, to_find, precision, recall, f
):
    score = pair_score(found, in_groups, to_find)
    assert (score.precision, score.recall, score.f) == (precision, recall, f)

"""Corrections of what was clicked: which image is said to differ from which."""

import numpy as np
import pytest

from cdp.collection.corrections import different
from cdp.errors import InputError
from cdp.web.review.answers import answer_question
from cdp.web.review.group_index import GroupIndex

INDEX = GroupIndex(
    np.array([0, 0, 0, 0, 1, 1, 1, -1]), np.array([0.2, 0.9, 0.5, 0.4, 0.3, 0.6, 0.8, 0.0], np.float32), {}
)


def out(selected, one, other, leaving=frozenset()):
    fields = {"how": ["out"], "one": one, "other": other, "image": selected}
    return answer_question({name: list(map(str, rows)) for name, rows in fields.items()}, INDEX, leaving)


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ([0], [different(0, 1)]),
        ([1], [different(1, 2)]),
        ([4], [different(4, 6)]),
        ([6], [different(6, 5)]),
        ([0, 5], [different(0, 1), different(5, 6)]),
    ],
)
def test_a_selected_image_differs_from_the_surest_of_its_own_group_that_stays(selected, expected):
    assert out(selected, [0, 2, 1], [4, 5, 6]) == expected


def test_an_image_that_leaves_already_is_no_anchor():
    assert out([0], [0, 2, 1], [4, 5, 6], frozenset({1})) == [different(0, 2)]


def test_the_anchor_is_on_the_same_side_so_that_a_question_inside_a_group_stays_open():
    assert out([0], [0, 2], [3, 1]) == [different(0, 2)]


def test_members_that_are_not_shown_stand_for_the_group_if_all_that_are_shown_leave():
    assert out([0, 2], [0, 2], [4, 5, 6]) == [different(0, 1), different(2, 1)]


@pytest.mark.parametrize("selected", [[4, 5, 6], [7], [99]])
def test_what_cannot_leave_its_group_is_refused(selected):
    with pytest.raises(InputError, match=r"All images of the group are selected|in no group"):
        out(selected, [0, 2, 1], [4, 5, 6, 7])

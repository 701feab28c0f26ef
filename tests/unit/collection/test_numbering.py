"""Numbers that last, and what is said about those that do not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdp.collection.numbering import carry_numbers, describe_changes
from cdp.types import ConsensusGraph
from cdp.types.constraints import Constraints
from cdp.types.labels import number_by_first_appearance


def carry(before, groups, next_identity, preferred=None):
    labels = number_by_first_appearance(np.array(groups))
    found, following = carry_numbers(np.array(before, np.int32), labels, next_identity, preferred)
    return found.tolist(), following


@pytest.mark.parametrize(
    ("before", "groups", "after"),
    [
        ([4, 4, 7, 7, -1], [1, 1, 0, 0, 0], [4, 4, 7, 7, 7]),  # joined
        ([4, 4, 7, 7, 7], [0, 0, 0, 0, 0], [7, 7, 7, 7, 7]),  # merged: the larger keeps its number
        ([4, 4, 7, 7, -1], [0, 0, 0, 0, 0], [4, 4, 4, 4, 4]),  # of equal ones the older
        ([4, 4, 4, 4, 4], [0, 0, 1, 1, 1], [9, 9, 4, 4, 4]),  # split: the larger part keeps it
        ([-1, -1, 4, 4, -1], [0, 0, 1, 1, -1], [9, 9, 4, 4, -1]),  # founded
        ([4, 4, 7, 7, 7], [-1, -1, 0, 0, 0], [-1, -1, 7, 7, 7]),  # dissolved
    ],
)
def test_groups_keep_the_number_of_most_of_their_images(before, groups, after):
    assert carry(before, groups, 9)[0] == after


def test_a_name_brings_its_number_along():
    assert carry([4, 4, 4, 7], [0, 0, 0, 0], 9, {0: 7})[0] == [7, 7, 7, 7]


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 5)), min_size=1, max_size=40))
def test_numbers_are_never_used_twice(images):
    before, groups = np.array(images).T
    after, following = carry(before, groups, 6)
    after = np.array(after)
    assert (number_by_first_appearance(after) == number_by_first_appearance(np.array(groups))).all()
    fresh = set(after[after >= 6].tolist())
    assert following == 6 + len(fresh)
    assert set(after[(after >= 0) & (after < 6)].tolist()) <= set(before.tolist())


def described(before, after, constraints=None):
    pairs = np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    scored = ConsensusGraph(pairs, np.array([0.1, 0.2, 0.1, 0.1]), 5)
    return describe_changes(
        np.array(before, np.int32), np.array(after, np.int32), scored, 20, 0.3, constraints
    )


def test_merges_and_splits_are_told_with_their_evidence():
    merged = described([4, 4, 7, 7, 7], [7] * 5)
    assert [(one.kind, one.identity, one.other, one.images) for one in merged.events] == [("merged", 4, 7, 2)]
    assert merged.events[0].why == "mean probability 0.133 between the two, not above 0.3"
    assert merged.kept == 0.5
    split = described([4] * 5, [9, 9, 4, 4, 4], Constraints(5, cannot=np.array([[0, 4]])))
    assert [(one.kind, one.identity, one.other, one.images) for one in split.events] == [("split", 4, 9, 2)]
    assert split.events[0].why == "corrections say that they are different"
    assert (split.kept, split.founded) == (1.0, 0)
    moved = described([4, 4, 7, 7, 7], [4, 4, 4, 7, 7])
    assert [(one.kind, one.identity, one.other, one.images) for one in moved.events] == [("moved", 7, 4, 1)]
    gone = described([4, 4, 7, 7, 7], [-1, -1, 7, 7, 7])
    assert [(one.kind, one.identity) for one in gone.events] == [("dissolved", 4)]
    assert gone.left == 2
    grown = described([4, 4, -1, -1, -1], [4, 4, 4, 9, 9])
    assert (grown.events, grown.joined, grown.founded) == ((), 1, 1)

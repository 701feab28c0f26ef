import numpy as np
import pytest
from tests.refusals import refuses

from cdp.scoring.vote import is_more_similar, vote
from cdp.types import Opinions


def _opinions(votes, similarity):
    votes = np.array(votes, bool)
    n_pairs, n_members = votes.shape
    affinity = np.full((n_pairs, n_members + 1), -1, np.float32)
    affinity[:, 0] = similarity
    statistics = np.zeros((n_pairs, 2 * n_members + 2), np.float32)
    names = tuple(f"c{member}" for member in range(n_members))
    return Opinions(votes, affinity, statistics, statistics, None, names)


TWO = _opinions([[1, 1], [1, 0], [0, 1], [0, 0]], [0.9, 0.8, 0.7, 0.6])


@pytest.mark.parametrize(
    ("min_votes", "accepted"),
    [(None, [1, 0, 0, 0]), (2, [1, 0, 0, 0]), (1, [1, 1, 1, 0]), (0, [1, 1, 1, 1])],
)
def test_min_votes(min_votes, accepted):
    decision, doubt = vote(TWO, min_votes)
    np.testing.assert_array_equal(decision, np.array(accepted, bool))
    np.testing.assert_array_equal(doubt, 1 - TWO.affinity[:, 0])
    assert (decision.dtype, doubt.dtype) == (bool, np.float32)


@pytest.mark.parametrize("n_members", range(1, 5))
def test_unanimous_votes_give_pairs_for_any_committee(n_members):
    votes = np.array([[(row >> member) & 1 for member in range(n_members)] for row in range(2**n_members)])
    accepted, _ = vote(_opinions(votes, 0.5))
    assert np.flatnonzero(accepted).tolist() == [2**n_members - 1]


def test_the_threshold_must_be_exceeded():
    similarity = np.float32([0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.4])
    accepted, _ = vote(_opinions(np.empty((3, 0)), similarity), threshold=0.5)
    np.testing.assert_array_equal(accepted, [False, True, False])


def test_a_threshold_that_float32_rounds_is_still_strict():
    for threshold in np.round(np.arange(0.05, 1, 0.05), 2):
        similarity = np.float32([threshold, threshold + 1e-6, threshold - 1e-6])
        accepted, doubt = vote(_opinions(np.empty((3, 0)), similarity), threshold=float(threshold))
        np.testing.assert_array_equal(accepted, [False, True, False])
        # Of doubts that are kept, as while a threshold is tuned, the same pairs pass.
        np.testing.assert_array_equal(is_more_similar(doubt, float(threshold)), accepted)


def test_threshold_and_min_votes_must_both_be_met():
    accepted, _ = vote(TWO, min_votes=1, threshold=0.75)
    np.testing.assert_array_equal(accepted, [True, True, False, False])


def test_without_a_committee_every_pair_is_accepted():
    accepted, _ = vote(_opinions(np.empty((3, 0)), [0.1, 0.2, -1.0]))
    assert accepted.all()


def test_doubt_is_one_minus_base_similarity_and_never_negative():
    _, doubt = vote(_opinions(np.empty((3, 0)), [1.0, 1.0000001, -1.0]))
    np.testing.assert_array_equal(doubt, [0, 0, 2])


def test_more_votes_than_members_are_refused():
    with refuses("min-votes-exceed-committee", value=3, members=2):
        vote(TWO, min_votes=3)

import numpy as np
import pytest

from cdp.consensus.vote import Vote
from cdp.errors import InputError
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
    ("quorum", "accepted"),
    [(None, [1, 0, 0, 0]), (2, [1, 0, 0, 0]), (1, [1, 1, 1, 0]), (0, [1, 1, 1, 1])],
)
def test_quorum(quorum, accepted):
    decision, doubt = Vote(quorum=quorum).decide(TWO)
    np.testing.assert_array_equal(decision, np.array(accepted, bool))
    np.testing.assert_array_equal(doubt, 1 - TWO.affinity[:, 0])
    assert (decision.dtype, doubt.dtype) == (bool, np.float32)


@pytest.mark.parametrize("n_members", range(1, 5))
def test_unanimous_votes_give_pairs_for_any_committee(n_members):
    votes = np.array([[(row >> member) & 1 for member in range(n_members)] for row in range(2**n_members)])
    accepted, _ = Vote().decide(_opinions(votes, 0.5))
    assert np.flatnonzero(accepted).tolist() == [2**n_members - 1]


def test_the_threshold_must_be_exceeded():
    similarity = np.float32([0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.4])
    accepted, _ = Vote(threshold=0.5).decide(_opinions(np.empty((3, 0)), similarity))
    np.testing.assert_array_equal(accepted, [False, True, False])


def test_a_threshold_that_float32_rounds_is_still_strict():
    accepted, _ = Vote(threshold=0.7).decide(_opinions(np.empty((1, 0)), [0.7]))
    assert not accepted[0]


def test_threshold_and_quorum_must_both_be_met():
    accepted, _ = Vote(quorum=1, threshold=0.75).decide(TWO)
    np.testing.assert_array_equal(accepted, [True, True, False, False])


def test_without_a_committee_every_pair_is_accepted():
    accepted, _ = Vote().decide(_opinions(np.empty((3, 0)), [0.1, 0.2, -0.3]))
    assert accepted.all()


def test_doubt_is_one_minus_base_similarity_and_never_negative():
    _, doubt = Vote().decide(_opinions(np.empty((3, 0)), [1.0, 1.0000001, -1.0]))
    np.testing.assert_array_equal(doubt, [0, 0, 2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quorum": 3}, "Vote(quorum=3): the committee has 2 members; choose 0 to 2, or None for all."),
        ({"quorum": -1}, "Vote(quorum=-1): the committee has 2 members; choose 0 to 2, or None for all."),
        ({"threshold": 1.5}, "Vote(threshold=1.5): threshold is a cosine similarity in [-1, 1]."),
        ({"threshold": -96}, "Vote(threshold=-96): threshold is a cosine similarity in [-1, 1]."),
        ({"threshold": float("nan")}, "Vote(threshold=nan): threshold is a cosine similarity in [-1, 1]."),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(InputError) as error:
        Vote(**settings).decide(TWO)
    assert str(error.value) == message


def test_is_a_scikit_learn_estimator():
    assert Vote(quorum=2, threshold=0.3).get_params() == {"quorum": 2, "threshold": 0.3}

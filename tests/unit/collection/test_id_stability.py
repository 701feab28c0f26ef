"""Identities with numbers are held: what may be lost is lost where it helps most, and corrections come first."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cdp.collection.id_stability import Evidence, defer_small_groups, stabilize_ids
from cdp.collection.numbering import carry_numbers, find_broken
from cdp.types import ConsensusGraph, Labels, Status
from cdp.types.constraints import Constraints


def evidence(n_images, pairs=(), constraints=None):
    ids = np.array([pair[:2] for pair in pairs], np.int32).reshape(-1, 2)
    doubt = np.array([1 - pair[2] for pair in pairs], np.float32)
    scored = ConsensusGraph(ids, doubt, n_images)
    return Evidence(scored, constraints or Constraints(n_images), k=5, threshold=0.3, max_cluster_size=100)


def test_an_identity_that_is_held_gets_no_new_images():
    before = np.array([0, 0, 0, 1, 1, -1, -1])
    after = np.array([0, 0, 0, 0, 0, 0, 0])
    held = stabilize_ids(before, after, evidence(7), id_stability=1)
    assert held.tolist() == [0, 0, 0, 1, 1, 0, 0]
    assert stabilize_ids(before, after, evidence(7), id_stability=0).tolist() == after.tolist()


def test_those_are_let_go_that_put_the_most_pairs_right():
    before = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    after = np.array([0, 0, 0, 0, 2, 2, 2, 2])
    pairs = [(0, 2, 0.9), (0, 3, 0.9), (1, 2, 0.9), (1, 3, 0.9), (4, 6, 0.4)]
    held = stabilize_ids(before, after, evidence(8, pairs), id_stability=0.75)
    assert held.tolist() == [0, 0, 0, 0, 2, 2, 3, 3]


def test_what_fell_apart_or_lost_its_group_is_put_together():
    before = np.array([0, 0, 0, 0, 1, 1])
    after = np.array([0, 2, 2, 3, -1, -1])
    held = stabilize_ids(before, after, evidence(6), id_stability=1)
    assert (held == before).sum() >= 5
    assert not len(find_broken(before, held))


def test_what_corrections_break_is_broken():
    before, after = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0])
    said = Constraints(4, must=np.array([[1, 2]]))
    assert stabilize_ids(before, after, evidence(4, (), said), 1).tolist() == after.tolist()
    apart, rejected = np.array([0, 3]), Constraints(2, rejected=np.array([1]))
    assert stabilize_ids(np.zeros(2, int), apart, evidence(2, (), rejected), 1).tolist() == apart.tolist()
    cannot = Constraints(2, cannot=np.array([[0, 1]]))
    lost = np.array([-1, -1])
    assert stabilize_ids(np.zeros(2, int), lost, evidence(2, (), cannot), 1).tolist() == lost.tolist()


def test_small_new_groups_wait_until_they_are_sure_or_larger():
    is_new = np.arange(9) > 1
    labels = Labels.from_array(np.array([0, 0, 1, 1, 2, 2, 3, 3, 3]))
    pairs = [(0, 1, 0.4), (2, 3, 0.78), (4, 5, 0.8), (6, 7, 0.4), (7, 8, 0.4)]
    waiting = defer_small_groups(is_new, labels, evidence(9, pairs))
    assert waiting.labels.tolist() == [0, 0, -1, -1, 1, 1, 2, 2, 2], (
        "the threshold is 0.3, 0.7 of the way to 1 is 0.79"
    )
    assert (waiting.status[2:4] == Status.ISOLATED).all()
    for said in (
        Constraints(9, must=np.array([[2, 3]])),
        Constraints(9, cannot=np.array([[0, 3]])),
        Constraints(9, named={3: "Anna"}),
    ):
        assert defer_small_groups(is_new, labels, evidence(9, pairs, said)) is labels
    assert defer_small_groups(np.zeros(9, bool), labels, evidence(9, pairs)) is labels
    large = Labels.from_array(np.repeat(np.arange(4), [9, 9, 9, 5]))
    waiting = defer_small_groups(np.arange(32) > 26, large, evidence(32))
    assert (waiting.labels[27:] < 0).all(), "six are two thirds of nine"


@given(
    st.lists(st.tuples(st.integers(-1, 6), st.integers(-1, 6)), min_size=1, max_size=40),
    st.sampled_from([0.5, 0.8, 0.99, 1.0]),
)
def test_no_more_numbers_are_lost_than_may_be(images, keep):
    before = _whole_groups(np.array([one for one, _ in images]))
    labels = _whole_groups(np.array([other for _, other in images]))
    labels = np.unique(labels, return_inverse=True)[1] - int((labels < 0).any())
    free, _ = carry_numbers(before, labels.astype(np.int32), 100)
    held = stabilize_ids(before, free, evidence(len(images)), keep)
    n_before = len(np.unique(before[before >= 0]))
    assert len(find_broken(before, held)) <= int((1 - keep) * n_before + 1e-9)


def _whole_groups(numbers):
    """Groups of one image are none."""
    sizes = np.bincount(numbers + 1, minlength=1)[numbers + 1]
    return np.where(sizes < 2, -1, numbers).astype(np.int32)

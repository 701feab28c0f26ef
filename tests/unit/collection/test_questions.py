"""What is asked: the most valuable first, then what nobody doubts, and nothing that follows from what was said."""

import numpy as np

from cdp.collection.questions import rank_questions
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph
from cdp.types.constraints import Constraints

SETTINGS = ConsensusSettings.of(k=4)


def ask(pairs, identity, confidence=None, **said):
    ids = np.array([pair[:2] for pair in pairs], np.int32).reshape(-1, 2)
    scored = ConsensusGraph(ids, np.array([1 - pair[2] for pair in pairs], np.float32), len(identity))
    sure = np.full(len(identity), 0.9, np.float32) if confidence is None else np.array(confidence, np.float32)
    return rank_questions(
        scored, np.array(identity, np.int32), sure, SETTINGS, 0.3, Constraints(len(identity), **said)
    )


def asked(found):
    return [tuple(sorted(images)) for images in found.images.tolist()]


def test_what_nobody_doubts_is_asked_when_nothing_else_is_left():
    pairs, identity = [(0, 1, 0.99), (2, 3, 0.99)], [0, 0, 1, 1]
    assert asked(ask(pairs, identity)) == [(0, 1), (2, 3)]
    assert asked(ask(pairs, identity, must=[[0, 1]])) == [(2, 3)]
    assert not len(ask(pairs, identity, must=[[0, 1], [2, 3]]))


def test_doubts_come_first_and_by_value():
    pairs = [(0, 1, 0.99), (2, 3, 0.99), (0, 2, 0.5), (1, 3, 0.5), (0, 4, 0.4)]
    found = ask(pairs, [0, 0, 1, 1, -1])
    assert asked(found)[0] == (0, 2)
    assert found.value[0] >= 0.5
    assert (0, 1) not in asked(found)


def test_the_least_sure_piece_of_a_part_is_asked_about():
    pairs = [(0, 1, 0.99), (0, 2, 0.99), (1, 2, 0.99)]
    found = ask(pairs, [0, 0, 0], [0.9, 0.8, 0.3])
    assert asked(found) == [(0, 2)]
    assert np.isclose(found.probability[0], 0.99, atol=0.1)


def test_what_follows_is_not_asked():
    pairs = [(0, 1, 0.99), (2, 3, 0.99), (0, 2, 0.5), (1, 3, 0.5)]
    found = ask(pairs, [0, 0, 1, 1], must=[[0, 1], [2, 3]], cannot=[[0, 2]])
    assert not len(found)


def test_a_lone_image_is_held_against_groups_that_nothing_ties_it_to():
    pairs = [(0, 1, 0.99), (2, 3, 0.99), (3, 4, 0.99), (2, 4, 0.99)]
    found = ask(pairs, [0, 0, 1, 1, 1, -1], must=[[0, 1], [2, 3], [3, 4]])
    assert asked(found) == [(2, 5), (0, 5)]
    assert not len(ask(pairs, [0, 0, 1, 1, 1, -1], must=[[0, 1], [2, 3], [3, 4]], cannot=[[0, 5], [2, 5]]))


def test_a_collection_without_groups_can_be_asked_about():
    assert not len(ask([], [-1, -1, -1]))
    ask([(0, 1, 0.2)], [-1, -1, -1])

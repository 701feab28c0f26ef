"""What is said of every group, against a look at one group at a time; and where nodes are drawn."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cdp import ConsensusGraph, KnnGraph, Labels
from cdp.web.report.graph_view import choose_groups, color_nodes, place_nodes
from cdp.web.report.survey import survey_groups


def slow_survey(labels, truth):
    """Majority, wrong members and missed images, one group after the other."""
    majority, wrong, sizes = {}, set(), Counter(label for label in labels if label >= 0)
    for group in sizes:
        known = Counter(who for label, who in zip(labels, truth, strict=True) if label == group and who >= 0)
        majority[group] = min(known, key=lambda who: (-known[who], who)) if known else -1
        for row, label in enumerate(labels):
            if label == group and truth[row] >= 0 and truth[row] != majority[group]:
                wrong.add(row)
    expected = []
    for label, who in zip(labels, truth, strict=True):
        mine = [group for group in sizes if label < 0 and who >= 0 and majority[group] == who]
        expected.append(min(mine, key=lambda group: (-sizes[group], group)) if mine else -1)
    return majority, wrong, expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), min_size=1, max_size=30))
def test_the_survey_agrees_with_its_slow_twin(rows):
    labels = Labels.from_array([label for label, _ in rows])
    truth = np.array([who for _, who in rows])
    survey = survey_groups(labels, truth)
    if (truth < 0).all():
        assert survey.identities is None
        assert not survey.wrong.any()
        return
    majority, wrong, expected = slow_survey(labels.labels.tolist(), truth.tolist())
    assert survey.majority.tolist() == [majority[group] for group in range(labels.n_identities)]
    assert set(np.flatnonzero(survey.wrong).tolist()) == wrong
    assert survey.expected.tolist() == expected
    for group in range(labels.n_identities):
        members = survey.members(group).tolist()
        assert sorted(members) == np.flatnonzero(labels.labels == group).tolist()
        assert survey.n_wrong[group] == len(wrong & set(members))
        assert survey.n_missed[group] == len(survey.missed(group)) == expected.count(group)
    several = {who for who, number in Counter(majority.values()).items() if number > 1 and who >= 0}
    assert {who for who, _ in survey.split_identities()} == several


def test_without_identities_a_discarded_image_goes_where_it_is_nearest():
    labels = Labels.from_array([0, 0, 1, 1, -1, -1, -1])
    neighbors = np.array([[1], [0], [3], [2], [2], [0], [4]])
    base = KnnGraph(neighbors, np.full((7, 1), 0.5, np.float32))
    accepted = ConsensusGraph(np.array([[0, 1], [2, 3], [1, 4], [3, 4]]), np.array([0.1, 0.1, 0.2, 0.3]), 7)
    assert survey_groups(labels, None).expected.tolist() == [-1] * 7
    assert survey_groups(labels, None, None, base).expected.tolist() == [-1, -1, -1, -1, 1, 0, -1]
    assert survey_groups(labels, None, accepted, base).expected.tolist() == [-1, -1, -1, -1, 0, 0, -1]


def test_the_graph_shows_mistakes_and_never_more_than_there_is_room_for():
    truth = np.repeat(np.arange(60), 5)
    found = truth.copy()
    found[found == 7] = 8
    found[[0, 50, 100]] = -1
    survey = survey_groups(Labels.from_array(found), truth)
    groups = choose_groups(survey, 80)
    joined = int(survey.labels[np.flatnonzero(truth == 7)[0]])
    assert joined in groups
    assert survey.sizes[groups].sum() <= 80
    assert len(set(groups)) == len(groups) >= 8


def test_neighbors_never_share_a_color():
    generator = np.random.default_rng(2)
    owners = np.repeat(np.arange(30), 4)
    groups = np.repeat(np.arange(10), 12)
    edges = generator.integers(0, 120, (25, 2))
    colors = color_nodes(owners, groups, edges)
    assert set(colors) <= set(range(12))
    by_owner = dict(zip(owners.tolist(), colors, strict=True))
    assert [by_owner[owner] for owner in owners.tolist()] == colors
    for one, other in edges.tolist():
        assert owners[one] == owners[other] or colors[one] != colors[other]
    for group in range(10):
        assert len({colors[at] for at in np.flatnonzero(groups == group)}) == 3


def test_nodes_keep_clear_of_one_another_and_the_same_every_time():
    # Three cliques of six; two of them joined by one edge; two nodes alone.
    cliques = [(a + base, b + base) for base in (0, 6, 12) for a in range(6) for b in range(a)]
    edges = np.array([*cliques, (0, 6)])
    positions = place_nodes(20, edges)
    np.testing.assert_array_equal(positions, place_nodes(20, edges))
    distance = np.sqrt(((positions[:, None] - positions[None]) ** 2).sum(axis=2)) + 9 * np.eye(20)
    assert distance.min() > 0.3
    # Nodes of different components keep clear of one another.
    assert distance[:12, 12:].min() > 1.29
    inside = max(distance[a, b] for a, b in cliques)
    assert inside < 3
    assert distance[0, 6] < 5
    assert place_nodes(0, np.empty((0, 2), np.int64)).shape == (0, 2)

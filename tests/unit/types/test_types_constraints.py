"""Constraints: kept by both ways of grouping, as slow twins keep them; contradictions are named with their chain."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refuses

import reference
from cdp.grouping.group import group
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph, Status
from cdp.types.constraints import (
    Constraints,
    check_constraints,
    constrain_parts,
    find_contradiction,
    join_certain,
    said_of_pairs,
)


def random_case(seed):
    """A graph of few images, and constraints that do not contradict each other: drawn from identities of the images."""
    generator = np.random.default_rng(seed)
    n_images = int(generator.integers(4, 16))
    truth = generator.integers(0, 4, n_images)
    every = np.array(list(combinations(range(n_images), 2)))
    ids = every[np.sort(generator.choice(len(every), min(len(every), 4 * n_images), replace=False))]
    graph = ConsensusGraph(ids, generator.random(len(ids)) ** 2, n_images)
    rejected = np.flatnonzero(generator.random(n_images) < 0.1)
    free = every[~np.isin(every, rejected).any(axis=1)]
    asked = free[generator.choice(len(free), min(len(free), 6), replace=False)] if len(free) else free
    is_same = truth[asked[:, 0]] == truth[asked[:, 1]]
    named = {int(row): f"person {truth[row]}" for row in generator.choice(n_images, 4) if row not in rejected}
    return graph, Constraints(n_images, asked[is_same], asked[~is_same], named, rejected), generator


def links(constraints):
    by_name = {}
    for row, name in constraints.named.items():
        by_name.setdefault(name, []).append(row)
    together = [pair for rows in by_name.values() for pair in pairwise(rows)]
    return [*map(tuple, constraints.must.tolist()), *together]


def usable(graph, constraints):
    """Pairs of images that are not rejected and may be together."""
    cannot = set(map(tuple, constraints.cannot.tolist()))
    return [
        row
        for row, pair in enumerate(graph.ids.tolist())
        if not set(pair) & set(constraints.rejected.tolist()) and tuple(pair) not in cannot
    ]


@pytest.mark.parametrize("seed", range(60))
def test_average_linkage_agrees_with_its_definition(seed):
    graph, constraints, generator = random_case(seed)
    k, threshold = int(generator.integers(1, 12)), float(generator.choice([0.2, 0.4, 0.7]))
    found = group(graph, ConsensusSettings.of(k=k, max_cluster_size=50), threshold, constraints)
    rows = usable(graph, constraints)
    ends, chance = graph.ids[rows].tolist(), (1 - graph.doubt[rows]).tolist()
    cannot = constraints.cannot.tolist()
    twin = reference.agglomerate(
        ends, chance, graph.n_images, k, threshold, 50, links(constraints), cannot, constraints.named
    )
    alone = {frozenset([row]) for row in constraints.named if not any(row in one for one in twin)}
    assert reference.partition(found.labels) == twin | alone


@pytest.mark.parametrize("seed", range(60))
def test_components_agree_with_joining_the_surest_first(seed):
    graph, constraints, _ = random_case(seed)
    found = group(graph, ConsensusSettings.of("paper", max_cluster_size=50), 0.96, constraints)
    rows = usable(graph, constraints)
    twin = reference.join_surest(
        graph.ids[rows].tolist(),
        graph.doubt[rows].tolist(),
        graph.n_images,
        links(constraints),
        constraints.cannot.tolist(),
        constraints.named,
    )
    alone = {frozenset([row]) for row in constraints.named if not any(row in one for one in twin)}
    assert reference.partition(found.labels) == twin | alone


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["components", "average"]), st.integers(2, 6))
def test_constraints_and_the_greatest_size_are_kept(seed, grouping, max_cluster_size):
    graph, constraints, _ = random_case(seed)
    atoms = reference.join_together(graph.n_images, links(constraints))
    largest = max(max_cluster_size, *map(len, atoms))
    labels = group(graph, ConsensusSettings.of(grouping=grouping, max_cluster_size=largest), 0.3, constraints)
    found = labels.labels
    for one, other in links(constraints):
        assert found[one] == found[other] >= 0
    for one, other in constraints.cannot.tolist():
        assert found[one] != found[other] or found[one] < 0
    for one, other in combinations(constraints.named, 2):
        assert (found[one] == found[other]) == (constraints.named[one] == constraints.named[other])
    assert (found[constraints.rejected] == -1).all()
    assert (labels.status[constraints.rejected] == Status.REJECTED).all()
    assert np.bincount(found[found >= 0], minlength=1).max() <= largest


@pytest.mark.parametrize("grouping", ["components", "average"])
def test_groups_with_images_that_must_be_together_are_one(grouping):
    cliques = [pair for first in (0, 5) for pair in combinations(range(first, first + 5), 2)]
    graph = ConsensusGraph(np.array(cliques), np.full(len(cliques), 0.1), 10)
    chosen = ConsensusSettings.of(grouping=grouping)
    assert group(graph, chosen, 0.5).n_identities == 2
    assert group(graph, chosen, 0.5, Constraints(10, must=np.array([[0, 9]]))).n_identities == 1


@pytest.mark.parametrize("grouping", ["components", "average"])
def test_no_constraints_change_nothing(grouping):
    graph, _, _ = random_case(5)
    chosen = ConsensusSettings.of(grouping=grouping)
    free = group(graph, chosen, 0.3, Constraints(graph.n_images))
    np.testing.assert_array_equal(free.labels, group(graph, chosen, 0.3).labels)
    np.testing.assert_array_equal(free.confidence, group(graph, chosen, 0.3).confidence)


def test_two_people_may_have_the_same_name():
    together = np.array([[1, 2], [7, 8]])
    named = dict.fromkeys((1, 2, 4, 7, 8), "Anna") | {5: "Bert"}
    one = Constraints(9, must=together, named=named)
    assert len(set(one.name_of[[1, 2, 4, 7, 8]].tolist())) == 1
    two = Constraints(9, must=together, cannot=np.array([[1, 7]]), named=named)
    check_constraints(two, 600)
    assert two.name_of[1] == two.name_of[2] == two.name_of[4], "to the first that nothing keeps it from"
    assert two.name_of[7] == two.name_of[8] != two.name_of[1]
    assert len({int(two.name_of[row]) for row in (1, 7, 5)}) == 3
    atom = join_certain(two)
    assert atom[1] == atom[2] == atom[4] != atom[7] == atom[8]


@pytest.mark.parametrize(
    ("constraints", "code", "fields"),
    [
        (
            Constraints(9, must=np.array([[0, 1], [1, 2], [2, 3]]), cannot=np.array([[3, 0]])),
            "corrections-contradict",
            {"images": (0, 1, 2, 3)},
        ),
        (
            Constraints(9, must=np.array([[4, 5]]), named={4: "Anna", 5: "Bert {0}"}),
            "corrections-contradict",
            {"images": (4, 5)},
        ),
        (
            Constraints(9, must=np.array([[4, 5]]), rejected=np.array([5])),
            "corrections-contradict",
            {"images": (5, 4)},
        ),
        (
            Constraints(9, named={5: "Anna"}, rejected=np.array([5])),
            "corrections-contradict",
            {"images": (5,)},
        ),
    ],
)
def test_contradictions_are_named_with_their_chain(constraints, code, fields):
    with refuses(code, **fields):
        check_constraints(constraints, 600)


def test_messages_can_call_images_by_their_paths():
    constraints = Constraints(3, must=np.array([[0, 1]]), cannot=np.array([[0, 1]]))
    found = find_contradiction(constraints)
    assert found is not None
    assert "a.jpg and b.jpg are said to be different" in found.sentence(["a.jpg", "b.jpg"].__getitem__)


def test_what_is_wrong_with_constraints_is_said():
    with refuses("constraints-images-unknown", row=-1, count=2, n_images=9):
        Constraints(9, must=np.array([[-1, 9]]))
    with refuses("constraints-image-differs-from-itself", image=3):
        Constraints(9, cannot=np.array([[3, 3]]))
    many = Constraints(9, must=np.array([[0, 1], [1, 2]]))
    with refuses("corrections-exceed-max-cluster-size", image=0, found=3, max_cluster_size=2):
        check_constraints(many, 2)


def slow_said_of_parts(constraints, part):
    """(one, two, rejected): pairs of parts that are known to be one or two, and parts with a rejected image, step by step."""
    n_parts = max(part) + 1
    one = {(at, at) for at in range(n_parts)}
    one |= {(part[a], part[b]) for pair in links(constraints) for a, b in (pair, pair[::-1])}
    for middle in range(n_parts):
        one |= {(a, b) for a in range(n_parts) for b in range(n_parts) if {(a, middle), (middle, b)} <= one}
    named = constraints.named.items()
    apart = [*constraints.cannot.tolist(), *((a, b) for a, x in named for b, y in named if x != y)]
    two = set()
    for pair in apart:
        for a, b in (pair, pair[::-1]):
            two |= {(x, y) for x, ax in one if ax == part[a] for by, y in one if by == part[b]}
    return one, two - one, {part[row] for row in constraints.rejected.tolist()}


@pytest.mark.parametrize("seed", range(60))
def test_what_follows_for_parts_agrees_with_its_slow_twin(seed):
    graph, constraints, generator = random_case(seed)
    part = generator.integers(0, 8, graph.n_images)
    # A part of two people has no one name.
    fresh = 8 + np.arange(graph.n_images)
    part = np.unique(
        np.where([row in constraints.named for row in range(graph.n_images)], fresh, part),
        return_inverse=True,
    )[1]
    found = constrain_parts(constraints, part)
    one, two, rejected = slow_said_of_parts(constraints, part.tolist())
    every = np.array([(a, b) for a in range(part.max() + 1) for b in range(part.max() + 1)])
    said = [1 if tuple(pair) in one else -1 if tuple(pair) in two else 0 for pair in every.tolist()]
    names = [
        {name for row, name in constraints.named.items() if (part[row], at) in one}
        for at in range(part.max() + 1)
    ]
    if all(len(known) < 2 for known in names):
        assert said_of_pairs(every, found).tolist() == said
    assert set(found.rejected.tolist()) == rejected

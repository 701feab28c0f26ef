"""Importance of the mediator's inputs, and agreement of graphs, against their slow twins."""

import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp import CDP, KnnGraph
from cdp.evaluate.agreement import agreement, count_same_edges, count_same_pairs
from cdp.evaluate.importance import permutation_importance
from cdp.knn.search import knn_graphs
from cdp.labeling.joined_views import first_lists
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import collect_opinions
from cdp.types import column_names
from cdp.types.opinions import ALL_INPUTS, block_columns
from cdp.types.run_record import Importance


class OneColumn:
    """A mediator whose probability is one column of its inputs."""

    committee = ("a", "b")
    inputs = ("relationship", "affinity", "distribution")

    def __init__(self, column):
        self.column = column

    def doubt(self, matrix):
        return (1 - matrix[:, self.column]).astype(np.float32)


@pytest.fixture
def training_pairs():
    generator = np.random.default_rng(5)
    same = generator.random(400) < 0.4
    matrix = generator.random((400, 17)).astype(np.float32)
    # Rounded, so that many pairs tie.
    matrix[:, 3] = np.clip(0.5 * same + 0.6 * generator.random(400), 0, 1).round(1)
    return matrix, same


def slow_average_precision(doubt, same):
    """Mean over the true pairs: of all pairs no more doubtful than this one, how many are true?"""
    return np.mean([same[doubt <= doubt[pair]].mean() for pair in np.flatnonzero(same)])


def test_importance_agrees_with_its_slow_twin(training_pairs):
    matrix, same = training_pairs
    mediator = OneColumn(3)
    kept = matrix.copy()
    found = permutation_importance(mediator, matrix, same, seed=9, repeats=3)
    np.testing.assert_array_equal(matrix, kept)
    whole = slow_average_precision(mediator.doubt(matrix), same)
    for one in found:
        columns = [
            at
            for at, name in enumerate(column_names(mediator.committee))
            if name in column_names(mediator.committee, [one.block])
        ]
        drops = []
        for repeat in range(3):
            order = np.random.default_rng([9, repeat]).permutation(400)
            shuffled = matrix.copy()
            for row, other in enumerate(order):
                for column in columns:
                    shuffled[row, column] = matrix[other, column]
            drops.append(whole - slow_average_precision(mediator.doubt(shuffled), same))
        assert one.drop == pytest.approx(np.mean(drops))
        assert one.sd == pytest.approx(np.std(drops))
    worth = {one.block: one.drop for one in found}
    assert list(worth) == ["relationship", "affinity", "distribution"]
    assert worth["affinity"] > 0.2
    assert worth["relationship"] == worth["distribution"] == 0


def test_a_real_mediator_needs_its_only_input(small_views):
    cdp = CDP("paper", k=6, inputs=("affinity",), threads=1).fit(small_views)
    graphs = knn_graphs(list(small_views), 6, runtime=Runtime.of(threads=1))
    pairs = candidate_pairs(graphs[0])
    matrix = collect_opinions(pairs, small_views, graphs).matrix(("affinity",))
    ends = small_views.identities[pairs.ids]
    (only,) = permutation_importance(cdp.mediator_, matrix, ends[:, 0] == ends[:, 1], seed=0)
    assert only.block == "affinity"
    # Without its only input it can only guess: precision falls to the share of true pairs.
    share = float((ends[:, 0] == ends[:, 1]).mean())
    assert only.drop == pytest.approx(1 - share, abs=0.06)
    assert 0 < only.sd < 0.05


def test_a_mediator_without_a_committee_has_an_empty_block():
    class Alone(OneColumn):
        committee = ()

    matrix = np.random.default_rng(0).random((20, 5)).astype(np.float32)
    found = permutation_importance(Alone(0), matrix, np.arange(20) < 9, seed=0, repeats=2)
    assert found[0] == Importance(block="relationship", drop=0.0, sd=0.0)


def test_importance_says_what_is_wrong(training_pairs):
    matrix, same = training_pairs
    with refuses("importance-shape-wrong", expected=(400, 17), found=(400, 16)):
        permutation_importance(OneColumn(3), matrix[:, 1:], same, seed=0)
    with refuses("importance-pairs-one-sided", pairs=400):
        permutation_importance(OneColumn(3), matrix, np.ones(400, bool), seed=0)
    with refuses("importance-pairs-one-sided", pairs=400):
        permutation_importance(OneColumn(3), matrix, np.zeros(400, bool), seed=0)
    with refuses("importance-repeats-too-few", value=0):
        permutation_importance(OneColumn(3), matrix, same, seed=0, repeats=0)


def test_blocks_and_names_are_in_the_same_order():
    names = column_names(["x", "y"], ALL_INPUTS)
    blocks = block_columns(["x", "y"], ALL_INPUTS)
    assert [column for block in blocks.values() for column in block] == list(range(len(names)))
    assert {names[column].partition("(")[0] for column in blocks["distribution"]} == {"mean", "spread"}
    assert [names[column] for column in blocks["affinity"]] == [
        "affinity(base)",
        "affinity(x)",
        "affinity(y)",
    ]


def slow_agreement(graphs):
    edges = [reference.edges(graph.neighbors) for graph in graphs]
    return np.array([[len(one & other) / len(one) for other in edges] for one in edges])


@pytest.mark.parametrize("block", [8192, 70])
def test_agreement_agrees_with_its_slow_twin(small_views, monkeypatch, block):
    monkeypatch.setattr("cdp.evaluate.agreement._ROWS_PER_BLOCK", block)
    graphs = knn_graphs(list(small_views), 5, runtime=Runtime.of(threads=1))
    graphs[1] = knn_graphs([small_views.base], 9, runtime=Runtime.of(threads=1))[0]
    found = agreement(graphs)
    np.testing.assert_allclose(found, slow_agreement(graphs))
    np.testing.assert_array_equal(np.diagonal(found), 1)
    # The nine nearest hold the five nearest, not the other way round.
    assert found[0, 1] == 1
    assert found[1, 0] < 0.7


def test_agreement_of_the_first_images(small_views):
    graphs = knn_graphs(list(small_views), 5, runtime=Runtime.of(threads=1))
    first = [first_lists(graph, 200, Runtime()) for graph in graphs]
    np.testing.assert_allclose(agreement(graphs, n_images=200), slow_agreement(first))


def test_counts_of_edges_agree_with_their_slow_twins(small_views, monkeypatch):
    monkeypatch.setattr("cdp.evaluate.agreement._ROWS_PER_BLOCK", 70)
    graphs = knn_graphs(list(small_views), 5, runtime=Runtime.of(threads=1))
    identities = np.where(np.arange(200) % 7, small_views.identities[:200], -1)
    for graph, (n_known, n_same) in zip(graphs, count_same_edges(graphs, identities).tolist(), strict=True):
        ends = [
            (identities[image], identities[other])
            for image in range(200)
            for other in graph.neighbors[image]
            if other < 200
        ]
        known = [(one, other) for one, other in ends if one >= 0 and other >= 0]
        assert (n_known, n_same) == (len(known), sum(one == other for one, other in known))
        pairs = [pair for pair in map(tuple, reference.edges(graph.neighbors)) if max(pair) < 200]
        known = [(one, other) for one, other in identities[pairs].tolist() if one >= 0 and other >= 0]
        expected = (len(known), sum(one == other for one, other in known))
        assert count_same_pairs(graph, identities) == expected


def test_agreement_of_graphs_with_gaps():
    first = KnnGraph(
        np.array([[1, 2], [0, -1], [-1, -1]]), np.array([[0.9, 0.5], [0.9, -np.inf], [-np.inf] * 2])
    )
    second = KnnGraph(np.array([[-1], [-1], [0]]), np.array([[-np.inf], [-np.inf], [0.5]]))
    empty = KnnGraph(np.full((3, 1), -1), np.full((3, 1), -np.inf))
    expected = [[1, 0.5, 0], [1, 1, 0], [0, 0, 0]]
    np.testing.assert_array_equal(agreement([first, second, empty]), expected)


def test_agreement_is_about_the_same_images(small_views):
    graph = knn_graphs([small_views.base], 5, runtime=Runtime.of(threads=1))[0]
    part = knn_graphs([small_views.take(np.arange(50)).base], 5, runtime=Runtime.of(threads=1))[0]
    with refuses("agreement-images-differ", found=(50, 300)):
        agreement([graph, part])

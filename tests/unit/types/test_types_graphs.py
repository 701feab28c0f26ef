import dataclasses

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.types import ConsensusGraph, KnnGraph, Pairs

MISSING = -np.inf


def test_knn_graph_keeps_its_tables_read_only_and_leaves_the_callers_alone():
    neighbors, similarity = (
        np.array([[1, 2], [2, -1], [-1, -1]]),
        np.array([[0.9, 0.9], [0.5, MISSING], [MISSING] * 2]),
    )
    graph = KnnGraph(neighbors, similarity)
    assert (graph.n_images, graph.k) == (3, 2)
    assert (graph.neighbors.dtype, graph.similarity.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(graph.neighbors, neighbors)
    for array in (graph.neighbors, graph.similarity):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0
    assert neighbors.flags.writeable
    assert similarity.flags.writeable
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.method = "other"


def test_knn_graph_repr_tells_method_and_recall():
    tables = np.array([[1], [0]]), np.array([[0.5], [0.5]])
    assert repr(KnnGraph(*tables)) == "KnnGraph: 2 images x 1 neighbors (given)"
    assert repr(KnnGraph(*tables, "nndescent", 0.98765)) == (
        "KnnGraph: 2 images x 1 neighbors (nndescent, recall 0.988)"
    )


@pytest.mark.parametrize(
    ("neighbors", "similarity", "code", "fields"),
    [
        (
            [[1], [0]],
            [[0.5, 0.1], [0.5, 0.1]],
            "knn-tables-differ",
            {"neighbors": (2, 1), "similarity": (2, 2)},
        ),
        (
            [1, 0],
            [0.5, 0.5],
            "knn-tables-differ",
            {"neighbors": (2,), "similarity": (2,)},
        ),
        (
            np.empty((0, 3), int),
            np.empty((0, 3)),
            "knn-tables-differ",
            {"neighbors": (0, 3), "similarity": (0, 3)},
        ),
        ([[1.0], [0.0]], [[0.5], [0.5]], "knn-neighbors-not-whole", {"found": "float64"}),
        (
            [[1], [2]],
            [[0.5], [0.5]],
            "knn-neighbor-out-of-range",
            {"row": 1},
        ),
        ([[1], [1]], [[0.5], [0.5]], "knn-neighbor-is-image", {"row": 1}),
        (
            [[-1, 1], [0, -1]],
            [[MISSING, 0.5], [0.5, MISSING]],
            "knn-neighbor-after-missing",
            {"row": 0},
        ),
        ([[1], [0]], [[0.5], [np.nan]], "knn-similarity-missing", {"row": 1}),
        ([[1], [0]], [[0.5], [MISSING]], "knn-similarity-missing", {"row": 1}),
        ([[1], [-1]], [[0.5], [0.5]], "knn-similarity-missing", {"row": 1}),
        (
            [[1, 2], [0, 2], [0, 1]],
            [[0.5, 0.4], [0.5, 0.6], [0.5, 0.4]],
            "knn-not-sorted",
            {"row": 1},
        ),
        (
            [[1, 2], [0, 2], [1, 1]],
            [[0.5, 0.4], [0.5, 0.4], [0.5, 0.5]],
            "knn-neighbor-repeated",
            {"row": 2},
        ),
    ],
)
def test_knn_graph_refusals(neighbors, similarity, code, fields):
    with refuses(code, **fields):
        KnnGraph(np.array(neighbors), np.array(similarity))


def test_knn_graph_finds_a_repeated_neighbor_that_is_not_adjacent():
    neighbors = np.array([[1, 2, 1], [0, 2, -1], [0, 1, -1]])
    similarity = np.array([[0.9, 0.8, 0.7], [0.5, 0.4, MISSING], [0.5, 0.4, MISSING]])
    with refuses("knn-neighbor-repeated", row=0):
        KnnGraph(neighbors, similarity)


def test_pairs_are_sorted_unique_and_read_only():
    pairs = Pairs(np.array([[0, 2], [0, 3], [1, 2]]), 4)
    assert len(pairs) == 3
    assert pairs.ids.dtype == np.int32
    assert repr(pairs) == "Pairs: 3 pairs of 4 images"
    np.testing.assert_array_equal(pairs[1:].ids, [[0, 3], [1, 2]])
    assert pairs[1:].n_images == 4
    with pytest.raises(ValueError, match="read-only"):
        pairs.ids[0, 0] = 1


def test_no_pairs_are_pairs_too():
    assert Pairs(np.array([]), 3).ids.shape == (0, 2)
    assert len(ConsensusGraph(np.empty((0, 2), int), np.empty(0), 3)) == 0


@pytest.mark.parametrize(
    ("ids", "code", "fields"),
    [
        ([[1, 0]], "pairs-first-not-smaller", {}),
        ([[1, 1]], "pairs-first-not-smaller", {}),
        ([[0, 1], [0, 1]], "pairs-not-sorted", {}),
        ([[0, 2], [0, 1]], "pairs-not-sorted", {}),
        ([[1, 2], [0, 1]], "pairs-not-sorted", {}),
        ([[0, 4]], "pair-ids-out-of-range", {"n_images": 4, "found": (0, 4)}),
        ([[-1, 2]], "pair-ids-out-of-range", {"n_images": 4, "found": (-1, 2)}),
        ([[0.0, 1.0]], "pair-ids-wrong", {"found": ("float64", (1, 2))}),
        ([[0, 1, 2]], "pair-ids-wrong", {"found": ("int64", (1, 3))}),
        ([0, 1], "pair-ids-wrong", {"found": ("int64", (2,))}),
    ],
)
def test_pairs_refusals(ids, code, fields):
    with refuses(code, **fields):
        Pairs(np.array(ids), 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_consensus_graph_keeps_the_precision_of_its_doubts(dtype):
    ids, doubt = np.array([[0, 1], [1, 2]]), np.array([1e-30, 0.25], dtype)
    graph = ConsensusGraph(ids, doubt, 4)
    assert graph.doubt.dtype == dtype
    np.testing.assert_array_equal(graph.doubt, doubt)
    np.testing.assert_array_equal(graph.probability, [1, 0.75])
    assert repr(graph) == "ConsensusGraph: 2 accepted pairs of 4 images"
    for array in (graph.ids, graph.doubt):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert ids.flags.writeable
    assert doubt.flags.writeable


def test_consensus_graph_turns_pairs_around_in_its_own_copy():
    ids = np.array([[2, 1], [0, 3]], np.int32)
    graph = ConsensusGraph(ids, np.array([0.1, 0.2]), 4)
    np.testing.assert_array_equal(graph.ids, [[1, 2], [0, 3]])
    np.testing.assert_array_equal(ids, [[2, 1], [0, 3]])


def test_consensus_graph_widens_other_doubts():
    assert ConsensusGraph(np.array([[0, 1]]), np.array([0]), 2).doubt.dtype == np.float64
    assert ConsensusGraph(np.array([[0, 1]]), np.array([0.5], np.float16), 2).doubt.dtype == np.float64


@pytest.mark.parametrize(
    ("ids", "doubt", "code", "fields"),
    [
        ([[0, 1]], [0.1, 0.2], "doubts-differ", {"expected": 1, "found": (2,)}),
        ([[0, 1]], [-0.5], "doubt-negative", {"pair": 0, "value": -0.5}),
        (
            [[0, 1], [1, 2]],
            [0.1, np.nan],
            "doubt-negative",
            {"pair": 1},
        ),
        ([[0, 1]], [np.inf], "doubt-infinite", {}),
        ([[0, 1], [2, 2]], [0.1, 0.1], "pair-joins-itself", {"pair": 1, "image": 2}),
        ([[0, 3]], [0.1], "pair-ids-out-of-range", {"n_images": 3, "found": (0, 3)}),
        (
            [[0.5, 1]],
            [0.1],
            "pair-ids-wrong",
            {"found": ("float64", (1, 2))},
        ),
    ],
)
def test_consensus_graph_refusals(ids, doubt, code, fields):
    with refuses(code, **fields):
        ConsensusGraph(np.array(ids), np.array(doubt), 3)


def test_a_repeated_pair_keeps_its_least_doubt():
    graph = ConsensusGraph(np.array([[3, 1], [0, 1], [1, 3], [0, 1]]), np.array([0.3, 0.1, 0.2, 0.4]), 5)
    assert graph.ids.tolist() == [[0, 1], [1, 3]]
    assert graph.doubt.tolist() == [0.1, 0.2]


def test_pairs_without_repeats_stay_in_the_order_given():
    graph = ConsensusGraph(np.array([[2, 3], [1, 0]]), np.array([0.3, 0.1]), 5)
    assert graph.ids.tolist() == [[2, 3], [0, 1]]
    assert graph.doubt.tolist() == [0.3, 0.1]

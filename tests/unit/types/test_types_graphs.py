import dataclasses

import numpy as np
import pytest

from cdp.errors import InputError
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
    ("neighbors", "similarity", "message"),
    [
        (
            [[1], [0]],
            [[0.5, 0.1], [0.5, 0.1]],
            "KnnGraph: neighbors (2, 1) and similarity (2, 2) must be two tables of the same shape, "
            "images x k.",
        ),
        (
            [1, 0],
            [0.5, 0.5],
            "KnnGraph: neighbors (2,) and similarity (2,) must be two tables of the same shape, images x k.",
        ),
        (
            np.empty((0, 3), int),
            np.empty((0, 3)),
            "KnnGraph: neighbors (0, 3) and similarity (0, 3) must be two tables of the same shape, "
            "images x k.",
        ),
        ([[1.0], [0.0]], [[0.5], [0.5]], "KnnGraph: neighbors must be whole numbers, got float64."),
        (
            [[1], [2]],
            [[0.5], [0.5]],
            "KnnGraph: the neighbors of image 1 name an image past the last one (1).",
        ),
        ([[1], [1]], [[0.5], [0.5]], "KnnGraph: the neighbors of image 1 name the image itself."),
        (
            [[-1, 1], [0, -1]],
            [[MISSING, 0.5], [0.5, MISSING]],
            "KnnGraph: the neighbors of image 0 have a neighbor after a missing one.",
        ),
        ([[1], [0]], [[0.5], [np.nan]], "KnnGraph: the neighbors of image 1 lack a similarity."),
        ([[1], [0]], [[0.5], [MISSING]], "KnnGraph: the neighbors of image 1 lack a similarity."),
        ([[1], [-1]], [[0.5], [0.5]], "KnnGraph: the neighbors of image 1 lack a similarity."),
        (
            [[1, 2], [0, 2], [0, 1]],
            [[0.5, 0.4], [0.5, 0.6], [0.5, 0.4]],
            "KnnGraph: the neighbors of image 1 are not sorted best first.",
        ),
        (
            [[1, 2], [0, 2], [1, 1]],
            [[0.5, 0.4], [0.5, 0.4], [0.5, 0.5]],
            "KnnGraph: the neighbors of image 2 name a neighbor twice.",
        ),
    ],
)
def test_knn_graph_refusals(neighbors, similarity, message):
    with pytest.raises(InputError) as error:
        KnnGraph(np.array(neighbors), np.array(similarity))
    assert str(error.value) == message


def test_knn_graph_finds_a_repeated_neighbor_that_is_not_adjacent():
    neighbors = np.array([[1, 2, 1], [0, 2, -1], [0, 1, -1]])
    similarity = np.array([[0.9, 0.8, 0.7], [0.5, 0.4, MISSING], [0.5, 0.4, MISSING]])
    with pytest.raises(InputError, match="image 0 name a neighbor twice"):
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
    ("ids", "message"),
    [
        ([[1, 0]], "Pairs: the first id of every pair must be smaller than the second."),
        ([[1, 1]], "Pairs: the first id of every pair must be smaller than the second."),
        ([[0, 1], [0, 1]], "Pairs: the pairs must be sorted and each must occur once."),
        ([[0, 2], [0, 1]], "Pairs: the pairs must be sorted and each must occur once."),
        ([[1, 2], [0, 1]], "Pairs: the pairs must be sorted and each must occur once."),
        ([[0, 4]], "Pairs: ids must lie in 0..3, found 0..4."),
        ([[-1, 2]], "Pairs: ids must lie in 0..3, found -1..2."),
        ([[0.0, 1.0]], "Pairs: ids must be whole numbers of shape (pairs, 2), got float64 (1, 2)."),
        ([[0, 1, 2]], "Pairs: ids must be whole numbers of shape (pairs, 2), got int64 (1, 3)."),
        ([0, 1], "Pairs: ids must be whole numbers of shape (pairs, 2), got int64 (2,)."),
    ],
)
def test_pairs_refusals(ids, message):
    with pytest.raises(InputError) as error:
        Pairs(np.array(ids), 4)
    assert str(error.value) == message


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
    ("ids", "doubt", "message"),
    [
        ([[0, 1]], [0.1, 0.2], "ConsensusGraph: (2,) doubts for 1 pairs."),
        ([[0, 1]], [-0.5], "ConsensusGraph: the doubt of pair 0 is -0.5; it must be 0 or more."),
        (
            [[0, 1], [1, 2]],
            [0.1, np.nan],
            "ConsensusGraph: the doubt of pair 1 is nan; it must be 0 or more.",
        ),
        ([[0, 1]], [np.inf], "ConsensusGraph: a doubt is infinite."),
        ([[0, 1], [2, 2]], [0.1, 0.1], "ConsensusGraph: pair 1 joins image 2 with itself."),
        ([[0, 3]], [0.1], "ConsensusGraph: ids must lie in 0..2, found 0..3."),
        (
            [[0.5, 1]],
            [0.1],
            "ConsensusGraph: ids must be whole numbers of shape (pairs, 2), got float64 (1, 2).",
        ),
    ],
)
def test_consensus_graph_refusals(ids, doubt, message):
    with pytest.raises(InputError) as error:
        ConsensusGraph(np.array(ids), np.array(doubt), 3)
    assert str(error.value) == message


def test_a_repeated_pair_keeps_its_least_doubt():
    graph = ConsensusGraph(np.array([[3, 1], [0, 1], [1, 3], [0, 1]]), np.array([0.3, 0.1, 0.2, 0.4]), 5)
    assert graph.ids.tolist() == [[0, 1], [1, 3]]
    assert graph.doubt.tolist() == [0.1, 0.2]


def test_pairs_without_repeats_stay_in_the_order_given():
    graph = ConsensusGraph(np.array([[2, 3], [1, 0]]), np.array([0.3, 0.1]), 5)
    assert graph.ids.tolist() == [[2, 3], [0, 1]]
    assert graph.doubt.tolist() == [0.3, 0.1]


def test_the_first_rows_lose_neighbors_past_them():
    graph = KnnGraph(
        [[3, 1], [0, 2], [3, 0], [0, 1]], [[0.9, 0.8], [0.7, 0.6], [0.5, 0.4], [0.3, 0.2]], "exact", 1.0
    )
    first = graph.first_rows(3)
    assert first.neighbors.tolist() == [[1, -1], [0, 2], [0, -1]]
    np.testing.assert_allclose(first.similarity, [[0.8, -np.inf], [0.7, 0.6], [0.4, -np.inf]])
    assert (first.method, first.recall) == ("exact", 1.0)

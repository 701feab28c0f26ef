import numpy as np
import pytest

import reference
from cdp.runtime.runtime import Runtime
from cdp.scoring import pairs as pairs_module
from cdp.scoring.pairs import are_edges, candidate_pairs
from cdp.types import KnnGraph


def _random_graph(n_images, k, seed, ragged=False):
    generator = np.random.default_rng(seed)
    neighbors = np.array(
        [generator.permutation(np.delete(np.arange(n_images), image))[:k] for image in range(n_images)]
    )
    similarity = np.sort(generator.random((n_images, k)))[:, ::-1].copy()
    if ragged:
        missing = np.arange(k) >= generator.integers(0, k + 1, n_images)[:, None]
        neighbors[missing], similarity[missing] = -1, -np.inf
    return KnnGraph(neighbors, similarity)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("n_images", "k"), [(2, 1), (6, 2), (40, 5), (30, 29), (200, 8)])
def test_candidates_are_the_edges_of_the_graph(n_images, k, ragged):
    graph = _random_graph(n_images, k, seed=n_images, ragged=ragged)
    pairs = candidate_pairs(graph)
    assert [tuple(pair) for pair in pairs.ids.tolist()] == reference.candidate_pairs(graph.neighbors)
    assert pairs.n_images == n_images


def test_an_edge_in_either_direction_makes_one_pair():
    graph = KnnGraph(np.array([[1], [0], [0], [1]]), np.full((4, 1), 0.5))
    np.testing.assert_array_equal(candidate_pairs(graph).ids, [[0, 1], [0, 2], [1, 3]])


def test_a_graph_without_neighbors_has_no_pairs():
    assert len(candidate_pairs(KnnGraph(np.full((3, 2), -1), np.full((3, 2), -np.inf)))) == 0


@pytest.mark.parametrize("ragged", [False, True])
def test_are_edges_agrees_with_the_set_of_edges_whichever_end_comes_first(ragged):
    graph = _random_graph(25, 4, seed=1, ragged=ragged)
    ids = np.argwhere(~np.eye(25, dtype=bool)).astype(np.int32)
    known = reference.edges(graph.neighbors)
    expected = [(min(pair), max(pair)) in known for pair in ids.tolist()]
    np.testing.assert_array_equal(are_edges(graph, ids), expected)
    assert 0 < sum(expected) < len(expected)


def test_blocks_of_rows_give_the_pairs_of_all_rows(monkeypatch):
    generator = np.random.default_rng(2)
    neighbors = np.stack([generator.permutation(np.delete(np.arange(50), image))[:6] for image in range(50)])
    graph = KnnGraph(neighbors, np.tile(np.linspace(1, 0, 6), (50, 1)))
    expected = reference.candidate_pairs(graph.neighbors)
    for rows in (1, 7, 50):
        monkeypatch.setattr(pairs_module, "_ROWS_PER_BLOCK", rows)
        found = candidate_pairs(graph, Runtime.of(threads=2))
        assert [tuple(pair) for pair in found.ids.tolist()] == expected

"""Clusters, passes and the plan: each fast loop against its definition, and the whole against exact search."""

from types import SimpleNamespace

import numpy as np
import pytest

import reference
from cdp.graph import approximate, cluster_plan, neighbor_passes, search
from cdp.graph.approximate import _search_clusters, approximate_graph
from cdp.graph.cluster_plan import Plan, choose_plan
from cdp.graph.clusters import find_centroids, group, nearest_clusters
from cdp.graph.exact import exact_graph
from cdp.graph.recall import find_true_neighbors, measure_recall
from cdp.types import Embeddings, KnnGraph

K = 6


@pytest.fixture
def never_exact(monkeypatch):
    """The cheapest plan is taken, however few images there are."""
    monkeypatch.setattr(cluster_plan, "_exact_cost", lambda embeddings: np.inf)
    monkeypatch.setattr(cluster_plan, "CLUSTER_SIZE", 20)
    monkeypatch.setattr(approximate, "CLUSTER_SIZE", 20)


@pytest.fixture
def planned(monkeypatch, never_exact):
    """Fix the plan."""
    return lambda *plan: monkeypatch.setattr(approximate, "choose_plan", lambda *_, **__: Plan(*plan, 1.0))


def _faces(n_images=600, dimensions=12, seed=0, dtype=np.float32):
    generator = np.random.default_rng(seed)
    people = generator.normal(size=(n_images // 6 + 1, dimensions)) * np.exp(-np.arange(dimensions) / 4)
    noise = generator.normal(size=(n_images, dimensions)) * np.exp(-np.arange(dimensions) / 4)
    return (people[generator.integers(0, len(people), n_images)] + 0.5 * noise).astype(dtype)


def _signs(n_images=300):
    """Rows of +-1: nearly everything ties."""
    return np.random.default_rng(1).choice(np.float32([-1, 1]), size=(n_images, 8))


def _same(one, other):
    return one.neighbors.tobytes() + one.similarity.tobytes() == (
        other.neighbors.tobytes() + other.similarity.tobytes()
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("recall", [0.7, 0.97])
def test_the_recall_asked_for_is_reached_whatever_the_threads(never_exact, recall, dtype):
    embeddings = Embeddings(_faces(dtype=dtype))
    one, two, five = (approximate_graph(embeddings, K, recall, seed=3, threads=jobs) for jobs in (1, 2, 5))
    assert one.method == "approximate"
    assert one.recall == measure_recall(embeddings, one, threads=1) >= recall
    assert _same(one, two)
    assert _same(one, five)


@pytest.mark.parametrize("vectors", [_faces(300), _signs()], ids=["faces", "ties"])
def test_looking_into_all_clusters_is_exact_search(planned, vectors):
    planned(15, 0)
    embeddings = Embeddings(vectors)
    graph = approximate_graph(embeddings, K, 1.0, threads=1)
    truth = exact_graph(embeddings, K, threads=1)
    np.testing.assert_array_equal(graph.similarity, truth.similarity)
    assert graph.recall == 1


def test_copies_of_one_image_are_neighbors(never_exact):
    vectors = _faces(400)
    vectors[50:350] = vectors[7]
    graph = approximate_graph(Embeddings(vectors), K, 0.97, threads=2)
    np.testing.assert_allclose(graph.similarity[50:350], 1, atol=1e-6)


def test_after_a_plan_that_was_too_hopeful_more_is_looked_at(planned):
    planned(2, 0)
    graph = approximate_graph(Embeddings(_faces()), K, 1.0, threads=1)
    assert graph.recall == 1


def test_passes_add_what_clusters_missed(planned, monkeypatch):
    planned(2, 1)
    embeddings = Embeddings(_faces())
    recalls = []
    for passes in (0, 1, 2):
        monkeypatch.setattr(approximate, "_MOST_PASSES", passes)
        monkeypatch.setattr(approximate, "_LEAST_GAIN", -1)
        recalls.append(approximate_graph(embeddings, K, 1.0, threads=1).recall)
    assert recalls[0] < recalls[1] < recalls[2]


def test_small_and_structureless_sets_are_searched_exactly():
    vectors = np.random.default_rng(0).normal(size=(2000, 64)).astype(np.float32)
    graph = approximate_graph(Embeddings(vectors), K, 0.97, threads=1)
    assert (graph.method, graph.recall) == ("exact", None)


def test_progress_ends_with_all_images(planned):
    planned(3, 1)
    calls = []
    approximate_graph(
        Embeddings(_faces()), K, 0.99, threads=1, progress=lambda *news: calls.append(news), step="a"
    )
    assert calls[0] == ("a", 0, 0)
    assert calls[-1] == ("a", 600, 600)
    assert all(done <= 600 for _, done, _ in calls)


def _lists(n_images):
    return np.full((n_images, K), -np.inf, np.float32), np.full((n_images, K), -1, np.int32)


@pytest.mark.parametrize("rounds", [[(0, 3)], [(0, 1), (1, 3)], [(0, 1), (1, 2), (2, 3)]])
@pytest.mark.parametrize("tile_entries", [2**20, 50])
def test_every_image_meets_those_at_home_in_its_clusters_once(monkeypatch, rounds, tile_entries):
    monkeypatch.setattr(approximate, "_TILE_ENTRIES", tile_entries)
    n_images, n_clusters = 150, 9
    generator = np.random.default_rng(0)
    table = generator.integers(0, 30, (n_images, n_images)).astype(np.float32)
    table += table.T
    nearest = np.stack([generator.permutation(n_clusters)[:3] for _ in range(n_images)]).astype(np.int32)
    nearest[:20, 2] = -1
    best, ids = _lists(n_images)
    for first, last in rounds:
        looking = SimpleNamespace(
            product=lambda rows, columns: np.ascontiguousarray(table[np.ix_(rows, columns)]),
            nearest=nearest,
            first=first,
            last=last,
        )
        for _ in _search_clusters(
            looking,
            n_clusters,
            best,
            ids,
            threads=1,
        ):
            pass
    for image in range(n_images):
        met = [
            other
            for other in range(n_images)
            if other != image and (nearest[other, 0] in nearest[image] or nearest[image, 0] in nearest[other])
        ]
        expected = sorted(met, key=lambda other: (-table[image, other], other))[:K]
        np.testing.assert_array_equal(ids[image, : len(expected)], expected)
        np.testing.assert_array_equal(best[image, : len(expected)], table[image, expected])


def _one_pass(vectors, ids, fresh, nearest):
    """`neighbor_passes.improve`, from its description."""
    n_images, width = len(ids), (K + 1) // 2
    table = reference.cosines(vectors)
    near = [[(int(ids[i, r]), bool(fresh[i, r])) for r in range(width)] for i in range(n_images)]
    reverse = [[] for _ in range(n_images)]
    for rank in range(width):
        for image in range(n_images):
            if ids[image, rank] >= 0 and len(reverse[ids[image, rank]]) < width:
                reverse[ids[image, rank]].append((image, bool(fresh[image, rank])))
    near = [[edge for edge in one + two if edge[0] >= 0] for one, two in zip(near, reverse, strict=True)]
    lists = []
    for image in range(n_images):
        found = {int(other) for other in ids[image] if other >= 0}
        for middle, is_new in near[image]:
            for other, is_newer in near[middle]:
                compared = nearest[other, 0] in nearest[image] or nearest[image, 0] in nearest[other]
                if other != image and (is_new or is_newer) and not compared:
                    found.add(other)
        lists.append(sorted(found, key=lambda other: -table[image, other])[:K])
    return lists


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("block_rows", [1024, 17])
def test_a_pass_is_what_its_description_says(monkeypatch, dtype, block_rows):
    monkeypatch.setattr(neighbor_passes, "_BLOCK_ROWS", block_rows)
    vectors = _faces(120, dtype=dtype)
    embeddings = Embeddings(vectors)
    generator = np.random.default_rng(2)
    given = generator.permuted(np.tile(np.arange(120), (120, 1)), axis=1)[:, :K].astype(np.int32)
    given[given == np.arange(120)[:, None]] = -1
    given = np.sort(given, axis=1)[:, ::-1].copy()
    best = np.where(given >= 0, np.take_along_axis(reference.cosines(vectors), given, axis=1), -np.inf)
    order = np.argsort(-best, axis=1, kind="stable")
    ids = np.take_along_axis(given, order, axis=1)
    best = np.take_along_axis(best, order, axis=1).astype(np.float32)
    fresh = generator.random(ids.shape) < 0.5
    nearest = generator.integers(0, 12, (120, 2)).astype(np.int32)
    before = best.copy(), ids.copy(), fresh.copy()
    new_best, new_ids, new_fresh = neighbor_passes.improve(embeddings, best, ids, fresh, nearest, 2)
    for image, expected in enumerate(_one_pass(vectors, ids, fresh, nearest)):
        np.testing.assert_array_equal(new_ids[image, : len(expected)], expected)
        np.testing.assert_array_equal(new_fresh[image, : len(expected)], ~np.isin(expected, ids[image]))
    assert np.all(np.diff(new_best, axis=1)[np.isfinite(new_best[:, 1:])] <= 0)
    for array, copy in zip((best, ids, fresh), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_groups_are_positions_by_label():
    labels = np.random.default_rng(0).integers(-1, 7, 200).astype(np.int32)
    order, bounds = group(labels, 8)
    for label in range(8):
        np.testing.assert_array_equal(
            order[bounds[label] : bounds[label + 1]], np.flatnonzero(labels == label)
        )


@pytest.mark.parametrize("n_clusters", [1, 2, 9, 40])
def test_the_nearest_clusters_are_those_with_the_most_similar_centers(n_clusters):
    embeddings = Embeddings(_faces())
    centroids = find_centroids(embeddings, n_clusters, seed=0, threads=1)
    again = find_centroids(embeddings, n_clusters, seed=0, threads=3)
    np.testing.assert_array_equal(centroids.vectors, again.vectors)
    np.testing.assert_allclose(np.linalg.norm(centroids.vectors, axis=1), 1, atol=1e-5)
    assert abs(len(centroids) - n_clusters) <= n_clusters // 4
    count = min(5, len(centroids))
    nearest = nearest_clusters(embeddings, centroids, count, threads=2)
    # So few clusters are in so few cells that all are searched.
    table = embeddings.vectors.astype(np.float64) @ centroids.vectors.T
    similar = np.take_along_axis(table, nearest.astype(np.int64), axis=1)
    np.testing.assert_allclose(similar, -np.sort(-table, axis=1)[:, :count], atol=1e-5)
    rows = np.array([5, 77, 5])
    np.testing.assert_array_equal(nearest_clusters(embeddings, centroids, count, rows=rows), nearest[rows])


def test_the_plan_without_passes_predicts_what_clusters_give(never_exact, monkeypatch):
    monkeypatch.setattr(cluster_plan, "_PASSES", (0,))
    embeddings = Embeddings(_faces())
    truth = find_true_neighbors(embeddings, K, seed=0, threads=1, device="cpu")
    centroids = find_centroids(embeddings, 30, seed=0, threads=1)
    plan = choose_plan(embeddings, truth, centroids, 0.6, threads=1)
    monkeypatch.setattr(approximate, "choose_plan", lambda *_, **__: plan)
    assert approximate_graph(embeddings, K, 0.6, threads=1).recall == pytest.approx(plan.recall, abs=1e-3)


def test_a_higher_recall_is_never_cheaper(never_exact):
    embeddings = Embeddings(_faces())
    truth = find_true_neighbors(embeddings, K, seed=0, threads=1, device="cpu")
    centroids = find_centroids(embeddings, 30, seed=0, threads=1)
    plans = [choose_plan(embeddings, truth, centroids, recall, threads=1) for recall in (0.3, 0.6, 0.9, 0.97)]
    costs = [cluster_plan._cost(embeddings, plan) for plan in plans]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_a_miss_is_a_warning_with_the_remedy(monkeypatch):
    graph = KnnGraph(np.array([[1], [0]]), np.ones((2, 1)), "approximate", 0.85)
    monkeypatch.setattr(search, "approximate_graph", lambda *_, **__: graph)
    with pytest.warns(UserWarning, match="asked for") as caught:
        found = search.knn_graphs([Embeddings(np.eye(2))], 1, "approximate", names=["base"])
    assert found == [graph]
    assert str(caught[0].message) == (
        "k-NN graph base: the approximate search found 85.0% of the nearest neighbors on a sample, less than the "
        "97.0% asked for; use method='exact', or ask for a lower recall."
    )

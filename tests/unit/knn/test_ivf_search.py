"""Clusters and the plan: each fast loop against its definition, and the whole against exact search."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import reference
from cdp.knn import autotune as cluster_plan
from cdp.knn import ivf as clusters_module
from cdp.knn import ivf_search as approximate
from cdp.knn import pca as projection
from cdp.knn import probe as cluster_search
from cdp.knn import search
from cdp.knn.autotune import Plan, choose_plan
from cdp.knn.exact import exact_graph
from cdp.knn.ivf import group, group_rows, nearest_clusters
from cdp.knn.ivf_search import _rounds, approximate_graph
from cdp.knn.kmeans import find_centroids
from cdp.knn.pair_similarity import similarities
from cdp.knn.pca import Projected, project
from cdp.knn.probe import Lists, group_by_cluster, search_homes, search_visits
from cdp.knn.recall import Gap, find_true_neighbors, measure_recall, measure_same_identity_recall
from cdp.knn.topk import best_of_rows, roughly_best_columns
from cdp.runtime.parallel import map_blocks
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph

K = 6


@pytest.fixture
def never_exact(monkeypatch):
    """The cheapest plan is taken, however few images there are."""
    monkeypatch.setattr(cluster_plan, "_exact_cost", lambda embeddings: np.inf)
    monkeypatch.setattr(
        cluster_plan, "LAYOUTS", ((20, (2, 3, 4, 6, 8, 12, 16), False), (30, (17, 18, 20), True))
    )


@pytest.fixture
def planned(monkeypatch, never_exact):
    """Fix the plan."""

    def fix(clusters):
        def choose(embeddings, vectors, *_, **__):
            n_clusters = embeddings.n_images // 20
            centroids = find_centroids(vectors, n_clusters, seed=0, runtime=Runtime.of(threads=1))
            return Plan(centroids, min(clusters, len(centroids)), 1.0)

        monkeypatch.setattr(approximate, "choose_plan", choose)

    return fix


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
    one, two, five = (
        approximate_graph(embeddings, K, recall, seed=3, runtime=Runtime.of(threads=jobs))
        for jobs in (1, 2, 5)
    )
    assert one.method == "approximate"
    assert one.recall == measure_recall(embeddings, one, seed=3, runtime=Runtime.of(threads=1)) >= recall
    assert _same(one, two)
    assert _same(one, five)


@pytest.mark.parametrize("vectors", [_faces(300), _signs()], ids=["faces", "ties"])
def test_looking_into_all_clusters_is_exact_search(planned, vectors):
    planned(99)
    embeddings = Embeddings(vectors)
    graph = approximate_graph(embeddings, K, 1.0, runtime=Runtime.of(threads=1))
    truth = exact_graph(embeddings, K, runtime=Runtime.of(threads=1))
    np.testing.assert_array_equal(graph.similarity, truth.similarity)
    assert graph.recall == 1


def test_copies_of_one_image_are_neighbors(never_exact):
    vectors = _faces(400)
    vectors[50:350] = vectors[7]
    graph = approximate_graph(Embeddings(vectors), K, 0.97, runtime=Runtime.of(threads=2))
    np.testing.assert_allclose(graph.similarity[50:350], 1, atol=1e-6)


def test_after_a_plan_that_was_too_hopeful_more_is_looked_at(planned):
    planned(2)
    graph = approximate_graph(Embeddings(_faces()), K, 1.0, runtime=Runtime.of(threads=1))
    assert graph.recall == 1


def test_a_small_miss_is_made_up_for_by_a_few_clusters_more(planned, monkeypatch):
    embeddings = Embeddings(_faces())
    recalls = []
    for clusters in (6, 8):
        planned(clusters)
        recalls.append(approximate_graph(embeddings, K, 0.01, runtime=Runtime.of(threads=1)).recall)
    planned(6)
    looked_for = []
    find = approximate.nearest_clusters
    monkeypatch.setattr(
        approximate,
        "nearest_clusters",
        lambda *given, **how: looked_for.append(given[2]) or find(*given, **how),
    )
    graph = approximate_graph(embeddings, K, recalls[1], runtime=Runtime.of(threads=2))
    assert recalls[0] < graph.recall == recalls[1]
    assert looked_for == [8]
    assert approximate_graph(embeddings, K, 1.0, runtime=Runtime.of(threads=1)).recall == 1
    assert looked_for[1:] == [8, 16, 30][: len(looked_for) - 1]


def test_small_and_structureless_sets_are_searched_exactly():
    vectors = np.random.default_rng(0).normal(size=(2000, 64)).astype(np.float32)
    graph = approximate_graph(Embeddings(vectors), K, 0.97, runtime=Runtime.of(threads=1))
    assert (graph.method, graph.recall) == ("exact", None)


def test_progress_ends_with_all_images(planned):
    planned(3)
    calls = []
    approximate_graph(
        Embeddings(_faces()),
        K,
        0.99,
        runtime=Runtime.of(threads=1, progress=lambda *news: calls.append(news)),
        step="a",
    )
    assert calls[0] == ("a", 0, 0)
    assert calls[-1] == ("a", 600, 600)
    assert all(done <= 600 for _, done, _ in calls)


def _lists(n_images):
    return np.full((n_images, K), -np.inf, np.float32), np.full((n_images, K), -1, np.int32)


def _looking(vectors, how):
    """Vectors that lie together, others that are gathered, and tables of products as a GPU gives them."""
    gathered = SimpleNamespace(take=lambda rows: vectors[rows], block=lambda start, stop: vectors[start:stop])
    return {
        "together": SimpleNamespace(product=None, vectors=Projected(vectors, 0.0, K)),
        "gathered": SimpleNamespace(product=None, vectors=gathered),
        "tables": SimpleNamespace(product=lambda rows, columns: vectors[rows] @ vectors[columns].T),
    }[how]


@pytest.mark.parametrize("rounds", [[(0, 1), (1, 3)], [(0, 1), (1, 2), (2, 3)]])
@pytest.mark.parametrize("most_pairs", [2**20, 50])
@pytest.mark.parametrize("how", ["together", "gathered", "tables"])
@pytest.mark.parametrize("n_images", [150, 500])
def test_every_image_meets_those_at_home_in_its_clusters(monkeypatch, rounds, most_pairs, how, n_images):
    monkeypatch.setattr(cluster_search, "_MOST_PAIRS", most_pairs)
    n_clusters = 9
    generator = np.random.default_rng(0)
    # Whole numbers: every way to add their products up gives the same.
    vectors = generator.integers(-4, 5, (n_images, 7)).astype(np.float32)
    table = vectors @ vectors.T
    nearest = np.stack([generator.permutation(n_clusters)[:3] for _ in range(n_images)]).astype(np.int16)
    nearest[:20, 2] = -1
    best, ids = _lists(n_images)
    lists = Lists.of(best, ids)
    looking = _looking(vectors, how)
    for first, last in rounds:
        search_round = search_homes if first == 0 else search_visits
        clusters = list(group_by_cluster(nearest, first, last, n_clusters, Runtime()))
        shares = list(search_round(looking, clusters, lists, Runtime.of(threads=4)))
        assert shares[-1] == 1
    looks = (nearest[:, :, None] == nearest[None, None, :, 0]).any(axis=1)
    met = (looks | looks.T) & ~np.eye(n_images, dtype=bool)
    for image in range(n_images):
        others = np.flatnonzero(met[image])
        expected = others[np.lexsort((others, -table[image, others]))][:K]
        np.testing.assert_array_equal(ids[image, : len(expected)], expected)
        np.testing.assert_array_equal(best[image, : len(expected)], table[image, expected])


def test_lists_that_many_threads_fill_at_once_have_the_best_of_all():
    generator = np.random.default_rng(0)
    values = generator.permutation(64_000).reshape(16, 4000).astype(np.float32)
    rows, images = generator.integers(0, 5, values.shape), np.arange(64_000).reshape(16, 4000)
    best, ids = _lists(5)
    lists = Lists.of(best, ids)
    hits = [
        np.stack([rows[part], images[part], values[part].view(np.int32)]).astype(np.int32)
        for part in range(16)
    ]
    assert list(map_blocks(lists.insert, hits, 8)) == [None] * 16
    for row in range(5):
        of_row = np.flatnonzero(rows.ravel() == row)
        expected = of_row[np.argsort(-values.ravel()[of_row])][:K]
        np.testing.assert_array_equal(ids[row], expected)
        np.testing.assert_array_equal(best[row], values.ravel()[expected])
    np.testing.assert_array_equal(lists.bars, best[:, -1])
    assert not lists.locks.any()


def test_rounds_cut_all_clusters_and_grow_no_further():
    assert _rounds(0, 100) == [(0, 1), (1, 4), (4, 16), (16, 48), (48, 80), (80, 100)]
    assert _rounds(0, 3) == [(0, 1), (1, 3)]
    assert _rounds(3, 6) == [(3, 4), (4, 6)]
    assert _rounds(50, 100) == [(50, 80), (80, 100)]
    assert _rounds(4, 4) == []


def test_grouped_rows_are_those_with_the_label():
    labels = np.random.default_rng(0).integers(-1, 7, (90, 3)).astype(np.int16)
    rows, bounds = group_rows(labels, 8)
    for label in range(8):
        expected = np.nonzero(labels == label)[0]
        np.testing.assert_array_equal(rows[bounds[label] : bounds[label + 1]], expected)


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
    centroids = find_centroids(embeddings, n_clusters, seed=0, runtime=Runtime.of(threads=1))
    again = find_centroids(embeddings, n_clusters, seed=0, runtime=Runtime.of(threads=3))
    np.testing.assert_array_equal(centroids.vectors, again.vectors)
    np.testing.assert_allclose(np.linalg.norm(centroids.vectors, axis=1), 1, atol=1e-5)
    assert abs(len(centroids) - n_clusters) <= n_clusters // 4
    count = min(5, len(centroids))
    nearest = nearest_clusters(embeddings, centroids, count, runtime=Runtime.of(threads=2))
    # So few clusters are in so few cells that all are searched.
    table = embeddings.vectors.astype(np.float64) @ centroids.vectors.T
    similar = np.take_along_axis(table, nearest.astype(np.int64), axis=1)
    np.testing.assert_allclose(similar, -np.sort(-table, axis=1)[:, :count], atol=1e-5)
    rows = np.array([5, 77, 5])
    np.testing.assert_array_equal(
        nearest_clusters(embeddings, centroids, count, runtime=Runtime(), rows=rows), nearest[rows]
    )


def test_clusters_near_a_cluster_are_those_with_the_most_similar_centers(monkeypatch):
    monkeypatch.setattr(clusters_module, "_NEAR_HOME", (16, 16))
    centroids = find_centroids(Embeddings(_faces(900)), 150, seed=0, runtime=Runtime.of(threads=2))
    table = centroids.vectors @ centroids.vectors.T
    assert centroids.near.shape == (len(centroids), 16)
    for cluster, near in enumerate(centroids.near):
        assert near[0] == cluster
        assert len(set(near)) == 16
        # In order but for a thousandth.
        assert table[cluster, near].min() >= np.sort(table[cluster])[-16] - 2e-3


def test_where_few_clusters_are_near_the_rest_is_missing(monkeypatch):
    embeddings = Embeddings(_faces(900))
    monkeypatch.setattr(clusters_module, "_SEARCHED_NEAR", 1)
    centroids = find_centroids(embeddings, 150, seed=0, runtime=Runtime.of(threads=1))
    nearest = nearest_clusters(embeddings, centroids, 30, runtime=Runtime.of(threads=2))
    in_cell = np.diff(centroids.ends)[np.searchsorted(centroids.ends, nearest[:, 0], "right") - 1]
    np.testing.assert_array_equal((nearest >= 0).sum(axis=1), np.minimum(30, in_cell))
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in nearest)


@pytest.mark.parametrize(
    ("count", "n_clusters"), [(1, 40), (7, 40), (40, 40), (60, 40), (100, 600), (150, 600)]
)
def test_many_nearest_clusters_are_the_best_but_for_a_thousandth(count, n_clusters):
    generator = np.random.default_rng(count)
    tile = generator.uniform(-1, 1, (50, n_clusters)).astype(np.float32)
    tile[:5] = np.float32(0.25)
    tile[5:9, ::2] = tile[5:9, :1]
    tile[9:12] = np.sort(tile[9:12], axis=1)
    tile[12, ::16] = 1  # a sample that misleads
    found = np.full((50, count), -1, np.int32)
    roughly_best_columns(tile, found)
    kept = min(count, n_clusters)
    for row in range(50):
        assert found[row, 0] == np.argmax(tile[row])
        assert len(set(found[row, :kept].tolist())) == kept
        values, expected = tile[row, found[row, :kept]], -np.sort(-tile[row])[:kept]
        np.testing.assert_allclose(values, expected, atol=2e-3)
        assert np.all(found[row, kept:] == -1)


def test_clusters_looked_for_in_all_cells_are_those_of_the_flat_search(monkeypatch):
    embeddings = Embeddings(_faces())
    centroids = find_centroids(embeddings, 9, seed=0, runtime=Runtime.of(threads=1))
    few = nearest_clusters(embeddings, centroids, 5, runtime=Runtime.of(threads=1))
    many = nearest_clusters(embeddings, replace(centroids, near=None), 5, runtime=Runtime.of(threads=2))
    table = embeddings.vectors @ centroids.vectors.T
    np.testing.assert_array_equal(few[:, 0], many[:, 0])
    np.testing.assert_allclose(
        *(np.take_along_axis(table, found.astype(np.int64), axis=1) for found in (few, many)), atol=2e-3
    )


def test_the_best_of_rows_are_those_of_sorted_rows():
    tile = np.random.default_rng(0).integers(0, 9, (30, 30)).astype(np.float32)
    images = np.arange(100, 130, dtype=np.int32)
    best, ids = best_of_rows(tile, images, 40)
    for row in range(30):
        others = sorted((-tile[row, column], images[column]) for column in range(30) if column != row)
        np.testing.assert_array_equal(ids[row], [image for _, image in others] + [-1] * 11)
        np.testing.assert_array_equal(best[row, :29], [-value for value, _ in others])


def _flat(n_images=500, dimensions=64, directions=8, noise=0.0, seed=0):
    """Vectors along few directions, and a little noise along all."""
    generator = np.random.default_rng(seed)
    flat = generator.normal(size=(n_images, directions)) @ generator.normal(size=(directions, dimensions))
    return (flat + noise * generator.normal(size=flat.shape)).astype(np.float32)


def test_few_directions_are_enough_where_there_are_no_more():
    embeddings = Embeddings(_flat())
    projected = project(embeddings, K, [Gap(9, 0.01)], seed=0, runtime=Runtime.of(threads=2))
    assert isinstance(projected, Projected)
    assert (projected.n_images, projected.dimensions, projected.is_rounded) == (500, 16, False)
    np.testing.assert_allclose(
        projected.source @ projected.source.T, reference.cosines(embeddings.source), atol=1e-5
    )
    np.testing.assert_array_equal(projected.block(3, 7), projected.take(np.array([3, 4, 5, 6])))
    order = np.random.default_rng(1).permutation(500)
    np.testing.assert_array_equal(projected.reorder(order, Runtime()).source, projected.source[order])


def test_what_directions_leave_out_is_as_large_as_they_say():
    embeddings = Embeddings(_flat(noise=1.0))
    projected = project(embeddings, K, [Gap(9, 0.1)], seed=0, runtime=Runtime.of(threads=1))
    lacking = reference.cosines(embeddings.source) - projected.source @ projected.source.T
    between = lacking[np.triu_indices(500, 1)]
    assert projected.is_rounded
    assert between.std() == pytest.approx(projected.error, rel=0.2)
    assert projected.error <= 0.05


def test_lists_are_longer_where_that_saves_enough_directions():
    # What products lack falls slowly behind the first 32 of 256 directions, as noise does.
    lacking = np.interp(np.arange(257), [0, 32, 256], [0.1, 0.006, 0.0])
    few, many, very_many = Gap(30, 0.009), Gap(40, 0.014), Gap(60, 0.03)
    assert projection._cheapest(lacking, 20, [few]) == (96, 30)
    assert projection._cheapest(lacking, 20, [few, many, very_many]) == (32, 40)
    # Where lists need not be longer, because the products lack nothing, they are not.
    assert projection._cheapest(np.where(np.arange(257) < 48, 0.1, 0.0), 20, [few, many]) == (48, 20)


@pytest.mark.parametrize("gap", [0.0, 0.01])
def test_directions_that_all_matter_stay(gap):
    embeddings = Embeddings(np.random.default_rng(0).normal(size=(400, 48)).astype(np.float32))
    assert project(embeddings, K, [Gap(9, gap)], seed=0, runtime=Runtime.of(threads=1)) is embeddings


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_search_along_few_directions_measures_in_full(never_exact, noise, dtype):
    embeddings = Embeddings(_flat(noise=noise).astype(dtype))
    one, three = (
        approximate_graph(embeddings, K, 0.95, runtime=Runtime.of(threads=threads)) for threads in (1, 3)
    )
    assert _same(one, three)
    assert one.recall == measure_recall(embeddings, one, runtime=Runtime.of(threads=1)) >= 0.95
    ends = np.stack([np.repeat(np.arange(500), K), one.neighbors.ravel()], axis=1)
    np.testing.assert_array_equal(one.similarity.ravel(), similarities(embeddings, ends))


def _plan(embeddings, recall):
    truth = find_true_neighbors(embeddings, K, seed=0, runtime=Runtime.of(threads=1, device="cpu"))
    return choose_plan(embeddings, embeddings, truth, recall, seed=0, runtime=Runtime.of(threads=1))


def test_the_plan_predicts_what_clusters_give(never_exact, monkeypatch):
    embeddings = Embeddings(_faces())
    plan = _plan(embeddings, 0.6)
    monkeypatch.setattr(approximate, "choose_plan", lambda *_, **__: plan)
    monkeypatch.setattr(approximate, "project", lambda embeddings, *_, **__: embeddings)
    assert approximate_graph(embeddings, K, 0.6, runtime=Runtime.of(threads=1)).recall == pytest.approx(
        plan.recall, abs=1e-3
    )


def test_a_higher_recall_is_never_cheaper(never_exact):
    embeddings = Embeddings(_faces())
    plans = [_plan(embeddings, recall) for recall in (0.3, 0.6, 0.9, 0.97)]
    costs = [cluster_plan._cost(embeddings, 20, plan.clusters, False) for plan in plans]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_larger_clusters_are_tried_where_small_ones_are_not_enough(never_exact, monkeypatch):
    monkeypatch.setattr(cluster_plan, "LAYOUTS", ((20, (2,), False), (60, (10,), True)))
    plan = _plan(Embeddings(_faces()), 0.99)
    assert (len(plan.centroids), plan.clusters) == (10, 10)


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


def test_where_identities_are_known_the_recall_is_that_of_the_same_identity(never_exact, monkeypatch):
    generator = np.random.default_rng(0)
    people = np.repeat(np.arange(120), 5)
    vectors = generator.standard_normal((120, 12))[people] + 0.4 * generator.standard_normal((600, 12))
    embeddings, identities = Embeddings(vectors.astype(np.float32)), np.where(people < 100, people, -1)
    blind = approximate_graph(embeddings, 14, 0.9, runtime=Runtime.of(threads=1))
    one, two = (
        approximate_graph(embeddings, 14, 0.9, runtime=Runtime.of(threads=threads), identities=identities)
        for threads in (1, 3)
    )
    assert _same(one, two)
    assert 0.9 <= measure_same_identity_recall(embeddings, one, identities, runtime=Runtime()) < 1
    assert one.recall < 0.9 <= blind.recall
    # Of too few it is not known what they need.
    few = np.where(people < 3, people, -1)
    assert _same(approximate_graph(embeddings, 14, 0.9, runtime=Runtime.of(threads=1), identities=few), blind)

import importlib.util
import sys

import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp import Embeddings, KnnGraph, Labels, knn_graph, measure_labels
from cdp.errors import MissingExtraError, install_command
from cdp_lab.baselines.baseline import components, labels_of, links_of
from cdp_lab.baselines.communities import ChineseWhispers, Infomap, Leiden
from cdp_lab.baselines.early_stopping import EarlyStopping, edge_probabilities
from cdp_lab.baselines.finch import Finch
from cdp_lab.baselines.hierarchical import Hierarchical
from cdp_lab.baselines.methods import BASELINES, grid_points, make_baselines, tune
from cdp_lab.baselines.rank_order import RankOrder, rank_order
from cdp_lab.baselines.scikit_learn import DBSCAN, HDBSCAN, KMeans, MiniBatchKMeans

INSTALLED = {
    "leiden": importlib.util.find_spec("leidenalg") and importlib.util.find_spec("igraph"),
    "infomap": importlib.util.find_spec("infomap"),
    "fc_es": importlib.util.find_spec("infomap"),
}


def if_installed(name):
    if name in INSTALLED and not INSTALLED[name]:
        pytest.skip(f"{name} is not installed (an extra of its own)")


@pytest.fixture(scope="module")
def part(small_views):
    return small_views.base, knn_graph(small_views.base, 12), small_views.identities


def few(seed, n_images=24, dimensions=5):
    return Embeddings(np.random.default_rng(seed).standard_normal((n_images, dimensions)).astype(np.float32))


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_is_tuned_and_labels_well(part, name):
    if_installed(name)
    embeddings, graph, identities = part
    # A part of the grid is enough here, and quicker.
    grid = {
        setting: values[:: 3 if len(values) < 20 else 5] for setting, values in BASELINES[name].grid.items()
    }
    tuned = tune(make_baselines([name])[0], embeddings, graph, identities, grid)
    labels = tuned.label(embeddings, graph)
    assert isinstance(labels, Labels)
    assert labels.sizes.min() >= 2
    assert tuned.name == name
    assert tuned == tune(make_baselines([name])[0], embeddings, graph, identities, grid)
    assert tuned.label(embeddings, graph).labels.tolist() == labels.labels.tolist()
    least = {"rank_order": 0.6, "finch": 0.5, "minibatch_kmeans": 0.4, "kmeans": 0.6, "hdbscan": 0.7}
    assert measure_labels(labels, identities).discards_kept.pairwise.f > least.get(name, 0.85)


@pytest.mark.parametrize("name", BASELINES)
def test_a_graph_is_searched_if_none_is_given(small_views, name):
    if_installed(name)
    baseline = make_baselines([name])[0]
    searched = knn_graph(small_views.base, 20)
    expected = baseline.label(small_views.base, searched)
    assert baseline.label(small_views.base).labels.tolist() == expected.labels.tolist()


@pytest.mark.parametrize("linkage", ["average", "single"])
@pytest.mark.parametrize("threshold", [-0.2, 0.3, 0.7])
def test_hierarchical_is_its_definition(linkage, threshold):
    embeddings = few(3)
    expected = reference.agglomerate_vectors(embeddings.source, linkage, threshold)
    exact = Hierarchical(threshold, linkage)
    on_graph = Hierarchical(threshold, linkage, memory_budget=1)
    assert exact.fits(24)
    assert not on_graph.fits(24)
    complete = knn_graph(embeddings, 23)
    assert reference.partition(exact.label(embeddings)) == expected
    assert reference.partition(on_graph.label(embeddings, complete)) == expected


def test_one_tree_serves_all_thresholds(part):
    embeddings, graph, _ = part
    settings = [{"similarity": value} for value in (0.2, 0.5, 0.8)]
    for budget in ("1GB", 1):
        for linkage in ("average", "single"):
            method = Hierarchical(linkage=linkage, memory_budget=budget)
            together = [labels.labels.tolist() for labels in method.label_each(embeddings, graph, settings)]
            alone = [method.having(**each).label(embeddings, graph).labels.tolist() for each in settings]
            assert together == alone
    two = [{"similarity": 0.5, "linkage": "single"}]
    (labels,) = Hierarchical().label_each(embeddings, graph, two)
    assert labels.labels.tolist() == Hierarchical(0.5, "single").label(embeddings).labels.tolist()


def test_groups_without_a_link_never_merge_on_the_graph():
    # 0-1 and 2-3 are close and all four are similar, but the graph knows no link between the two pairs.
    vectors = np.array([[1, 0.1, 0], [1, 0.11, 0], [1, 0, 0.1], [1, 0, 0.11]])
    graph = KnnGraph(np.array([[1], [0], [3], [2]]), np.full((4, 1), 0.99, np.float32))
    method = Hierarchical(0.5, memory_budget=1)
    assert method.label(Embeddings(vectors), graph).labels.tolist() == [0, 0, 1, 1]
    assert Hierarchical(0.5).label(Embeddings(vectors), graph).labels.tolist() == [0, 0, 0, 0]


def test_rank_order_is_its_equation():
    graph = knn_graph(few(1, 40), 6)
    padded = np.array(graph.neighbors), np.array(graph.similarity)
    padded[0][5, 3:], padded[1][5, 3:] = -1, -np.inf
    for held in (graph, KnnGraph(*padded)):
        expected = reference.rank_order(held.neighbors)
        found = rank_order(held)
        for a, row in enumerate(held.neighbors):
            for place, b in enumerate(row):
                assert found[a, place] == (expected[a, int(b)] if b >= 0 else np.inf)


def test_rank_order_links_below_the_threshold_only():
    graph = knn_graph(few(1, 40), 6)
    values = reference.rank_order(graph.neighbors)
    labels = RankOrder(1.5).label(few(1, 40), graph)
    for (a, b), value in values.items():
        if value < 1.5:
            assert labels[a] == labels[b] >= 0
    assert RankOrder(0).label(few(1, 40), graph).n_identities == 0


@pytest.mark.parametrize("seed", range(4))
def test_finch_is_its_definition(seed):
    embeddings = few(seed, 60)
    expected = reference.finch(embeddings.source)
    found = Finch().levels(embeddings)
    assert [reference.partition(level) for level in found] == [
        {frozenset(group) for group in level} for level in expected
    ]
    assert len(found) > 1
    settings = [{"level": level} for level in range(6)]
    for each, labels in zip(settings, Finch().label_each(embeddings, None, settings), strict=True):
        assert labels.labels.tolist() == Finch(**each).label(embeddings).labels.tolist()
        assert labels.coverage == 1


def test_finch_takes_an_image_where_a_mean_has_no_direction():
    vectors = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.1, 1.0], [0.05, -1.0], [0.0, -1.0]])
    graph = KnnGraph(np.array([[1], [0], [3], [2], [5], [4]]), np.zeros((6, 1), np.float32))
    levels = Finch().levels(Embeddings(vectors), graph)
    assert levels[0].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("threshold", [-1.0, 0.2, 0.6])
def test_chinese_whispers_are_their_definition(threshold):
    embeddings = few(7, 50)
    graph = knn_graph(embeddings, 5)
    expected = reference.whisper(graph.neighbors, graph.similarity, threshold, 3, 11)
    found = ChineseWhispers(threshold, rounds=3, seed=11).label(embeddings, graph)
    assert found.labels.tolist() == labels_of(np.array(expected)).labels.tolist()


def test_dbscan_sees_what_scikit_learn_sees_on_all_pairs(part):
    from sklearn import cluster

    embeddings, _, _ = part
    complete = knn_graph(embeddings, embeddings.n_images - 1)
    for min_samples in (2, 3, 4):
        mine = DBSCAN(0.6, min_samples).label(embeddings, complete)
        theirs = cluster.DBSCAN(eps=0.4, min_samples=min_samples, metric="cosine").fit_predict(
            embeddings.vectors
        )
        assert reference.partition(mine) == reference.partition(theirs)


def test_dbscan_with_two_samples_is_the_components_of_the_links(part):
    embeddings, graph, _ = part
    expected = labels_of(components(*links_of(graph, 0.5)[:2], graph.n_images))
    assert DBSCAN(0.5, 2).label(embeddings, graph).labels.tolist() == expected.labels.tolist()


def test_hdbscan_is_the_same_within_and_beyond_the_budget(part):
    embeddings, _, _ = part
    all_at_once = HDBSCAN(3).label(embeddings)
    by_rows = HDBSCAN(3, memory_budget=1).label(embeddings)
    assert all_at_once.n_identities > 10
    assert reference.partition(all_at_once) == reference.partition(by_rows)
    assert HDBSCAN(5).label(few(0, 4)).labels.tolist() == [-1] * 4


def test_the_number_of_clusters_grows_with_the_images(part):
    assert KMeans(7.5).n_clusters(300) == 40
    assert KMeans(7.5).n_clusters(3000) == 400
    assert KMeans(1000).n_clusters(3) == 1
    assert KMeans(300).label(part[0]).n_identities == 1
    assert MiniBatchKMeans(1.0).label(few(0)).n_identities < 12


def test_copies_of_one_image_are_one_group():
    copies = Embeddings(np.tile(np.array([[0.3, 0.7, 0.1]], np.float32), (6, 1)))
    for method in (
        Hierarchical(), Hierarchical(memory_budget=1), DBSCAN(), RankOrder(), ChineseWhispers(), Finch(), KMeans(2.0),
    ):  # fmt: skip
        assert method.label(copies).labels.tolist() == [0] * 6, method


def test_groups_of_one_are_discarded():
    labels = labels_of(np.array([5, 3, -1, 5, 9, -1]))
    assert labels.labels.tolist() == [0, -1, -1, 0, -1, -1]
    assert labels.status.tolist() == [0, 1, 1, 0, 1, 1]


def test_links_are_the_edges_each_once():
    graph = knn_graph(few(2, 30), 4)
    links = links_of(graph)
    assert list(zip(links.first.tolist(), links.second.tolist(), strict=True)) == reference.candidate_pairs(
        graph.neighbors
    )
    table = reference.cosines(few(2, 30).source)
    assert np.allclose(links.similarity, table[links.first, links.second], atol=1e-6)
    matrix = links.rows().toarray()
    assert np.array_equal(matrix, matrix.T)
    assert len(links_of(graph, 2.0).first) == 0
    assert links_of(graph, 2.0).rows().nnz == 0


def test_tuning_takes_the_first_of_the_best(part):
    embeddings, graph, identities = part
    grid = {"min_samples": (2, 3), "similarity": (0.95, 0.52, 0.52, 0.9)}
    assert grid_points(grid)[1] == {"min_samples": 2, "similarity": 0.52}
    tuned = tune(DBSCAN(), embeddings, graph, identities, grid)
    every = {
        tuple(each.values()): measure_labels(
            DBSCAN(**each).label(embeddings, graph), identities
        ).discards_kept.pairwise.f
        or 0.0
        for each in grid_points(grid)
    }
    assert every[tuned.min_samples, tuned.similarity] == max(every.values())
    # Unknown identities are not counted, and a grid where nothing is found still has a first value.
    unknown = np.where(np.arange(len(identities)) % 3 == 0, -1, identities)
    assert tune(DBSCAN(), embeddings, graph, unknown, {"similarity": (0.999, 0.9995)}).similarity == 0.999


def test_tuning_with_patience_ends_when_values_only_get_worse(part):
    embeddings, graph, identities = part
    tried = []

    class Told(KMeans):
        def label(self, embeddings, graph=None):
            tried.append(self.images_per_cluster)
            return super().label(embeddings, graph)

    def f(images_per_cluster):
        labels = KMeans(images_per_cluster).label(embeddings, graph)
        return measure_labels(labels, identities).discards_kept.pairwise.f or 0.0

    grid = BASELINES["kmeans"].grid["images_per_cluster"]
    assert list(grid) == sorted(grid, reverse=True), "few clusters first: they are the quick ones"
    tuned = tune(Told(), embeddings, graph, identities)
    assert tried == list(grid[: len(tried)])
    assert len(tried) < len(grid), "the many clusters are never made"
    assert f(tuned.images_per_cluster) == max(map(f, grid)), "and the best is found all the same"
    given = {"images_per_cluster": (12.0, 256.0, 128.0, 64.0, tuned.images_per_cluster)}
    whole = tune(KMeans(), embeddings, graph, identities, given)
    assert whole.images_per_cluster == tuned.images_per_cluster, "a grid that is given is tried whole"
    # As long as everything is one group, nothing has become worse.
    tiny = Embeddings(embeddings.source[:20])
    assert tune(KMeans(), tiny, None, identities[:20]).images_per_cluster < 20


def test_probabilities_of_shared_neighbors_are_those_of_the_equation(part):
    _, graph, _ = part
    given = reference.edge_probabilities(graph.neighbors, graph.similarity, 0.5)
    np.testing.assert_allclose(edge_probabilities(graph, 0.5), given, atol=1e-12)
    padded = KnnGraph([[1, -1], [0, 2], [1, -1]], [[0.9, -np.inf], [0.9, 0.2], [0.2, -np.inf]])
    given = reference.edge_probabilities(padded.neighbors, padded.similarity, 0.5)
    np.testing.assert_allclose(edge_probabilities(padded, 0.5), given, atol=1e-12)


def test_by_default_no_copyleft_baseline_is_made():
    assert [baseline.name for baseline in make_baselines()] == [
        name for name in BASELINES if name not in INSTALLED
    ]
    for name, registered in BASELINES.items():
        assert registered.make().name == name
        assert set(registered.grid) <= set(registered.make().settings)


@pytest.mark.parametrize(
    ("method", "library", "extra"),
    [
        (Leiden(), "leidenalg", "leiden"),
        (Infomap(), "infomap", "infomap"),
        (EarlyStopping(), "infomap", "infomap"),
    ],
)
def test_a_missing_extra_names_its_install_command(monkeypatch, method, library, extra):
    monkeypatch.setitem(sys.modules, library, None)
    with refuses(f"{extra}-missing", MissingExtraError, extra=extra) as error:
        method.label(few(0))
    assert install_command(extra) in str(error.value)


def test_community_methods_discard_images_without_links():
    if_installed("leiden")
    if_installed("infomap")
    vectors = np.eye(5)[[0, 0, 1, 1, 2]] + 0.01 * np.random.default_rng(0).standard_normal((5, 5))
    for method in (Leiden(), Infomap()):
        assert method.label(Embeddings(vectors)).labels.tolist() == [0, 0, 1, 1, -1]
        far = Embeddings(np.array([[1.0, 0.0], [-1.0, 0.1], [-0.2, -1.0]]))
        assert method.label(far).labels.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("make", "code", "fields"),
    [
        (lambda: Hierarchical(96), "setting-out-of-range", {"key": "Hierarchical.similarity", "value": 96}),
        (lambda: Hierarchical(linkage="ward"), "setting-choice-unknown", {"key": "Hierarchical.linkage", "value": "ward"}),
        (lambda: Hierarchical(memory_budget="much"), "memory-budget-not-a-size", {"value": "much"}),
        (lambda: KMeans(0.5), "setting-out-of-range", {"key": "KMeans.images_per_cluster", "value": 0.5}),
        (lambda: MiniBatchKMeans(batch=0), "setting-out-of-range", {"key": "MiniBatchKMeans.batch", "value": 0}),
        (lambda: DBSCAN(-2), "setting-out-of-range", {"key": "DBSCAN.similarity", "value": -2}),
        (lambda: DBSCAN(1), "setting-out-of-range", {"key": "DBSCAN.similarity", "value": 1}),
        (lambda: DBSCAN(min_samples=0), "setting-out-of-range", {"key": "DBSCAN.min_samples", "value": 0}),
        (lambda: HDBSCAN(1), "setting-out-of-range", {"key": "HDBSCAN.min_cluster_size", "value": 1}),
        (lambda: RankOrder(-1), "setting-out-of-range", {"key": "RankOrder.threshold", "value": -1}),
        (lambda: ChineseWhispers(rounds=0), "setting-out-of-range", {"key": "ChineseWhispers.rounds", "value": 0}),
        (lambda: Finch(-1), "setting-out-of-range", {"key": "Finch.level", "value": -1}),
        (lambda: Leiden(resolution=float("nan")), "setting-out-of-range", {"key": "Leiden.resolution"}),
        (lambda: Infomap(similarity=2), "setting-out-of-range", {"key": "Infomap.similarity", "value": 2}),
        (lambda: Finch().having(depth=3), "baseline-setting-unknown", {"baseline": "finch", "key": "depth"}),
        (
            lambda: make_baselines(["birch"]),
            "baseline-unknown", {"baseline": "birch"},
        ),
        (
            lambda: DBSCAN().label(few(0), knn_graph(few(0, 9), 3)),
            "baseline-graph-differs", {"baseline": "dbscan", "expected": 24, "found": 9},
        ),
        (lambda: DBSCAN().label(few(0, 1)), "baseline-one-image", {"baseline": "dbscan"}),
        (lambda: tune(Finch(), few(0), None, [0] * 24, {"level": ()}), "baseline-grid-empty", {"baseline": "finch"}),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_a_sentence(make, code, fields):
    with refuses(code, **fields):
        make()


def test_one_image_is_discarded_where_no_graph_is_needed():
    for method in (Hierarchical(), KMeans(), HDBSCAN(), Finch()):
        assert method.label(few(0, 1)).labels.tolist() == [-1]

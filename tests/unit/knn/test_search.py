import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp.knn.exact import exact_graph
from cdp.knn.recall import measure_recall, measure_same_identity_recall
from cdp.knn.search import knn_graph, knn_graphs
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph


def _clustered(n_identities, n_each, dimensions, seed=0):
    generator = np.random.default_rng(seed)
    faces = np.repeat(generator.normal(size=(n_identities, dimensions)), n_each, axis=0)
    return (faces + 0.5 * generator.normal(size=faces.shape)).astype(np.float32)


def test_a_plain_array_is_searched_exactly():
    vectors = 5 * np.random.default_rng(0).normal(size=(60, 8))
    graph = knn_graph(vectors, k=4, runtime=Runtime.of(threads=1))
    neighbors, similarity = reference.knn(vectors, 4)
    assert (graph.method, graph.recall) == ("exact", None)
    np.testing.assert_array_equal(graph.neighbors, neighbors)
    np.testing.assert_allclose(graph.similarity, similarity, atol=1e-6)


def test_every_model_gets_its_own_graph(small_views):
    graphs = knn_graphs(list(small_views), k=5, runtime=Runtime.of(threads=1))
    assert len(graphs) == 3
    for embeddings, graph in zip(small_views, graphs, strict=True):
        alone = knn_graph(embeddings, k=5, runtime=Runtime.of(threads=1))
        np.testing.assert_array_equal(graph.neighbors, alone.neighbors)
        np.testing.assert_array_equal(graph.similarity, alone.similarity)


def test_steps_carry_the_models_names(small_views):
    calls = []
    knn_graphs(
        list(small_views),
        3,
        names=small_views.names,
        runtime=Runtime.of(threads=1, progress=lambda step, *_: calls.append(step)),
    )
    assert calls == ["k-NN graph base", "k-NN graph small", "k-NN graph wide"]


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        ({"k": 10}, "knn-too-few-images", {"k": 10, "n_images": 10}),
        ({"k": 11}, "knn-too-few-images", {"k": 11, "n_images": 10}),
        ({"k": 0}, "k-too-small", {"value": 0}),
        ({"k": 3, "method": "faiss"}, "knn-method-unknown", {"value": "faiss"}),
        ({"k": 3, "recall": 97}, "recall-out-of-range", {"value": 97}),
    ],
)
def test_refusals(settings, code, fields):
    with refuses(code, **fields):
        knn_graph(np.random.default_rng(0).normal(size=(10, 3)), **settings)


def test_the_largest_k_names_everybody_else():
    graph = knn_graph(np.random.default_rng(0).normal(size=(10, 3)), k=9, runtime=Runtime.of(threads=1))
    for image, row in enumerate(graph.neighbors):
        assert sorted(row) == [other for other in range(10) if other != image]


def test_recall_of_the_exact_graph_is_one_even_with_ties():
    signs = Embeddings(np.random.default_rng(1).choice(np.float32([-1, 1]), size=(120, 16)))
    for embeddings in (Embeddings(_clustered(30, 5, 12)), signs):
        assert (
            measure_recall(
                embeddings,
                exact_graph(embeddings, 6, runtime=Runtime.of(threads=1)),
                runtime=Runtime.of(threads=1),
            )
            == 1
        )


def test_recall_counts_what_a_spoiled_graph_lost():
    embeddings = Embeddings(np.random.default_rng(2).normal(size=(100, 8)))
    wide = exact_graph(embeddings, 12, runtime=Runtime.of(threads=1))
    # Every image loses its nearest neighbor, and the eleventh takes the last place: nine of ten are left.
    spoiled = KnnGraph(wide.neighbors[:, 1:11], wide.similarity[:, 1:11])
    assert measure_recall(embeddings, spoiled, runtime=Runtime.of(threads=1)) == pytest.approx(0.9)
    lost = KnnGraph(np.full((100, 4), -1), np.full((100, 4), -np.inf))
    assert measure_recall(embeddings, lost, runtime=Runtime.of(threads=1)) == 0


def test_a_sample_of_rows_measures_recall(monkeypatch):
    monkeypatch.setattr("cdp.knn.recall.SAMPLE_ROWS", 20)
    embeddings = Embeddings(np.random.default_rng(3).normal(size=(100, 8)))
    graph = exact_graph(embeddings, 5, runtime=Runtime.of(threads=1))
    half = np.arange(100) % 2 == 0
    neighbors = np.where(half[:, None], graph.neighbors, -1)
    spoiled = KnnGraph(neighbors, np.where(half[:, None], graph.similarity, -np.inf))
    recalls = [
        measure_recall(embeddings, spoiled, seed=seed, runtime=Runtime.of(threads=1))
        for seed in (0, 0, 1, 2, 3)
    ]
    assert recalls[0] == recalls[1]
    assert len(set(recalls)) > 1
    assert all(0.1 < recall < 0.9 for recall in recalls)


def test_real_faces_in_half_precision(shared_data):
    vectors = np.load(shared_data / "lfw" / "sface.npy", mmap_mode="r")[:400]
    graph = knn_graph(vectors, k=10, runtime=Runtime.of(threads=1))
    neighbors, similarity = reference.knn(vectors, 10)
    np.testing.assert_allclose(graph.similarity, similarity, atol=1e-6)
    assert np.mean(graph.neighbors == neighbors) > 0.99


def test_one_image_has_no_neighbors():
    with refuses("knn-one-image") as caught:
        knn_graph(np.ones((1, 3), np.float32))
    assert str(caught.value) == "There is one image only, and neighbors are other images; give two or more."


def test_recall_of_the_same_identity_counts_known_neighbors_that_show_it():
    vectors = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    embeddings = Embeddings(vectors)
    truth = knn_graph(vectors, 5, "exact", runtime=Runtime.of(threads=1))
    identities = np.random.default_rng(1).integers(-1, 9, 60)
    identities[7] = 99  # alone: no neighbor can show it
    neighbors = np.array(truth.neighbors)
    neighbors[::2, 3:] = -1
    graph = KnnGraph(neighbors, np.where(neighbors < 0, -np.inf, truth.similarity), "approximate")
    same = [
        other in neighbors[image]
        for image in range(60)
        for other in truth.neighbors[image]
        if identities[image] >= 0 and identities[image] == identities[other]
    ]
    assert measure_same_identity_recall(embeddings, graph, identities, runtime=Runtime()) == np.mean(same)
    assert measure_same_identity_recall(embeddings, truth, identities, runtime=Runtime()) == 1
    assert measure_same_identity_recall(embeddings, graph, np.full(60, -1), runtime=Runtime()) is None
    assert measure_same_identity_recall(embeddings, graph, np.arange(60), runtime=Runtime()) is None

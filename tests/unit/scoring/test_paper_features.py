import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp.knn.search import knn_graphs
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import (
    collect_opinions,
    common_neighbors,
    extract_features,
    neighbor_distribution,
    prepare_features,
    relationship,
)
from cdp.types import ALL_INPUTS, KnnGraph, Pairs, Views, column_names


@pytest.fixture(scope="module")
def graphs(small_views):
    return knn_graphs(list(small_views), k=6, runtime=Runtime.of(threads=1))


@pytest.fixture(scope="module")
def pairs(graphs):
    return candidate_pairs(graphs[0])


@pytest.fixture(scope="module")
def opinions(pairs, small_views, graphs):
    return collect_opinions(pairs, small_views, graphs, ALL_INPUTS)


def test_relationship_agrees_with_its_twin(opinions, pairs, graphs):
    twin = reference.relationship(pairs.ids, [graph.neighbors for graph in graphs[1:]])
    np.testing.assert_array_equal(opinions.relationship, twin)
    assert opinions.relationship.dtype == bool
    assert np.all((twin.mean(axis=0) > 0.1) & (twin.mean(axis=0) < 0.9))


def test_affinity_agrees_with_its_twin(opinions, pairs, small_views):
    twin = reference.affinity(pairs.ids, [model.source for model in small_views])
    np.testing.assert_allclose(opinions.affinity, twin, atol=1e-6)
    assert opinions.affinity.dtype == np.float32


def test_the_base_affinity_is_the_similarity_of_the_base_graph(opinions, pairs, graphs):
    base = graphs[0]
    similarity = {
        frozenset((image, int(other))): value
        for image, row in enumerate(base.neighbors)
        for other, value in zip(row, base.similarity[image], strict=True)
    }
    expected = [similarity[frozenset(pair)] for pair in pairs.ids.tolist()]
    np.testing.assert_array_equal(opinions.affinity[:, 0], expected)


def test_mean_and_spread_agree_with_their_twin_first_image_first(opinions, pairs, graphs):
    twins = [reference.neighbor_distribution(graph.neighbors, graph.similarity) for graph in graphs]
    for statistic, found in enumerate((opinions.mean, opinions.spread)):
        expected = np.stack([twin[statistic][pairs.ids[:, end]] for end in (0, 1) for twin in twins], axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_common_neighbors_agree_with_their_twin(opinions, pairs, graphs):
    twin = np.stack([reference.common_neighbors(pairs.ids, graph.neighbors) for graph in graphs], axis=1)
    np.testing.assert_array_equal(opinions.common_neighbors, twin)
    assert twin.max() > 1


RAGGED = KnnGraph(
    np.array([[1, 2, 3], [0, 2, -1], [-1, -1, -1], [2, -1, -1]]),
    np.array([[0.9, 0.6, 0.3], [0.9, 0.5, -np.inf], [-np.inf] * 3, [0.2, -np.inf, -np.inf]]),
)


def test_missing_neighbors_count_for_nothing():
    mean, spread = neighbor_distribution(RAGGED)
    np.testing.assert_allclose(mean, [0.6, 0.7, 0, 0.2], atol=1e-6)
    np.testing.assert_allclose(spread, [0.06**0.5, 0.2, 0, 0], atol=1e-6)
    np.testing.assert_allclose(
        [mean, spread], reference.neighbor_distribution(RAGGED.neighbors, RAGGED.similarity), atol=1e-6
    )
    ids = np.array([[0, 1], [0, 2], [1, 3], [2, 3]], np.int32)
    shared = common_neighbors(ids, [np.sort(RAGGED.neighbors, axis=1)])
    np.testing.assert_array_equal(shared[:, 0], [1, 0, 1, 0])
    np.testing.assert_array_equal(shared[:, 0], reference.common_neighbors(ids, RAGGED.neighbors))


def test_an_edge_in_either_direction_is_a_relationship():
    ids = np.array([[0, 3], [1, 3], [2, 3], [1, 2]], np.int32)
    np.testing.assert_array_equal(relationship(ids, [RAGGED])[:, 0], [True, False, True, True])
    assert relationship(ids, []).shape == (4, 0)


@pytest.mark.parametrize("n_members", range(5))
def test_the_matrix_has_6n_plus_5_columns_in_the_papers_order(n_members):
    generator = np.random.default_rng(n_members)
    models = [generator.normal(size=(30, 4 + member)) for member in range(n_members + 1)]
    names = [f"c{member}" for member in range(1, n_members + 1)]
    views = Views(models[0], dict(zip(names, models[1:], strict=True)))
    graphs = knn_graphs(list(views), k=4, runtime=Runtime.of(threads=1))
    pairs = candidate_pairs(graphs[0])
    matrix = collect_opinions(pairs, views, graphs).matrix()
    assert matrix.shape == (len(pairs), 6 * n_members + 5)
    column = dict(zip(column_names(names), matrix.T, strict=True))

    first, second = pairs.ids.T
    affinity = reference.affinity(pairs.ids, models)
    for member, name in enumerate(("base", *names)):
        graph = graphs[member]
        mean, spread = reference.neighbor_distribution(graph.neighbors, graph.similarity)
        np.testing.assert_allclose(column[f"affinity({name})"], affinity[:, member], atol=1e-6)
        np.testing.assert_allclose(column[f"mean(first, {name})"], mean[first], atol=1e-6)
        np.testing.assert_allclose(column[f"mean(second, {name})"], mean[second], atol=1e-6)
        np.testing.assert_allclose(column[f"spread(first, {name})"], spread[first], atol=1e-6)
        np.testing.assert_allclose(column[f"spread(second, {name})"], spread[second], atol=1e-6)
        if member:
            twin = reference.relationship(pairs.ids, [graph.neighbors])[:, 0]
            np.testing.assert_array_equal(column[f"relationship({name})"], twin)
    kinds = [name.split("(")[0] for name in column]
    order = ["relationship"] * n_members + ["affinity"] * (n_members + 1)
    assert kinds == order + ["mean"] * (2 * n_members + 2) + ["spread"] * (2 * n_members + 2)


def test_part_by_part_is_the_whole(opinions, pairs, small_views, graphs):
    source = prepare_features(small_views, graphs, ALL_INPUTS)
    parts = [
        extract_features(source, pairs.ids[start : start + 97]).matrix(ALL_INPUTS)
        for start in range(0, len(pairs), 97)
    ]
    assert np.concatenate(parts).tobytes() == opinions.matrix(ALL_INPUTS).tobytes()


def test_common_neighbors_are_only_counted_when_asked_for(pairs, small_views, graphs):
    assert collect_opinions(pairs, small_views, graphs).common_neighbors is None


def test_no_pairs_give_an_empty_matrix(small_views, graphs):
    assert collect_opinions(Pairs(np.array([]), 300), small_views, graphs).matrix().shape == (0, 17)


def test_refusals(small_views, graphs):
    with refuses("graphs-models-differ", expected=3, found=2):
        prepare_features(small_views, graphs[:2])
    short = KnnGraph(np.array([[1], [0]]), np.array([[0.5], [0.5]]))
    with refuses("graph-images-differ", model="small", expected=300, found=2):
        prepare_features(small_views, [graphs[0], short, graphs[2]])
    with refuses("inputs-unknown", key="inputs", value="structure"):
        prepare_features(small_views, graphs, ["structure"])


def test_pairs_of_other_images_are_refused(small_views, graphs):
    with refuses("pairs-images-differ", expected=300, found=301):
        collect_opinions(Pairs(np.array([[0, 300]]), 301), small_views, graphs)

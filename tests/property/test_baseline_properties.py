"""What holds for baselines whatever the images are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from cdp import Embeddings, KnnGraph, Status, knn_graph
from cdp_lab.baselines.baseline import labels_of
from cdp_lab.baselines.finch import Finch
from cdp_lab.baselines.hierarchical import Hierarchical
from cdp_lab.baselines.rank_order import RankOrder
from cdp_lab.baselines.scikit_learn import DBSCAN, HDBSCAN

# k-means and Chinese whispers draw by row number, so they are not here.
INDEPENDENT_OF_ORDER = (
    Hierarchical(0.4),
    Hierarchical(0.4, memory_budget=1),
    Hierarchical(0.6, "single"),
    Hierarchical(0.6, "single", memory_budget=1),
    DBSCAN(0.6),
    RankOrder(1.0),
    Finch(0),
    Finch(1),
)
seeds = st.integers(0, 2**32 - 1)
few_examples = settings(max_examples=20, deadline=None)


def images(seed, n_images=40):
    generator = np.random.default_rng(seed)
    centers = generator.standard_normal((8, 6))
    return centers[generator.integers(0, 8, n_images)] + 0.5 * generator.standard_normal((n_images, 6))


@pytest.mark.slow
@few_examples
@given(seeds)
def test_reordering_images_reorders_labels(seed):
    vectors = images(seed)
    order = np.random.default_rng(seed + 1).permutation(len(vectors))
    straight, shuffled = Embeddings(vectors), Embeddings(vectors[order])
    graphs = knn_graph(straight, 6), knn_graph(shuffled, 6)
    for method in INDEPENDENT_OF_ORDER:
        expected = method.label(straight, graphs[0]).labels[order]
        found = method.label(shuffled, graphs[1]).labels
        assert reference.partition(found) == reference.partition(expected), method


@few_examples
@given(seeds, st.integers(2, 25), st.sampled_from(["average", "single"]), st.floats(-1, 1))
def test_a_complete_graph_gives_what_all_pairs_give(seed, n_images, linkage, threshold):
    embeddings = Embeddings(images(seed, n_images))
    complete = knn_graph(embeddings, n_images - 1)
    exact = Hierarchical(threshold, linkage).label(embeddings, complete)
    on_graph = Hierarchical(threshold, linkage, memory_budget=1).label(embeddings, complete)
    assert on_graph.labels.tolist() == exact.labels.tolist()


@few_examples
@given(seeds, st.floats(-1, 1), st.floats(-1, 1))
def test_a_higher_similarity_never_joins_groups(seed, one, other):
    embeddings = Embeddings(images(seed))
    graph = knn_graph(embeddings, 6)
    for method in (Hierarchical(), Hierarchical(memory_budget=1), Hierarchical(linkage="single")):
        low, high = (
            method.having(similarity=value).label(embeddings, graph).labels for value in sorted((one, other))
        )
        for group in reference.partition(high):
            assert len({low[image] for image in group}) == 1
            assert low[next(iter(group))] >= 0


@pytest.mark.slow
@few_examples
@given(seeds, st.integers(2, 40))
def test_every_image_is_in_a_group_of_two_or_discarded_with_a_status(seed, n_images):
    embeddings = Embeddings(images(seed, n_images))
    for method in (*INDEPENDENT_OF_ORDER, HDBSCAN(2)):
        labels = method.label(embeddings)
        assert labels.sizes.min(initial=2) >= 2
        assert np.array_equal(labels.status == Status.NO_ACCEPTED_PAIR, labels.labels == -1)


@few_examples
@given(st.lists(st.integers(-2, 6), min_size=1, max_size=30))
def test_only_groups_of_one_are_dropped(groups):
    expected = {group for group in reference.partition(groups) if len(group) > 1}
    assert reference.partition(labels_of(np.array(groups)).labels) == expected


@few_examples
@given(seeds)
def test_graphs_with_missing_neighbors_are_understood(seed):
    embeddings = Embeddings(images(seed))
    graph = knn_graph(embeddings, 6)
    known = np.random.default_rng(seed).integers(0, 7, len(embeddings))
    present = np.arange(6) < known[:, None]
    holes = KnnGraph(
        np.where(present, graph.neighbors, -1),
        np.where(present, graph.similarity, -np.inf).astype(np.float32),
    )
    for method in INDEPENDENT_OF_ORDER:
        labels = method.label(embeddings, holes)
        assert labels.n_images == len(embeddings)
        assert labels.sizes.min(initial=2) >= 2

"""What must hold for every input, checked on many random ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from cdp.grouping.average_linkage import agglomerate
from cdp.grouping.propagation import propagate
from cdp.grouping.soft_labels import diffuse
from cdp.knn.exact import exact_graph
from cdp.knn.search import knn_graphs
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import collect_opinions
from cdp.scoring.vote import vote
from cdp.types import ConsensusGraph, Embeddings, KnnGraph, Labels, Status, Views

often = settings(max_examples=60)
seldom = settings(max_examples=25)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def consensus_graphs(draw):
    """Graphs of up to 30 images; doubts are drawn from few values, so that ties are common, or from many."""
    n_images = draw(st.integers(2, 30))
    ids = st.integers(0, n_images - 1)
    doubts = draw(
        st.sampled_from(
            [
                st.sampled_from([0.0, 0.1, 0.2, 0.25, 1.0]),
                st.floats(0, 2, width=32),
                st.floats(0, 2**-100, width=32),
            ]
        )
    )
    edges = draw(
        st.dictionaries(st.tuples(ids, ids).filter(lambda ends: ends[0] < ends[1]), doubts, max_size=80)
    )
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return ConsensusGraph(
        np.array(list(edges), np.int32).reshape(-1, 2), np.array(list(edges.values()), dtype), n_images
    )


@st.composite
def knn_tables(draw):
    """Neighbor tables with missing neighbors, as any search might return them."""
    n_images = draw(st.integers(2, 20))
    k = draw(st.integers(1, n_images - 1))
    rows = []
    for image in range(n_images):
        others = [other for other in range(n_images) if other != image]
        known = draw(st.lists(st.sampled_from(others), unique=True, max_size=k))
        rows.append(known + [-1] * (k - len(known)))
    neighbors = np.array(rows)
    return KnnGraph(neighbors, np.where(neighbors >= 0, 0.5, -np.inf))


def _random_views(seed, n_images=40):
    generator = np.random.default_rng(seed)
    identities = generator.integers(0, 9, n_images)

    def embed(dimensions):
        faces = generator.normal(size=(9, dimensions))
        return (faces[identities] + 0.6 * generator.normal(size=(n_images, dimensions))).astype(np.float32)

    return Views(embed(8), {"a": embed(6), "b": embed(10)})


def _vote(views, **settings):
    graphs = knn_graphs(list(views), k=4, method="exact", runtime=Runtime.of(threads=1))
    pairs = candidate_pairs(graphs[0])
    accepted, doubt = vote(collect_opinions(pairs, views, graphs), **settings)
    return ConsensusGraph(pairs.ids[accepted], doubt[accepted], views.n_images)


@pytest.mark.slow
@seldom
@given(seed=seeds, min_votes=st.integers(0, 2), max_cluster_size=st.integers(2, 12))
def test_reordering_images_reorders_labels(seed, min_votes, max_cluster_size):
    views = _random_views(seed)
    order = np.random.default_rng(seed).permutation(views.n_images)
    labels = propagate(_vote(views, min_votes=min_votes), max_cluster_size)
    reordered = propagate(_vote(views.take(order), min_votes=min_votes), max_cluster_size)
    back = np.empty(views.n_images, int)
    back[order] = reordered.labels
    assert reference.partition(back) == reference.partition(labels.labels)
    np.testing.assert_array_equal(reordered.status, labels.status[order])
    np.testing.assert_allclose(reordered.confidence, labels.confidence[order], atol=1e-6)


@pytest.mark.slow
@seldom
@given(seed=seeds, min_votes=st.integers(0, 2), low=st.floats(-1, 1), high=st.floats(-1, 1))
def test_a_higher_threshold_never_joins_groups(seed, min_votes, low, high):
    low, high = sorted((low, high))
    views = _random_views(seed)
    loose, strict = (
        propagate(_vote(views, min_votes=min_votes, threshold=threshold), max_cluster_size=views.n_images)
        for threshold in (low, high)
    )
    whole = reference.partition(loose.labels)
    for group in reference.partition(strict.labels):
        assert any(group <= other for other in whole)
    assert strict.coverage <= loose.coverage


@often
@given(graph=consensus_graphs(), max_cluster_size=st.integers(2, 12), step=st.floats(0.001, 0.999))
def test_no_group_is_larger_than_max_cluster_size_and_every_image_has_one_status(
    graph, max_cluster_size, step
):
    labels = propagate(graph, max_cluster_size, step)
    assert labels.sizes.max(initial=0) <= max_cluster_size
    assert labels.sizes.min(initial=2) >= 2
    paired = np.isin(np.arange(graph.n_images), graph.ids)
    np.testing.assert_array_equal(labels.status == Status.NO_ACCEPTED_PAIR, ~paired)
    assert np.all(labels.confidence[labels.labels < 0] == 0)


@often
@given(graph=consensus_graphs(), max_cluster_size=st.integers(2, 12), step=st.floats(0.001, 0.999))
def test_propagation_is_algorithm_1(graph, max_cluster_size, step):
    labels = propagate(graph, max_cluster_size, step)
    expected, status, kept = reference.propagate_doubts(
        graph.ids, graph.doubt, graph.n_images, max_cluster_size, step
    )
    np.testing.assert_array_equal(labels.labels, expected)
    np.testing.assert_array_equal(labels.status, status)
    sure = reference.confidence(graph.ids, graph.doubt, kept, expected)
    np.testing.assert_allclose(labels.confidence, sure, atol=1e-6)


@often
@given(graph=consensus_graphs(), max_cluster_size=st.integers(2, 12), seed=seeds)
def test_the_order_of_pairs_does_not_matter(graph, max_cluster_size, seed):
    order = np.random.default_rng(seed).permutation(len(graph))
    shuffled = ConsensusGraph(graph.ids[order], graph.doubt[order], graph.n_images)
    one, other = propagate(graph, max_cluster_size), propagate(shuffled, max_cluster_size)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.status, other.status)


@often
@given(
    graph=consensus_graphs(),
    max_cluster_size=st.integers(2, 12),
    depth=st.integers(0, 5),
    decay=st.floats(0.01, 1),
)
def test_soft_labels_are_the_diffused_labels(graph, max_cluster_size, depth, decay):
    labels = propagate(graph, max_cluster_size)
    soft = diffuse(graph, labels, depth, decay)
    expected = reference.diffuse(graph.ids, labels.labels, depth, decay)
    assert soft.shape == expected.shape
    np.testing.assert_allclose(soft.toarray(), expected, atol=1e-6)
    np.testing.assert_allclose(soft.sum(axis=1), labels.labels >= 0, atol=1e-5)


@often
@given(graph=knn_tables())
def test_candidate_pairs_are_the_set_of_edges(graph):
    pairs = candidate_pairs(graph)
    assert [tuple(pair) for pair in pairs.ids.tolist()] == reference.candidate_pairs(graph.neighbors)


@often
@given(seed=seeds, n_images=st.integers(2, 60), data=st.data())
def test_exact_search_is_a_full_sort(seed, n_images, data):
    k = data.draw(st.integers(1, n_images - 1))
    # Entries of +-1 in 4 or 16 dimensions: every sum is exact, so even ties must come in the twin's order.
    dimensions = data.draw(st.sampled_from([4, 16]))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    vectors = np.random.default_rng(seed).choice([-1, 1], size=(n_images, dimensions)).astype(dtype)
    graph = exact_graph(Embeddings(vectors), k, runtime=Runtime.of(threads=1))
    neighbors, similarity = reference.knn(vectors, k)
    np.testing.assert_array_equal(graph.neighbors, neighbors)
    np.testing.assert_array_equal(graph.similarity, similarity)


@often
@given(seed=seeds, n_images=st.integers(2, 40), dimensions=st.integers(2, 20))
def test_exact_search_finds_the_most_similar(seed, n_images, dimensions):
    vectors = np.random.default_rng(seed).normal(size=(n_images, dimensions))
    k = min(5, n_images - 1)
    graph = exact_graph(Embeddings(vectors.astype(np.float32)), k, runtime=Runtime.of(threads=1))
    np.testing.assert_allclose(graph.similarity, reference.knn(vectors, k)[1], atol=2e-6)
    named = np.take_along_axis(reference.cosines(vectors), graph.neighbors.astype(int), axis=1)
    np.testing.assert_allclose(graph.similarity, named, atol=2e-6)


@seldom
@given(seed=seeds, dtype=st.sampled_from(["float16", "float32", "float64"]))
def test_inputs_are_unchanged(seed, dtype):
    generator = np.random.default_rng(seed)
    base, member = (3 * generator.normal(size=(25, 5)).astype(dtype) for _ in range(2))
    identities = generator.integers(0, 5, 25)
    before = [array.copy() for array in (base, member, identities)]
    views = Views(base, {"a": member}, identities)
    graph = _vote(views, min_votes=1)
    ids, doubt = graph.ids.copy(), graph.doubt.copy()
    labels = propagate(graph, max_cluster_size=3)
    diffuse(graph, labels)
    for array, copy in zip((base, member, identities), before, strict=True):
        np.testing.assert_array_equal(array, copy)
        assert array.flags.writeable
    np.testing.assert_array_equal(graph.ids, ids)
    np.testing.assert_array_equal(graph.doubt, doubt)


@often
@given(given_labels=st.lists(st.integers(-3, 8), min_size=1, max_size=40))
def test_numbering_keeps_the_groups(given_labels):
    labels = Labels.from_array(given_labels)
    assert reference.partition(labels.labels) == reference.partition(given_labels)
    np.testing.assert_array_equal(labels.labels, reference.number_by_first_appearance(given_labels))


def _shuffled(graph, order):
    """The same graph with image order[i] called i."""
    number = np.empty(graph.n_images, np.int32)
    number[order] = np.arange(graph.n_images, dtype=np.int32)
    return ConsensusGraph(number[graph.ids], graph.doubt, graph.n_images)


@often
@given(seed=seeds, k=st.integers(1, 12), max_cluster_size=st.integers(2, 30), threshold=st.floats(0.01, 0.9))
def test_reordering_images_reorders_agglomerated_labels(seed, k, max_cluster_size, threshold):
    generator = np.random.default_rng(seed)
    ends = np.unique(np.sort(generator.integers(0, 30, size=(90, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] < ends[:, 1]]
    graph = ConsensusGraph(ends, generator.random(len(ends)), 30)
    order = generator.permutation(30)
    labels = agglomerate(graph, k, threshold, max_cluster_size)
    reordered = agglomerate(_shuffled(graph, order), k, threshold, max_cluster_size)
    back = np.empty(30, int)
    back[order] = reordered.labels
    assert reference.partition(back) == reference.partition(labels.labels)
    np.testing.assert_array_equal(reordered.status, labels.status[order])
    np.testing.assert_allclose(reordered.confidence, labels.confidence[order], atol=1e-6)


@often
@given(
    graph=consensus_graphs(),
    k=st.integers(1, 12),
    max_cluster_size=st.integers(2, 12),
    threshold=st.floats(0.01, 0.9),
)
def test_agglomeration_keeps_to_max_cluster_size_and_never_joins_images_without_a_path(
    graph, k, max_cluster_size, threshold
):
    labels = agglomerate(graph, k, threshold, max_cluster_size)
    assert labels.sizes.max(initial=0) <= max_cluster_size
    assert labels.sizes.min(initial=2) >= 2
    whole = reference.partition(propagate(graph, max_cluster_size=graph.n_images).labels)
    for group in reference.partition(labels.labels):
        assert any(group <= component for component in whole)


@often
@given(first=st.integers(2, 12), second=st.integers(2, 12), doubt=st.floats(0, 0.3), seed=seeds)
def test_two_cliques_joined_by_one_false_pair_stay_two_groups(first, second, doubt, seed):
    n_images = first + second
    pairs = [
        (one, other)
        for one in range(n_images)
        for other in range(one + 1, n_images)
        if (one < first) == (other < first)
    ]
    bridge = (first - 1, first)
    # The false pair may be accepted by any threshold up to 1 - doubt, but is not the surest of all.
    doubts = [doubt] * len(pairs) + [doubt + 0.05]
    order = np.random.default_rng(seed).permutation(n_images)
    graph = _shuffled(ConsensusGraph(np.array([*pairs, bridge]), np.array(doubts), n_images), order)
    labels = agglomerate(graph, k=n_images, threshold=0.5)
    assert reference.partition(order_back(labels.labels, order)) == {
        frozenset(range(first)),
        frozenset(range(first, n_images)),
    }


def order_back(labels, order):
    back = np.empty(len(labels), int)
    back[order] = labels
    return back

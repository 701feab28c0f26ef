from itertools import combinations

import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp.grouping.propagation import propagate
from cdp.types import ConsensusGraph, Status


def _random_edges(n_images, n_edges, generator):
    every = np.array(list(combinations(range(n_images), 2)))
    return every[np.sort(generator.choice(len(every), min(n_edges, len(every)), replace=False))]


def _assert_agrees(labels, twin):
    np.testing.assert_array_equal(labels.labels, twin[0])
    np.testing.assert_array_equal(labels.status, twin[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["any", "tied", "tiny", "with zeros", "above one"])
def test_random_graphs_agree_with_the_literal_algorithm_in_doubts(dtype, kind):
    for seed in range(60):
        generator = np.random.default_rng(seed)
        n_images = int(generator.integers(2, 40))
        ends = _random_edges(n_images, int(generator.integers(1, 3 * n_images)), generator)
        doubt = {
            "any": lambda size, g=generator: g.random(size),
            "tied": lambda size, g=generator: g.integers(1, 6, size) / 8,
            "tiny": lambda size, g=generator: 10.0 ** -g.integers(1, 30, size),
            "with zeros": lambda size, g=generator: g.integers(0, 4, size) / 4,
            "above one": lambda size, g=generator: 2 * g.random(size),
        }[kind](len(ends)).astype(dtype)
        max_cluster_size, step = (
            int(generator.integers(2, 12)),
            float(generator.choice([0.01, 0.05, 0.1, 0.5, 0.99])),
        )
        labels = propagate(ConsensusGraph(ends, doubt, n_images), max_cluster_size, step)
        twin = reference.propagate_doubts(ends, doubt, n_images, max_cluster_size, step)
        _assert_agrees(labels, twin)
        np.testing.assert_allclose(
            labels.confidence, reference.confidence(ends, doubt, twin[2], twin[0]), atol=1e-6
        )


def test_random_graphs_agree_with_the_algorithm_as_printed_in_scores():
    statuses = set()
    for seed in range(150):
        generator = np.random.default_rng(seed)
        n_images = int(generator.integers(2, 60))
        ends = _random_edges(n_images, int(generator.integers(1, 4 * n_images)), generator)
        scores = generator.random(len(ends))
        max_cluster_size, step = int(generator.integers(2, 15)), float(generator.choice([0.02, 0.1, 0.3]))
        labels = propagate(ConsensusGraph(ends, 1 - scores, n_images), max_cluster_size, step)
        _assert_agrees(labels, reference.propagate_scores(ends, scores, n_images, max_cluster_size, step))
        statuses |= set(labels.status.tolist())
    assert {Status.LABELED, Status.NO_ACCEPTED_PAIR, Status.ISOLATED} <= statuses


def test_a_larger_graph_agrees_with_the_literal_algorithm():
    generator = np.random.default_rng(11)
    ends = np.sort(generator.integers(0, 2000, size=(5000, 2)), axis=1)
    ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
    doubt = (generator.random(len(ends)) ** 3 * 0.04).astype(np.float32)
    labels = propagate(ConsensusGraph(ends, doubt, 2000), max_cluster_size=30)
    twin = reference.propagate_doubts(ends, doubt, 2000, 30, 0.1)
    _assert_agrees(labels, twin)
    np.testing.assert_allclose(
        labels.confidence, reference.confidence(ends, doubt, twin[2], twin[0]), atol=1e-6
    )
    assert labels.sizes.max() <= 30
    assert {Status.LABELED, Status.NO_ACCEPTED_PAIR, Status.ISOLATED} <= set(labels.status.tolist())


def _clique(images, doubt):
    return [(first, second, doubt) for first, second in combinations(images, 2)]


def _graph(edges, n_images, dtype=np.float64):
    return ConsensusGraph(
        np.array([edge[:2] for edge in edges]), np.array([edge[2] for edge in edges], dtype), n_images
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_tied_cliques_joined_by_a_doubtful_edge_stay_apart(dtype):
    edges = [*_clique(range(4), 0.01), *_clique(range(4, 8), 0.01), (3, 4, 0.03)]
    together = propagate(_graph(edges, 8, dtype), max_cluster_size=8)
    np.testing.assert_array_equal(together, [0] * 8)
    apart = propagate(_graph(edges, 8, dtype), max_cluster_size=4)
    np.testing.assert_array_equal(apart, [0] * 4 + [1] * 4)
    np.testing.assert_allclose(apart.confidence, 0.99, rtol=1e-6)


def test_a_tied_clique_that_is_too_large_cannot_be_split():
    for doubt in (0.0, 0.02):
        labels = propagate(_graph(_clique(range(5), doubt), 6), max_cluster_size=4)
        np.testing.assert_array_equal(labels, [-1] * 6)
        np.testing.assert_array_equal(labels.status, [Status.UNSPLITTABLE] * 5 + [Status.NO_ACCEPTED_PAIR])
        np.testing.assert_array_equal(labels.confidence, 0)


def test_an_unsplittable_part_does_not_take_the_others_with_it():
    edges = [*_clique(range(5), 0.01), *_clique(range(5, 8), 0.01), (4, 5, 0.5)]
    labels = propagate(_graph(edges, 8), max_cluster_size=4)
    np.testing.assert_array_equal(labels, [-1] * 5 + [0] * 3)
    np.testing.assert_array_equal(labels.status, [Status.UNSPLITTABLE] * 5 + [Status.LABELED] * 3)


def test_an_image_that_loses_its_only_pair_is_isolated():
    edges = [*_clique(range(3), 0.01), (2, 3, 0.4)]
    labels = propagate(_graph(edges, 5), max_cluster_size=3)
    np.testing.assert_array_equal(labels, [0, 0, 0, -1, -1])
    np.testing.assert_array_equal(labels.status, [0, 0, 0, Status.ISOLATED, Status.NO_ACCEPTED_PAIR])


def test_an_edge_exactly_at_the_threshold_is_removed():
    # th = 0.5 + 0.5 * 0.5 = 0.75: the edge with score 0.75 goes, the one with 0.875 stays.
    edges = [(0, 1, 0.5), (1, 2, 0.25), (2, 3, 0.125)]
    labels = propagate(_graph(edges, 4), max_cluster_size=3, step=0.5)
    np.testing.assert_array_equal(labels, [-1, -1, 0, 0])
    np.testing.assert_array_equal(labels.status, [Status.ISOLATED, Status.ISOLATED, 0, 0])


def test_each_component_is_split_by_a_threshold_of_its_own():
    # The left component is small enough; its doubtful edge stays though the right one loses better edges.
    edges = [(0, 1, 0.9), *_clique((2, 3, 4), 0.01), (4, 5, 0.2)]
    labels = propagate(_graph(edges, 6), max_cluster_size=3)
    np.testing.assert_array_equal(labels, [0, 0, 1, 1, 1, -1])


def test_confidence_counts_surviving_pairs_inside_the_group_only():
    # While the chain to 4 is cut, the edge (0, 2) goes as well though both its ends stay in one group.
    edges = [(0, 1, 0.1), (1, 2, 0.2), (0, 2, 0.59), (2, 3, 0.6), (3, 4, 0.1)]
    labels = propagate(_graph(edges, 5), max_cluster_size=3)
    np.testing.assert_array_equal(labels, [0, 0, 0, 1, 1])
    np.testing.assert_allclose(labels.confidence, [0.45, 0.85, 0.4, 0.9, 0.9], rtol=1e-6)


def test_labels_are_numbered_by_first_appearance_whatever_the_order_of_the_pairs():
    edges = [(4, 5, 0.1), (0, 3, 0.2), (1, 2, 0.3)]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        labels = propagate(_graph([edges[row] for row in order], 6))
        np.testing.assert_array_equal(labels, [0, 1, 1, 0, 2, 2])


def test_without_accepted_pairs_nobody_is_labeled():
    labels = propagate(ConsensusGraph(np.empty((0, 2), int), np.empty(0), 3))
    np.testing.assert_array_equal(labels, [-1, -1, -1])
    np.testing.assert_array_equal(labels.status, Status.NO_ACCEPTED_PAIR)


def test_no_images_have_no_labels():
    assert len(propagate(ConsensusGraph(np.empty((0, 2), int), np.empty(0), 0))) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_even_when_every_pass_removes_a_single_edge(dtype):
    # A chain whose doubts halve: each pass drops one image from its end.
    n_images = 100
    doubt = 2.0 ** -np.arange(1, n_images)
    ends = np.stack([np.arange(n_images - 1), np.arange(1, n_images)], axis=1)
    labels = propagate(ConsensusGraph(ends, doubt.astype(dtype), n_images), max_cluster_size=2, step=0.01)
    np.testing.assert_array_equal(labels, [-1] * (n_images - 2) + [0, 0])
    np.testing.assert_array_equal(labels.status[:-2], Status.ISOLATED)


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        ({"step": 0}, "step-out-of-range", {"value": 0}),
        ({"step": 1.0}, "step-out-of-range", {"value": 1.0}),
        (
            {"step": float("nan")},
            "step-out-of-range",
            {},
        ),
        ({"max_cluster_size": 1}, "max-cluster-size-too-small", {"value": 1}),
    ],
)
def test_refusals(settings, code, fields):
    with refuses(code, **fields):
        propagate(_graph([(0, 1, 0.1)], 2), **settings)

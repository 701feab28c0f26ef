import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp import ConsensusGraph, Labels, propagate
from cdp.grouping.soft_labels import diffuse, likely_pairs


def random_graph(seed: int, n_images: int = 40, n_edges: int = 60) -> ConsensusGraph:
    generator = np.random.default_rng(seed)
    ends = np.unique(np.sort(generator.integers(0, n_images, (n_edges, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    return ConsensusGraph(ends, generator.random(len(ends)).astype(np.float32) * 0.04, n_images)


def test_depth_zero_is_one_hot():
    graph = random_graph(0)
    labels = propagate(graph, max_cluster_size=5)
    soft = diffuse(graph, labels, depth=0, decay=0.5).toarray()
    expected = np.zeros_like(soft)
    kept = np.flatnonzero(labels.labels >= 0)
    expected[kept, labels.labels[kept]] = 1
    np.testing.assert_array_equal(soft, expected)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("depth", "decay"), [(1, 0.2), (3, 0.5), (10, 1.0)])
def test_agrees_with_the_slow_twin(seed, depth, decay):
    graph = random_graph(seed)
    labels = propagate(graph, max_cluster_size=4)
    assert labels.n_identities > 1
    soft = diffuse(graph, labels, depth, decay)
    np.testing.assert_allclose(
        soft.toarray(), reference.diffuse(graph.ids, labels.labels, depth, decay), atol=1e-6
    )
    sums = np.asarray(soft.sum(axis=1)).ravel()
    np.testing.assert_allclose(sums[labels.labels >= 0], 1, atol=1e-6)
    assert not sums[labels.labels < 0].any()


def test_an_image_at_the_border_belongs_to_both_groups():
    # 0-1-2 and 3-4-5, held together by the doubtful pair (2, 3) that a maximum of 3 cuts.
    graph = ConsensusGraph(
        np.array([[0, 1], [1, 2], [3, 4], [4, 5], [2, 3]]), np.array([0.01, 0.01, 0.01, 0.01, 0.04]), 6
    )
    labels = propagate(graph, max_cluster_size=3)
    assert labels.labels.tolist() == [0, 0, 0, 1, 1, 1]
    soft = diffuse(graph, labels, depth=1, decay=0.5).toarray()
    np.testing.assert_allclose(soft[2], [0.75, 0.25])  # itself 1 + one friend 0.5, one stranger 0.5
    np.testing.assert_allclose(soft[0], [1, 0])


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"depth": -1}, "diffuse-depth-negative"),
        ({"depth": 1.5}, "diffuse-depth-negative"),
        ({"decay": 0.0}, "diffuse-decay-out-of-range"),
        ({"decay": 1.5}, "diffuse-decay-out-of-range"),
    ],
)
def test_refuses_settings_out_of_range(settings, code):
    graph = random_graph(0)
    with refuses(code):
        diffuse(graph, propagate(graph), **settings)


def test_refuses_labels_of_other_images():
    with refuses("diffuse-images-differ", expected=40, found=7):
        diffuse(random_graph(0), propagate(random_graph(0, n_images=7)))


def test_a_decay_that_vanishes_leaves_one_hot_labels():
    ends = np.array([[0, 1], [1, 2], *[[2, other] for other in range(3, 10)]])
    graph = ConsensusGraph(ends, np.full(len(ends), 0.01), 10)
    labels = Labels.from_array([0, 0, 1, 1, 1, 1, 1, 1, 1, 1])
    soft = diffuse(graph, labels, depth=3, decay=1e-200)
    np.testing.assert_array_equal(soft.toarray(), np.eye(2)[labels.labels])


def test_nothing_labeled_gives_an_empty_matrix():
    graph = ConsensusGraph(np.empty((0, 2), int), np.empty(0), 4)
    assert diffuse(graph, propagate(graph), depth=2).shape == (4, 0)


def test_likely_pairs_are_those_that_say_yes():
    graph = ConsensusGraph([[0, 1], [1, 2], [2, 3]], [0.2, 0.5, 0.9], 4)
    likely = likely_pairs(graph)
    assert likely.ids.tolist() == [[0, 1]]
    assert likely.n_images == 4

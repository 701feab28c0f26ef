"""Exact average linkage against dense average linkage, and confidence against its equation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from tests import reference

from cdp.grouping.average_linkage import build_dendrogram
from cdp.grouping.cohesion import tie_groups, tie_to_group
from cdp.grouping.dendrogram import expected_shares
from cdp.grouping.exact_linkage import link_exactly
from cdp.runtime.runtime import Runtime
from cdp.types import Labels, SimilarityGraph, Softness
from cdp.types.constraints import Constraints


def made_up(n_people=12, per_person=5, noise=0.7, seed=0):
    generator = np.random.default_rng(seed)
    people = np.repeat(np.arange(n_people), per_person)
    vectors = generator.normal(size=(n_people, 16))[people] + noise * generator.normal(size=(len(people), 16))
    return vectors.astype(np.float32), people


def graph_of(vectors, offset=-2.0, threshold=1.0, softness=0.5):
    n = len(vectors)
    ids = np.stack(np.triu_indices(n, 1), axis=1).astype(np.int32)
    z = offset + np.einsum("ij,ij->i", vectors[ids[:, 0]], vectors[ids[:, 1]])
    graph = SimilarityGraph(
        ids, np.zeros(len(ids)), n, vectors, offset, threshold, Softness(softness, softness)
    )
    return replace(graph, doubt=1 - graph.probability_of(z)), z


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [-1.0, 2.0, 6.0, 11.0])
def test_equals_dense_average_linkage(seed, threshold):
    vectors, _ = made_up(seed=seed)
    graph, z = graph_of(vectors, threshold=threshold)
    top = z.max() + 1
    tree = linkage(top - z, "average")
    expected = fcluster(tree, top - threshold, "distance")
    found = build_dendrogram(graph, 1, 0.5, len(vectors)).cut(0.5)
    assert reference.partition(found.labels) == reference.partition(
        np.where(np.bincount(expected)[expected] > 1, expected, -1)
    )


def test_heights_are_those_of_dense_average_linkage():
    vectors, _ = made_up()
    graph, z = graph_of(vectors)
    merges = link_exactly(graph.ids, vectors, graph.offset, -100.0, runtime=Runtime())
    expected = z.max() - linkage(z.max() - z, "average")[:, 2]
    np.testing.assert_allclose(merges.height, expected, rtol=1e-4, atol=1e-4)


def test_few_candidate_pairs_are_enough():
    """The mean is over all pairs, though only twelve neighbors per image are candidates."""
    vectors, _ = made_up(n_people=6, per_person=40, noise=0.3)
    graph, z = graph_of(vectors, threshold=9.0)
    similarity = squareform(z)
    np.fill_diagonal(similarity, -np.inf)
    near = np.argsort(-similarity, axis=1)[:, :12]
    keys = {tuple(sorted((one, int(other)))) for one, row in enumerate(near) for other in row}
    kept = np.array([tuple(pair) in keys for pair in graph.ids.tolist()])
    sparse = replace(graph, ids=graph.ids[kept], doubt=graph.doubt[kept])
    labels = build_dendrogram(sparse, 12, 0.5, 1000).cut(0.5).labels
    dense = build_dendrogram(graph, 12, 0.5, 1000).cut(0.5).labels
    assert reference.partition(labels) == reference.partition(dense)
    assert np.bincount(labels + 1).max() > 30


def test_constraints_and_the_largest_size_are_kept():
    vectors, _ = made_up()
    graph, _ = graph_of(vectors, threshold=6.0)
    constraints = Constraints(len(vectors), must=np.array([[0, 30]]), cannot=np.array([[1, 2]]))
    labels = build_dendrogram(graph, 1, 0.5, 100, constraints).cut(0.5).labels
    assert labels[0] == labels[30]
    assert labels[1] != labels[2]
    sizes = np.bincount(build_dendrogram(graph, 1, 0.5, 3).cut(0.5).labels + 1)[1:]
    assert sizes.max() == 3


def test_confidence_equals_the_equation():
    kept, gone = np.array([0, 2, 0], np.int32), np.array([1, 3, 2], np.int32)
    right = np.array([0.9, 0.8, 0.6])
    found = expected_shares(np.arange(5, dtype=np.int32), kept, gone, right)
    expected = [(0.9 + 2 * 0.6) / 3, (0.9 + 2 * 0.6) / 3, (0.8 + 2 * 0.6) / 3, (0.8 + 2 * 0.6) / 3, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    united = np.array([0, 0, 2, 3, 4], np.int32)
    found = expected_shares(united, kept[1:2], gone[1:2], right[1:2])
    np.testing.assert_allclose(found, [1, 1, 0.8, 0.8, 0], rtol=1e-6)


def test_ties_are_probabilities_at_the_mean_of_all_pairs():
    vectors, people = made_up(n_people=4, per_person=3)
    graph, z = graph_of(vectors)
    similarity, labels = squareform(z), Labels.from_array(people)
    own = [similarity[at, (people == who) & (np.arange(12) != at)].mean() for at, who in enumerate(people)]
    np.testing.assert_allclose(tie_to_group(graph, labels, 1), graph.probability_of(np.array(own)), rtol=1e-4)
    ties = tie_groups(graph, labels, 1)
    means = [similarity[np.ix_(people == a, people == b)].mean() for a, b in ties.ids]
    np.testing.assert_allclose(ties.probability, graph.probability_of(np.array(means)), rtol=1e-4)
    assert len(ties) == 6

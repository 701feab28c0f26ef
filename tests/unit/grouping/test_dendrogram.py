"""A dendrogram cut at a threshold is average linkage at that threshold, bit for bit."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses

import reference
from cdp.grouping.average_linkage import agglomerate, build_dendrogram
from cdp.grouping.group import group
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph
from cdp.types.constraints import Constraints

TENTHS = [round(0.1 * step, 1) for step in range(11)]
thresholds = st.one_of(
    st.sampled_from(TENTHS[1:-1]), st.sampled_from([0.05, 0.25, 0.55]), st.floats(0.02, 0.98)
)


@st.composite
def graphs(draw):
    """Pairs of few images; doubts of any value, or of few, so that means tie, also with thresholds."""
    n_images = draw(st.integers(2, 25))
    image = st.integers(0, n_images - 1)
    pairs = draw(st.sets(st.tuples(image, image).filter(lambda pair: pair[0] < pair[1]), max_size=100))
    value = draw(st.sampled_from([st.sampled_from(TENTHS), st.floats(0, 1.5, width=32)]))
    doubt = draw(st.lists(value, min_size=len(pairs), max_size=len(pairs)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return ConsensusGraph(np.array(sorted(pairs), np.int32).reshape(-1, 2), np.array(doubt, dtype), n_images)


def same(one, other):
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("labels", "status", "confidence")
    )


@given(graphs(), thresholds, thresholds, st.integers(1, 12), st.integers(2, 25))
def test_a_cut_is_a_fresh_linkage_at_that_threshold(graph, one, other, k, max_cluster_size):
    lowest, threshold = sorted((one, other))
    dendrogram = build_dendrogram(graph, k, lowest, max_cluster_size)
    for at in (lowest, threshold):
        assert same(dendrogram.cut(at), agglomerate(graph, k, at, max_cluster_size))


@given(graphs(), thresholds, st.integers(1, 12), st.integers(2, 25))
def test_every_height_is_a_cut(graph, lowest, k, max_cluster_size):
    dendrogram = build_dendrogram(graph, k, lowest, max_cluster_size)
    assert all(one >= other for one, other in pairwise(dendrogram.height))
    assert (dendrogram.height > lowest).all()
    # Just at a height its merge is not made yet: the mean must be greater than the threshold.
    for height in dendrogram.height[dendrogram.height < 1][:8].tolist():
        for at in (height, np.nextafter(height, 0)):
            assert same(dendrogram.cut(at), agglomerate(graph, k, at, max_cluster_size))


@given(graphs(), thresholds, thresholds, thresholds, st.integers(1, 12), st.integers(2, 25))
def test_a_higher_threshold_never_joins_groups(graph, one, two, three, k, max_cluster_size):
    lowest, low, high = sorted((one, two, three))
    dendrogram = build_dendrogram(graph, k, lowest, max_cluster_size)
    whole = reference.partition(dendrogram.cut(low).labels)
    for part in reference.partition(dendrogram.cut(high).labels):
        assert any(part <= other for other in whole)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3]), st.floats(0.3, 0.9), st.booleans())
def test_cuts_agree_with_the_definition(seed, lowest, threshold, constrained):
    generator = np.random.default_rng(seed)
    n_images = 18
    ends = np.unique(np.sort(generator.integers(0, n_images, (70, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] < ends[:, 1]]
    doubt = generator.random(len(ends)) ** 2
    must, cannot = ([(0, 17), (3, 5)], [(1, 2), (0, 6)]) if constrained else ([], [])
    constraints = Constraints(n_images, must=np.array(must), cannot=np.array(cannot)) if constrained else None
    dendrogram = build_dendrogram(ConsensusGraph(ends, doubt, n_images), 5, lowest, 9, constraints)
    allowed = np.array([tuple(pair) not in cannot for pair in ends.tolist()])
    twin = reference.agglomerate(ends[allowed], 1 - doubt[allowed], n_images, 5, threshold, 9, must, cannot)
    assert reference.partition(dendrogram.cut(threshold).labels) == twin


@given(graphs(), thresholds, thresholds, st.integers(2, 12))
def test_under_constraints_a_cut_is_a_fresh_linkage_too(graph, one, other, max_cluster_size):
    lowest, threshold = sorted((one, other))
    constraints = Constraints(
        graph.n_images, must=np.array([[0, graph.n_images - 1]]), named={0: "Anna", 1: "Anna"}
    )
    dendrogram = build_dendrogram(graph, 4, lowest, max(4, max_cluster_size), constraints)
    fresh = agglomerate(graph, 4, threshold, max(4, max_cluster_size), constraints)
    assert same(dendrogram.cut(threshold), fresh)


@given(graphs(), st.sampled_from([0.2, 0.45]))
def test_groups_from_a_dendrogram_are_groups_from_the_pairs(graph, threshold):
    settings = ConsensusSettings.of(k=5)
    dendrogram = build_dendrogram(graph, 5, 0.1, settings.most_images)
    fresh = group(graph, settings, threshold)
    assert same(group(graph, settings, threshold, dendrogram=dendrogram), fresh)
    free = Constraints(graph.n_images, must=np.array([[0, 1]]))
    fresh = group(graph, settings, threshold, free)
    assert same(group(graph, settings, threshold, free, dendrogram=dendrogram), fresh)


@pytest.mark.parametrize("threshold", [0.1, 0.29, 1.0, float("nan")])
def test_thresholds_that_the_dendrogram_does_not_hold_are_refused(threshold):
    dendrogram = build_dendrogram(ConsensusGraph(np.array([[0, 1]]), np.array([0.1]), 2), 3, 0.3)
    with refuses("threshold-not-in-dendrogram", lowest=0.3):
        dendrogram.cut(threshold)

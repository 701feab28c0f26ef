"""Components from shards and groups from batches: what all pairs at once give, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import reference

from cdp.grouping import components as sharded_components
from cdp.grouping.average_linkage import agglomerate, build_dendrogram
from cdp.grouping.components import Batch, find_components, group_batches
from cdp.grouping.propagation import propagate
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.spill import SpillFiles
from cdp.types import ConsensusGraph


class InTurn:
    """A pool without processes."""

    def map(self, function, shared, items):
        return (function(shared, item) for item in items)


class Pooled(Runtime):
    @property
    def pool(self):
        return InTurn()


@st.composite
def graphs(draw):
    """Pairs of few images, in any order of doubt, with ties."""
    n_images = draw(st.integers(2, 25))
    image = st.integers(0, n_images - 1)
    pairs = draw(st.sets(st.tuples(image, image).filter(lambda pair: pair[0] < pair[1]), max_size=60))
    doubt = draw(
        st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 0.95]), min_size=len(pairs), max_size=len(pairs))
    )
    ids = np.array(sorted(pairs), np.int32).reshape(-1, 2)
    return ConsensusGraph(ids, np.array(doubt, np.float32), n_images)


def joining(graph, above):
    return None if above is None else 1 - graph.doubt.astype(np.float64) > above


@given(graphs(), st.sampled_from([None, 0.1, 0.5]), st.integers(1, 20))
def test_components_do_not_depend_on_shards(graph, above, pairs_per_shard):
    joins = joining(graph, above)
    expected = reference.components(graph.ids if joins is None else graph.ids[joins], graph.n_images)
    for runtime in (Runtime(), Pooled()):
        found = find_components(
            graph.ids, graph.n_images, joins, runtime=runtime, pairs_per_shard=pairs_per_shard
        )
        assert found.tolist() == expected


def keep(_: None, batch: Batch, spill: SpillFiles) -> Batch:
    return batch


@given(graphs(), st.sampled_from([None, 0.5]), st.integers(1, 30), st.booleans())
def test_every_component_is_in_one_batch_with_all_its_pairs(graph, above, most_pairs, fits):
    joins = joining(graph, above)
    component = find_components(graph.ids, graph.n_images, joins)
    inside = component[graph.ids[:, 0]] == component[graph.ids[:, 1]]
    seen = []
    pairs = Batch(None, graph.ids, (graph.doubt,), graph.n_images)
    with pytest.MonkeyPatch.context() as patch:
        runtime = Runtime()
        if not fits:
            patch.setattr(sharded_components, "_FEWEST_PAIRS", most_pairs)
            runtime = Runtime.of(memory_budget="1KB")
        for images, batch in group_batches(keep, None, pairs, joins, runtime=runtime, most_pairs=most_pairs):
            ids = batch.ids if images is None else images[batch.ids]
            names = component[ids[:, 0]]
            assert len(ids) <= most_pairs or len(set(names.tolist())) == 1
            assert batch.n_images == (graph.n_images if images is None else len(np.unique(ids)))
            seen += zip(ids.tolist(), batch.columns[0].tolist(), strict=True)
    expected = zip(graph.ids[inside].tolist(), graph.doubt[inside].tolist(), strict=True)
    assert sorted(seen) == sorted(expected)


def same(one, other):
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("labels", "status", "confidence")
    )


@given(graphs(), st.integers(2, 6), st.integers(1, 12))
def test_batches_give_the_same_groups_bit_for_bit(graph, max_cluster_size, most_pairs):
    whole = propagate(graph, max_cluster_size), build_dendrogram(graph, 3, 0.2, max_cluster_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded_components, "_FEWEST_PAIRS", most_pairs)
        tight = Pooled(RuntimeSettings(memory_budget="1KB"))
        assert same(propagate(graph, max_cluster_size, runtime=tight), whole[0])
        batched = build_dendrogram(graph, 3, 0.2, max_cluster_size, runtime=tight)
        assert sorted(batched.height) == sorted(whole[1].height)
        assert all(same(batched.cut(threshold), whole[1].cut(threshold)) for threshold in (0.2, 0.45, 0.6))


@given(graphs(), st.sampled_from([0.1, 0.2, 0.45]))
def test_average_linkage_joins_inside_components_only(graph, threshold):
    labels = agglomerate(graph, 5, threshold).labels
    component = find_components(graph.ids, graph.n_images, joining(graph, threshold))
    for image, label in enumerate(labels.tolist()):
        if label >= 0:
            assert len(set(component[labels == label].tolist())) == 1, image

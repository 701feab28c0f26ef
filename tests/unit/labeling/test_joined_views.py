"""Labeled images joined with the unlabeled ones, and removed again."""

import numpy as np

from cdp.labeling.joined_views import concatenate, first_lists
from cdp.runtime.packing import is_mapped
from cdp.runtime.runtime import Runtime
from cdp.runtime.spill import SpillFiles
from cdp.types import KnnGraph, Views


def test_the_first_rows_lose_neighbors_past_them():
    graph = KnnGraph(
        [[3, 1], [0, 2], [3, 0], [0, 1]], [[0.9, 0.8], [0.7, 0.6], [0.5, 0.4], [0.3, 0.2]], "exact", 1.0
    )
    first = first_lists(graph, 3, Runtime())
    assert first.neighbors.tolist() == [[1, -1], [0, 2], [0, -1]]
    np.testing.assert_allclose(first.similarity, [[0.8, -np.inf], [0.7, 0.6], [0.4, -np.inf]])
    assert (first.method, first.recall) == ("exact", 1.0)


class _OnACluster(Runtime):
    """A runtime whose blocks run in other processes."""

    pool = property(lambda _: "a cluster")


def test_embeddings_are_copied_only_where_other_processes_could_not_open_them(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    np.save(tmp_path / "mapped.npy", vectors)
    mapped, inside = Views(np.load(tmp_path / "mapped.npy", mmap_mode="r")), Views(vectors)
    joined = concatenate([mapped, inside], Runtime.of(threads=1))
    assert [
        np.shares_memory(*pair)
        for pair in zip(joined.base.sources, (mapped.base.source, vectors), strict=True)
    ] == [True, True]
    spill = SpillFiles(0, tmp_path, is_shared=True)
    joined = concatenate([mapped, inside], _OnACluster(shared_spill=spill))
    assert all(map(is_mapped, joined.base.sources))
    assert np.shares_memory(joined.base.sources[0], mapped.base.source)
    np.testing.assert_array_equal(joined.base.vectors, np.tile(inside.base.vectors, (2, 1)))
    three = concatenate([mapped, inside, mapped], Runtime.of(threads=1))
    assert len(three.base.sources) == 1
    assert three.n_images == 9000

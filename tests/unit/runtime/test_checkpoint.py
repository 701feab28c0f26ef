"""A search that was stopped goes on where it was, and ends with the same bytes."""

from itertools import pairwise

import numpy as np
import pytest

from cdp.knn import autotune, exact, ivf_search
from cdp.knn.search import each_knn_graph
from cdp.runtime import checkpoint
from cdp.runtime.checkpoint import ListCheckpoint
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.types import Embeddings
from cdp.types.graphs import UnfinishedLists

K = 6


def _search(method, keeping):
    vectors = np.random.default_rng(0).normal(size=(900, 5)).astype(np.float32)
    return next(
        each_knn_graph([Embeddings(vectors)], K, method, recall=0.9, runtime=Kept(keeping), keys=["key"])
    )


class Kept(Runtime):
    """Two threads, and this checkpoint under every key."""

    def __init__(self, keeping):
        super().__init__(RuntimeSettings(threads=2))
        object.__setattr__(self, "keeping", keeping)

    def list_checkpoint(self, key):
        return self.keeping if key else ListCheckpoint()

    def with_threads_for(self, block_bytes):
        return self


@pytest.fixture
def small(monkeypatch):
    """Several pairs of blocks, and several rounds of probing, however few images there are."""
    monkeypatch.setattr(exact, "BLOCK_ROWS", 200)
    monkeypatch.setattr(autotune, "_exact_cost", lambda embeddings: np.inf)
    monkeypatch.setattr(autotune, "LAYOUTS", ((20, (8, 12, 16), False),))
    monkeypatch.setattr(ivf_search, "_CELLS_PER_CHECKPOINT", 20)


@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_what_was_kept_is_not_searched_again(monkeypatch, small, method):
    monkeypatch.setattr(checkpoint, "_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_LONGEST_SHARE", np.inf)
    kept = []

    def keep(lists):
        kept.append(UnfinishedLists(lists.neighbors.copy(), lists.similarity.copy(), lists.done))

    whole = _search(method, ListCheckpoint(save=keep))
    assert whole.method == method
    assert len(kept) >= 3
    assert [lists.done for lists in kept] == sorted({lists.done for lists in kept})

    worked = []
    for module, name in (
        (exact, "_compare_pair"),
        (ivf_search, "search_assigned_cells"),
        (ivf_search, "probe_cells"),
    ):
        work = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, work=work: worked.append(1) or work(*given))
    for lists in kept:
        worked.clear()
        resumed = _search(method, ListCheckpoint(lambda lists=lists: lists))
        assert len(worked) == len(kept) - 1 - [one.done for one in kept].index(lists.done)
        np.testing.assert_array_equal(resumed.neighbors, whole.neighbors)
        np.testing.assert_array_equal(resumed.similarity, whole.similarity)
        assert resumed.recall == whole.recall


def test_lists_of_another_shape_are_not_used(small):
    lists = UnfinishedLists(np.zeros((900, 3), np.int32), np.ones((900, 3), np.float32), 2)
    np.testing.assert_array_equal(
        _search("exact", ListCheckpoint(lambda: lists)).neighbors,
        _search("exact", ListCheckpoint()).neighbors,
    )


def test_nothing_is_kept_before_it_is_time(small):
    kept = []
    _search("exact", ListCheckpoint(save=kept.append))
    assert kept == []


def test_to_keep_takes_a_tenth_of_the_time_at_most(monkeypatch):
    now, kept = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    def save(noun):
        kept.append(now[0])
        now[0] += 30

    keeping = checkpoint.Checkpoint(save=save)
    while now[0] < 1000:
        keeping.keep(dict)
        now[0] += 10
    assert kept[0] == 60
    assert all(300 <= later - earlier - 30 <= 310 for earlier, later in pairwise(kept))

"""Connected components of pairs that need not fit into memory, and components handed out as tasks.

No pair between two components ever joins anything, so components are grouped one by one, in batches, wherever there is room: on
threads of this process, or on Ray. Pairs lie in a file that all workers map; a shard is a piece of it.

- Every shard is reduced to a spanning forest, which has the same components and at most one edge per image; the forests are
  joined here. What is held is one number per image, whatever the number of pairs.
- A component is named after its smallest image, so the order of shards and batches does not matter.
- Pairs are laid out batch by batch, those of a component in the order that they came in; so a batch gives, bit for bit, what all
  pairs at once would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cdp.engine import Engine
from cdp.kernels import kernel
from cdp.parallel import map_shared, spans
from cdp.scratch import Scratch
from cdp.types import ConsensusGraph
from cdp.types.arrays import AnyArray, IntArray, LongArray

Settings = TypeVar("Settings")
Answer = TypeVar("Answer")

BYTES_PER_PAIR = 96
"""What grouping takes per pair at most, the pair and its doubt included (`python -m benchmarks grouping_memory`)."""
_FEWEST_PAIRS = 4096
_PAIRS_PER_SHARD = 2**20


@dataclass(frozen=True, eq=False)
class Batch:
    """Some components.

    Attributes:
        images: int32, the images in them, ascending; None = all images.
        graph: their pairs, in numbers that count those images only.
    """

    images: IntArray | None
    graph: ConsensusGraph


def group_batches(
    function: Callable[[Settings, Batch], Answer],
    settings: Settings,
    graph: ConsensusGraph,
    above: float | None = None,
    *,
    engine: Engine | None = None,
    scratch: Scratch | None = None,
    most_pairs: int | None = None,
) -> Iterator[tuple[IntArray | None, Answer]]:
    """Batches of components and function(settings, batch) for each of them.

    Images without a pair are in none. All pairs are one batch where they fit into a share of the memory budget.

    Args:
        function: groups one batch.
        settings: what all batches need.
        graph: pairs and their doubts.
        above: only pairs with a greater probability join components, but pairs inside them stay; None = all pairs join.
        engine: workers and memory.
        scratch: where pairs lie while they are handed out.
        most_pairs: in a batch that has more than one component; fewer where the memory budget says so.
    """
    engine, scratch = engine or Engine(), scratch or Scratch()
    fitting = max(_FEWEST_PAIRS, engine.share // BYTES_PER_PAIR)
    most_pairs = fitting if most_pairs is None else min(most_pairs, fitting)
    if above is None and len(graph) <= most_pairs:
        yield None, function(settings, Batch(None, graph))
        return
    component = find_components(graph, above, engine=engine)
    batch_of, sizes = _fill_batches(graph, component, most_pairs)
    ids, doubt = _lay_out(graph, component, batch_of, sizes, scratch)
    if len(sizes) <= 1:
        yield None, function(settings, Batch(None, ConsensusGraph(ids, doubt, graph.n_images)))
        return
    ends = np.cumsum(sizes)
    # Components that are larger than a batch by themselves: of these, fewer are under way.
    is_large = sizes > most_pairs
    for some in (np.flatnonzero(~is_large), np.flatnonzero(is_large)):
        if len(some):
            cut = [slice(ends[number] - sizes[number], ends[number]) for number in some]
            workers = engine.workers_for(BYTES_PER_PAIR * int(sizes[some].max()))
            pieces = ((ids[where], doubt[where]) for where in cut)
            yield from map_shared(_group_batch, (function, settings), pieces, workers)


def _group_batch(
    shared: tuple[Callable[[Settings, Batch], Answer], Settings], piece: tuple[IntArray, AnyArray]
) -> tuple[IntArray | None, Answer]:
    function, settings = shared
    ids, doubt = piece
    images, local = np.unique(ids, return_inverse=True)
    graph = ConsensusGraph(local.reshape(ids.shape).astype(np.int32), doubt, len(images))
    return images, function(settings, Batch(images, graph))


def find_components(
    graph: ConsensusGraph,
    above: float | None = None,
    *,
    engine: Engine | None = None,
    pairs_per_shard: int = _PAIRS_PER_SHARD,
) -> IntArray:
    """The smallest image of every image's component, int32 (n,).

    Args:
        graph: pairs and their doubts.
        above: only pairs with a greater probability join; None = all.
        engine: shards are reduced on its workers, if they are a pool; on threads one pass over the pairs is faster.
        pairs_per_shard: how many pairs a task takes.
    """
    least = -1.0 if above is None else above
    parent = np.arange(graph.n_images, dtype=np.int32)
    workers = (engine or Engine()).workers
    shards = (
        (graph.ids[start:stop], graph.doubt[start:stop]) for start, stop in spans(len(graph), pairs_per_shard)
    )
    if isinstance(workers, int):
        for ids, doubt in shards:
            _join(ids, doubt, least, parent)
    else:
        for forest in map_shared(_reduce_shard, least, shards, workers):
            _join(forest, np.zeros(len(forest), np.float32), -1.0, parent)
    _point_to_smallest(parent)
    return parent


def _reduce_shard(least: float, shard: tuple[IntArray, AnyArray]) -> IntArray:
    """A spanning forest of the shard's pairs that join."""
    ids, doubt = shard
    images, local = np.unique(ids, return_inverse=True)
    is_used = _join(
        local.reshape(ids.shape).astype(np.int32), doubt, least, np.arange(len(images), dtype=np.int32)
    )
    forest: IntArray = ids[is_used]
    return forest


@kernel
def _join(ids: IntArray, doubt: AnyArray, least: float, parent: IntArray) -> AnyArray:
    """Union-find (Rem's algorithm) with the pairs more probable than `least`: which of them joined two components.

    A parent is never larger than its child.
    """
    is_used = np.zeros(len(ids), np.bool_)
    for row in range(len(ids)):
        if not max(1.0 - np.float64(doubt[row]), 0.0) > least:
            continue
        one = ids[row, 0]
        other = ids[row, 1]
        while parent[one] != parent[other]:
            if parent[one] < parent[other]:
                one, other = other, one
            if parent[one] == one:
                parent[one] = parent[other]
                is_used[row] = True
                break
            above = parent[one]
            parent[one] = parent[other]
            one = above
    return is_used


@kernel
def _point_to_smallest(parent: IntArray) -> None:
    for node in range(len(parent)):
        parent[node] = parent[parent[node]]


def _fill_batches(graph: ConsensusGraph, component: IntArray, most_pairs: int) -> tuple[IntArray, LongArray]:
    """The batch of every component, by its smallest image, and how many pairs each batch has."""
    counts = np.zeros(graph.n_images, np.int64)
    _count_pairs(graph.ids, component, counts)
    batch_of = np.full(graph.n_images, -1, np.int32)
    n_batches = _fill(counts, most_pairs, batch_of)
    has_pairs = np.flatnonzero(counts)
    sizes = np.zeros(n_batches, np.int64)
    np.add.at(sizes, batch_of[has_pairs], counts[has_pairs])
    return batch_of, sizes


@kernel
def _count_pairs(ids: IntArray, component: IntArray, counts: LongArray) -> None:
    """Of every component, the pairs inside it."""
    for row in range(len(ids)):
        if component[ids[row, 0]] == component[ids[row, 1]]:
            counts[component[ids[row, 0]]] += 1


@kernel
def _fill(counts: LongArray, most: int, batch_of: IntArray) -> int:
    """Put components into batches of at most so many pairs, in order; one that is larger is a batch of its own."""
    batch, n_pairs = -1, 0
    for component in range(len(counts)):
        if counts[component] > 0:
            if batch < 0 or n_pairs + counts[component] > most:
                batch += 1
                n_pairs = 0
            batch_of[component] = batch
            n_pairs += counts[component]
    return batch + 1


def _lay_out(
    graph: ConsensusGraph, component: IntArray, batch_of: IntArray, sizes: LongArray, scratch: Scratch
) -> tuple[IntArray, AnyArray]:
    """The pairs inside components batch by batch, and their doubts."""
    n_pairs = int(sizes.sum())
    ids, doubt = scratch.empty((n_pairs, 2), np.int32), scratch.empty(n_pairs, graph.doubt.dtype)
    _place(graph.ids, graph.doubt, component, batch_of, np.cumsum(sizes) - sizes, ids, doubt)
    return scratch.done(ids), scratch.done(doubt)


@kernel
def _place(
    ids: IntArray,
    doubt: AnyArray,
    component: IntArray,
    batch_of: IntArray,
    free: LongArray,
    placed: IntArray,
    placed_doubt: AnyArray,
) -> None:
    for row in range(len(ids)):
        one = component[ids[row, 0]]
        if one == component[ids[row, 1]]:
            place = free[batch_of[one]]
            placed[place, 0] = ids[row, 0]
            placed[place, 1] = ids[row, 1]
            placed_doubt[place] = doubt[row]
            free[batch_of[one]] += 1

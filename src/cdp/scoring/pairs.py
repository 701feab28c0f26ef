"""Candidate pairs: the edges of the base model's graph (paper, section 3.1.i)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.types import ConsensusGraph, KnnGraph, Pairs
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.graphs import take_pairs

_ROWS_PER_BLOCK = 65_536


def candidate_pairs(graph: KnnGraph, runtime: Runtime | None = None) -> Pairs:
    """List every edge of the base graph as an unordered pair, once.

    "Each edge in the k-NN graph defines a pair, and all the pairs from the base model's graph form
    candidates."

    Deviation: a k-NN graph is directed, a pair is not; an edge in either direction makes the pair.

    Args:
        graph: the base model's.
        runtime: how it runs.
    """
    runtime = runtime or Runtime()
    blocks = spans(graph.n_images, _ROWS_PER_BLOCK)
    n_pairs, reverse = 0, list[LongArray]()
    for n_forward, keys in runtime.map(_find_reverse, graph, blocks):
        n_pairs += n_forward + len(keys)
        reverse.append(runtime.copy(keys))
    starts = np.array([start for start, _ in blocks], np.int64) << 32
    bounds = [np.append(np.searchsorted(keys, starts), len(keys)) for keys in reverse]
    given = (
        (block, [keys[slice(*at[number : number + 2])] for keys, at in zip(reverse, bounds, strict=True)])
        for number, block in enumerate(blocks)
    )
    ids = runtime.empty((n_pairs, 2), np.int32)
    stop = 0
    for part in runtime.map(_list_pairs, graph, given):
        ids[stop : stop + len(part)] = part
        stop += len(part)
    return Pairs(runtime.finished(ids), graph.n_images)


def _find_reverse(graph: KnnGraph, block: tuple[int, int]) -> tuple[int, LongArray]:
    """Find the edges of some images to smaller ones that lack the edge back.

    A smaller image lists all other edges itself.

    Returns:
        how many of the block's edges lead to larger images; keys of the edges, smaller id << 32 | larger id.
    """
    keys = np.empty((block[1] - block[0]) * graph.k, np.int64)
    n_forward, n_found = _fill_reverse(graph.neighbors, *block, keys)
    return n_forward, np.sort(keys[:n_found])


def _list_pairs(graph: KnnGraph, given: tuple[tuple[int, int], Sequence[LongArray]]) -> IntArray:
    """List the pairs whose smaller id is in a block: its own edges, and those found from the other end."""
    block, reverse = given
    keys = np.empty((block[1] - block[0]) * graph.k, np.int64)
    own = keys[: _fill_forward(graph.neighbors, *block, keys)]
    keys = np.sort(np.concatenate([own, *reverse]))
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1).astype(np.int32)


def keep_pairs(
    graph: ConsensusGraph,
    is_kept: Callable[[IntArray, AnyArray], BoolArray],
    runtime: Runtime | None = None,
) -> ConsensusGraph:
    """Filter pairs, block by block.

    Args:
        graph: all of them.
        is_kept: from the ids and doubts of some pairs to whether each is kept.
        runtime: memory budget and spill files.
    """
    runtime = runtime or Runtime()
    blocks = [slice(*span) for span in spans(len(graph), PAIRS_PER_BLOCK)]
    kept = [is_kept(graph.ids[block], graph.doubt[block]) for block in blocks]
    sizes = [int(np.count_nonzero(mask)) for mask in kept]
    ids, doubt = runtime.empty((sum(sizes), 2), np.int32), runtime.empty(sum(sizes), graph.doubt.dtype)
    start = 0
    for block, mask, size in zip(blocks, kept, sizes, strict=True):
        stop = start + size
        ids[start:stop], doubt[start:stop] = take_pairs(graph.ids[block], mask), graph.doubt[block][mask]
        start = stop
    return ConsensusGraph(runtime.finished(ids), runtime.finished(doubt), graph.n_images)


@kernel
def _is_neighbor(neighbors: IntArray, image: int, other: int) -> bool:
    for column in range(neighbors.shape[1]):  # noqa: SIM110 (the compiler knows no generators)
        if neighbors[image, column] == other:
            return True
    return False


@kernel
def _fill_reverse(neighbors: IntArray, start: int, stop: int, keys: LongArray) -> tuple[int, int]:
    n_forward, n_found = 0, 0
    for image in range(start, stop):
        for column in range(neighbors.shape[1]):
            other = neighbors[image, column]
            if other > image:
                n_forward += 1
            elif other >= 0 and not _is_neighbor(neighbors, other, image):
                keys[n_found] = (np.int64(other) << 32) + image
                n_found += 1
    return n_forward, n_found


@kernel
def _fill_forward(neighbors: IntArray, start: int, stop: int, keys: LongArray) -> int:
    n_found = 0
    for image in range(start, stop):
        for column in range(neighbors.shape[1]):
            if neighbors[image, column] > image:
                keys[n_found] = (np.int64(image) << 32) + neighbors[image, column]
                n_found += 1
    return n_found


def are_edges(graph: KnnGraph, ids: IntArray) -> BoolArray:
    """For every pair (m, 2), whether either image is among the other's neighbors, bool (m,)."""
    answer = np.empty(len(ids), np.bool_)
    _are_edges(graph.neighbors, ids, answer)
    return answer


@kernel
def _are_edges(neighbors: IntArray, ids: IntArray, answer: BoolArray) -> None:
    for row in range(len(ids)):
        first = ids[row, 0]
        second = ids[row, 1]
        answer[row] = _is_neighbor(neighbors, first, second) or _is_neighbor(neighbors, second, first)

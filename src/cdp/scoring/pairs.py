"""Candidate pairs: the edges of the base model's graph (paper, section 3.1.i)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.types import ConsensusGraph, KnnGraph, Pairs
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray


def candidate_pairs(graph: KnnGraph, runtime: Runtime | None = None) -> Pairs:
    """List every edge of the base graph as an unordered pair, once.

    "Each edge in the k-NN graph defines a pair, and all the pairs from the base model's graph form
    candidates."

    Deviation: a k-NN graph is directed, a pair is not; an edge in either direction makes the pair.

    Args:
        graph: the base model's.
        runtime: memory budget and spill files.
    """
    runtime = runtime or Runtime()
    counts = np.zeros(graph.n_images + 1, np.int64)
    _count_pairs(graph.neighbors, counts)
    starts: LongArray = np.cumsum(counts)
    ids = runtime.empty((int(starts[-1]), 2), np.int32)
    _fill_pairs(graph.neighbors, starts, ids)
    return Pairs(runtime.finished(ids), graph.n_images)


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
    kept = [
        np.flatnonzero(is_kept(graph.ids[block], graph.doubt[block])).astype(np.int32) for block in blocks
    ]
    n_kept = sum(map(len, kept))
    ids, doubt = runtime.empty((n_kept, 2), np.int32), runtime.empty(n_kept, graph.doubt.dtype)
    start = 0
    for block, rows in zip(blocks, kept, strict=True):
        stop = start + len(rows)
        ids[start:stop], doubt[start:stop] = graph.ids[block][rows], graph.doubt[block][rows]
        start = stop
    return ConsensusGraph(runtime.finished(ids), runtime.finished(doubt), graph.n_images)


@kernel
def _is_neighbor(neighbors: IntArray, image: int, other: int) -> bool:
    for column in range(neighbors.shape[1]):  # noqa: SIM110 (the compiler knows no generators)
        if neighbors[image, column] == other:
            return True
    return False


@kernel
def _count_pairs(neighbors: IntArray, counts: LongArray) -> None:
    """counts[i + 1] = number of pairs whose smaller id is i."""
    for image in range(neighbors.shape[0]):
        for column in range(neighbors.shape[1]):
            other = neighbors[image, column]
            if other > image:
                counts[image + 1] += 1
            elif other >= 0 and not _is_neighbor(neighbors, other, image):
                # Seen from the smaller id already, if that one has the edge too.
                counts[other + 1] += 1


@kernel
def _fill_pairs(neighbors: IntArray, starts: LongArray, ids: IntArray) -> None:
    free = starts[:-1].copy()
    for image in range(neighbors.shape[0]):
        for column in range(neighbors.shape[1]):
            other = neighbors[image, column]
            if other > image:
                ids[free[image], 0] = image
                ids[free[image], 1] = other
                free[image] += 1
            elif other >= 0 and not _is_neighbor(neighbors, other, image):
                ids[free[other], 0] = other
                ids[free[other], 1] = image
                free[other] += 1
    for image in range(neighbors.shape[0]):
        ids[starts[image] : starts[image + 1], 1].sort()


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

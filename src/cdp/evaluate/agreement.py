"""Edges of k-NN graphs, counted block by block: which graphs have them, which join one identity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.knn.pair_similarity import sort_for_locality
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.scoring.id_table import find_slot, make_table
from cdp.types import KnnGraph
from cdp.types.arrays import BoolArray, DoubleArray, IntArray, LongArray

_ROWS_PER_BLOCK = 8192


def agreement(
    graphs: Sequence[KnnGraph], runtime: Runtime | None = None, n_images: int | None = None
) -> DoubleArray:
    """Return the share of the row graph's edges that are also edges of the column's graph.

    An edge is an unordered pair, in a graph if either image is among the other's neighbors, as for candidate
    pairs. The diagonal is 1; rows and columns differ, because graphs with the same k still have unlike
    numbers of edges.

    Args:
        graphs: graphs over the same images, base first.
        runtime: how it runs.
        n_images: count edges between the first images only; default: all.

    Returns:
        float64 (N+1, N+1); 0 in the row of a graph without edges.
    """
    sizes = {graph.n_images for graph in graphs}
    if len(sizes) != 1:
        raise InputError(
            f"agreement: the graphs have {', '.join(f'{size:,}' for size in sorted(sizes)) or 'no'} images; "
            "give graphs over the same images.",
            code="agreement-images-differ",
            found=tuple(sorted(sizes)),
        )
    n_images = graphs[0].n_images if n_images is None else n_images
    lists = [graph.neighbors for graph in graphs]
    shared = np.zeros((len(graphs), len(graphs)), np.int64)
    blocks = spans(n_images, _ROWS_PER_BLOCK)
    for of_block in (runtime or Runtime()).map(_count_shared, (lists, n_images), blocks):
        shared += of_block
    found: DoubleArray = shared / np.maximum(np.diagonal(shared), 1)[:, None]
    return found


def count_same_edges(
    graphs: Sequence[KnnGraph], identities: LongArray, runtime: Runtime | None = None
) -> LongArray:
    """Count the neighbors of known identity in every graph, and those of the image's own, int64 (graphs, 2).

    Args:
        graphs: of the same images; the first ones count, as many as there are identities.
        identities: -1 where unknown.
        runtime: how it runs.
    """
    counts = np.zeros((len(graphs), 2), np.int64)
    shared = ([graph.neighbors for graph in graphs], identities)
    blocks = spans(len(identities), _ROWS_PER_BLOCK)
    for of_block in (runtime or Runtime()).map(_count_same_neighbors, shared, blocks):
        counts += of_block
    return counts


def count_same_pairs(
    graph: KnnGraph, identities: LongArray, runtime: Runtime | None = None
) -> tuple[int, int]:
    """Count the edges between images of known identity, and those inside an identity; arguments as above."""
    shared, n_known, n_same = (graph.neighbors, identities), 0, 0
    for known, same in (runtime or Runtime()).map(
        _count_pairs_of_block, shared, spans(len(identities), _ROWS_PER_BLOCK)
    ):
        n_known, n_same = n_known + known, n_same + same
    return n_known, n_same


def _count_shared(shared: tuple[Sequence[IntArray], int], block: tuple[int, int]) -> LongArray:
    """Count the edges that two graphs have in common, int64 (N+1, N+1), seen from the images of a block.

    An edge is seen from both of its ends if each lists the other; it is counted at the smaller one.
    """
    lists, n_images = shared
    near = np.concatenate([neighbors[slice(*block)] for neighbors in lists], axis=1)
    graph_of_column = np.repeat(np.arange(len(lists)), [neighbors.shape[1] for neighbors in lists])
    pairs, forward = _unite(near, graph_of_column, block[0], n_images, len(lists))
    pairs, origin = sort_for_locality(pairs, n_images)
    images, others = np.ascontiguousarray(pairs.T)
    forward = forward[:, origin]
    backward = np.empty_like(forward)
    for neighbors, is_listed in zip(lists, backward, strict=True):
        _find_listed(neighbors, others, images, is_listed)
    counts_here = (images < others) | ~backward.any(axis=0)
    edges = (forward | backward)[:, counts_here].astype(np.float32)  # sums below 2^24 are exact
    return (edges @ edges.T).astype(np.int64)


def _count_same_neighbors(shared: tuple[Sequence[IntArray], LongArray], block: tuple[int, int]) -> LongArray:
    lists, identities = shared
    counts = np.zeros((len(lists), 2), np.int64)
    for neighbors, of_graph in zip(lists, counts, strict=True):
        _count_same(neighbors, identities, *block, False, of_graph)
    return counts


def _count_pairs_of_block(shared: tuple[IntArray, LongArray], block: tuple[int, int]) -> tuple[int, int]:
    counts = np.zeros(2, np.int64)
    _count_same(*shared, *block, True, counts)
    return int(counts[0]), int(counts[1])


@kernel
def _is_in(neighbors: IntArray, image: int, other: int) -> bool:
    # Without a branch the compiler compares several at once. Flags of 32 bits fill the same registers.
    found = np.int32(0)
    for column in range(neighbors.shape[1]):
        found = np.int32(found | np.int32(neighbors[image, column] == other))
    return bool(found)


@kernel
def _unite(
    near: IntArray, graph_of_column: LongArray, start: int, n_images: int, n_graphs: int
) -> tuple[IntArray, BoolArray]:
    """List every image of a block with each of its neighbors once.

    Returns:
        int32 (m, 2), image and neighbor; bool (n_graphs, m), the graphs that have them.
    """
    pairs = np.empty((near.size, 2), np.int32)
    found = np.zeros((n_graphs, near.size), np.bool_)
    keys, place = make_table(near.shape[1])
    count = 0
    for row in range(len(near)):
        keys[:] = -1
        for column in range(near.shape[1]):
            other = near[row, column]
            if other < 0 or other >= n_images:
                continue
            slot = find_slot(keys, other)
            if keys[slot] < 0:
                keys[slot], place[slot] = other, count
                pairs[count, 0], pairs[count, 1] = start + row, other
                count += 1
            found[graph_of_column[column], place[slot]] = True
    return pairs[:count], found[:, :count]


@kernel
def _find_listed(neighbors: IntArray, images: IntArray, others: IntArray, is_listed: BoolArray) -> None:
    """Find whether each image has the other among its neighbors."""
    for at in range(len(images)):
        is_listed[at] = _is_in(neighbors, images[at], others[at])


@kernel
def _count_same(
    neighbors: IntArray, identities: LongArray, start: int, stop: int, once: bool, counts: LongArray
) -> None:
    """Count neighbors whose identities are known, and those of the same one; with `once`, every pair once."""
    for image in range(start, stop):
        if identities[image] < 0:
            continue
        for other in neighbors[image]:
            if not 0 <= other < len(identities) or identities[other] < 0:
                continue
            if once and image > other and _is_in(neighbors, other, image):
                continue
            counts[0] += 1
            counts[1] += identities[other] == identities[image]

"""How often networks agree: edges of one network's neighbor graph that are edges of another's too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cdp.errors import InputError
from cdp.parallel import spans
from cdp.types import KnnGraph
from cdp.types.arrays import BoolArray, DoubleArray, IntArray, LongArray

_BYTES_PER_BLOCK = 32 * 2**20


def agreement(graphs: Sequence[KnnGraph]) -> DoubleArray:
    """The share of the row graph's edges that are also edges of the column's graph.

    An edge is an unordered pair, in a graph if either image is among the other's neighbors, as for candidate pairs.
    The diagonal is 1; rows and columns differ, because graphs with the same k still have unlike numbers of edges.

    Args:
        graphs: graphs over the same images, base first.

    Returns:
        float64 (N+1, N+1); 0 in the row of a graph without edges.
    """
    sizes = {graph.n_images for graph in graphs}
    if len(sizes) != 1:
        raise InputError(
            f"agreement: the graphs have {', '.join(f'{size:,}' for size in sorted(sizes)) or 'no'} images; "
            "give graphs over the same images."
        )
    shared = np.zeros((len(graphs), len(graphs)), np.int64)
    widest = max(graph.k for graph in graphs)
    # Each edge is looked up among the neighbors of both ends: k x k ids per image, and a flag for each.
    rows = max(1, _BYTES_PER_BLOCK // (10 * widest * widest))
    for start, stop in spans(sizes.pop(), rows):
        for row, graph in enumerate(graphs):
            first, second = _edges_from(graph.neighbors, start, stop)
            for column, other in enumerate(graphs):
                shared[row, column] += np.count_nonzero(_are_edges(other.neighbors, first, second))
    total = np.diagonal(shared)
    return shared / np.maximum(total, 1)[:, None]


def _edges_from(neighbors: IntArray, start: int, stop: int) -> tuple[LongArray, LongArray]:
    """The edges that images start..stop point along; one that is pointed along both ways, from its smaller id only."""
    first = np.repeat(np.arange(start, stop), neighbors.shape[1])
    second = neighbors[start:stop].ravel().astype(np.int64)
    present = second >= 0
    first, second = first[present], second[present]
    once = (first < second) | ~(neighbors[second] == first[:, None]).any(axis=1)
    return first[once], second[once]


def _are_edges(neighbors: IntArray, first: LongArray, second: LongArray) -> BoolArray:
    found: BoolArray = (neighbors[first] == second[:, None]).any(axis=1)
    found |= (neighbors[second] == first[:, None]).any(axis=1)
    return found

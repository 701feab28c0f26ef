"""How often networks agree: edges of one network's neighbor graph that are edges of another's too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import candidate_pairs
from cdp.types import KnnGraph
from cdp.types.arrays import DoubleArray, IntArray, LongArray

_IMAGES_PER_BLOCK = 65_536


def agreement(graphs: Sequence[KnnGraph], runtime: Runtime | None = None) -> DoubleArray:
    """Return the share of the row graph's edges that are also edges of the column's graph.

    An edge is an unordered pair, in a graph if either image is among the other's neighbors, as for candidate
    pairs. The diagonal is 1; rows and columns differ, because graphs with the same k still have unlike
    numbers of edges.

    Args:
        graphs: graphs over the same images, base first.
        runtime: how it runs.

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
    runtime = runtime or Runtime()
    pairs = [candidate_pairs(graph, runtime).ids for graph in graphs]
    blocks = spans(graphs[0].n_images, _IMAGES_PER_BLOCK)
    shared = np.zeros((len(graphs), len(graphs)), np.int64)
    for of_block in runtime.map(_count_shared, pairs, blocks):
        shared += of_block
    total = np.diagonal(shared)
    found: DoubleArray = shared / np.maximum(total, 1)[:, None]
    return found


def _count_shared(pairs: Sequence[IntArray], images: tuple[int, int]) -> LongArray:
    """Count common pairs of all graphs, int64 (N+1, N+1), among pairs whose smaller id is in a block."""
    some = [ids[slice(*np.searchsorted(ids[:, 0], images))] for ids in pairs]
    shared = np.diag([len(ids) for ids in some])
    for row, column in combinations(range(len(some)), 2):
        shared[row, column] = shared[column, row] = _count_common(some[row], some[column])
    return shared


@kernel
def _count_common(ids: IntArray, others: IntArray) -> int:
    """Return how many pairs are in both of two sorted lists."""
    row, column, n_common = 0, 0, 0
    while row < len(ids) and column < len(others):
        one = (np.int64(ids[row, 0]) << 32) + ids[row, 1]
        other = (np.int64(others[column, 0]) << 32) + others[column, 1]
        n_common += one == other
        row += one <= other
        column += other <= one
    return n_common

"""Compressed sparse rows (CSR): the pairs of every image, from a list of pairs."""

from __future__ import annotations

import numpy as np

from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import FloatArray, IntArray, LongArray


def build_adjacency(
    ids: IntArray, n_images: int, weights: FloatArray | None = None, runtime: Runtime | None = None
) -> tuple[LongArray, IntArray, FloatArray]:
    """List the other end and the weight of every pair of every image, in the order of the pairs.

    Args:
        ids: int32 (m, 2), undirected pairs.
        n_images: number of images.
        weights: float32 (m,); None = the pairs have no weights.
        runtime: memory budget and spill files.

    Returns:
        Where the lists start, int64 (n + 1,): those of image i are at starts[i]:starts[i + 1]; the other
        ends, int32 (2m,); and their weights, float32 (2m,), empty without weights.
    """
    runtime = runtime or Runtime()
    given = np.empty(0, np.float32) if weights is None else weights
    starts = np.zeros(n_images + 1, np.int64)
    _count_ends(ids, starts[1:])
    np.cumsum(starts, out=starts)
    neighbors = runtime.empty(2 * len(ids), np.int32)
    weight = runtime.empty(2 * len(given), np.float32)
    _fill_lists(ids, given, starts[:-1].copy(), neighbors, weight)
    return starts, runtime.finished(neighbors), runtime.finished(weight)


@kernel
def _count_ends(ids: IntArray, counts: LongArray) -> None:
    for row in range(len(ids)):
        counts[ids[row, 0]] += 1
        counts[ids[row, 1]] += 1


@kernel
def _fill_lists(
    ids: IntArray, given: FloatArray, free: LongArray, neighbors: IntArray, weight: FloatArray
) -> None:
    for row in range(len(ids)):
        for end in range(2):
            image = ids[row, end]
            neighbors[free[image]] = ids[row, 1 - end]
            if len(given) > 0:
                weight[free[image]] = given[row]
            free[image] += 1

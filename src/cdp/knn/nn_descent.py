"""Passes over neighbors of neighbors: what is near a neighbor is probably near."""

from __future__ import annotations

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import group_rows
from cdp.knn.pca import Vectors
from cdp.knn.topk import insert_in_order
from cdp.runtime.kernels import kernel, sum_kernel
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import BoolArray, DoubleArray, FloatArray, IntArray, LongArray

_BLOCK_ROWS = 1024
_BLOCK_CANDIDATES = 2**21
# To see whether two images met in one of so many clusters costs less than to compare them again.
_CLUSTERS_SEEN = 8


def improve(
    vectors: Vectors,
    best: FloatArray,
    ids: IntArray,
    fresh: BoolArray,
    nearest: IntArray,
    width: int,
    runtime: Runtime,
) -> tuple[FloatArray, IntArray, BoolArray]:
    """The lists after one pass, and which of their entries are new.

    Every image looks at the neighbors of its neighbors: a neighbor is one of the first in its list, or an image that has it
    among the first of its own. All look at the lists as they were before the pass, so neither order nor threads
    matter. Pairs that were compared before, in one of the
    nearest clusters or by way of entries that are not new, are left out.

    Args:
        vectors: of all images.
        best: similarities (n, k), best first.
        ids: the images they belong to, -1 where there are fewer.
        fresh: entries that came with the last pass, or all before the first.
        nearest: the clusters that every image looked into, its own first.
        width: how many of the first in a list lead on.
        runtime: how the search runs.
    """
    near = runtime.full((len(ids), 2 * width), -1, np.int32)
    is_fresh = runtime.full(near.shape, 0, np.bool_)
    _both_directions(ids, fresh, near, is_fresh)
    near, is_fresh = runtime.finished(near), runtime.finished(is_fresh)
    improved, found = runtime.copy(best), runtime.copy(ids)
    entered = runtime.full(fresh.shape, 0, np.bool_)
    order = cluster_order(nearest)  # so that blocks share candidates
    nearest = runtime.finished(runtime.copy(nearest[:, :_CLUSTERS_SEEN]))

    n_rows = max(1, min(_BLOCK_ROWS, _BLOCK_CANDIDATES // (2 * width) ** 2))
    blocks = [order[slice(*span)] for span in spans(len(order), n_rows)]
    shared = (vectors, best, ids, near, is_fresh, nearest)
    for rows, lists in zip(blocks, runtime.map(_search, shared, blocks), strict=True):
        improved[rows], found[rows], entered[rows] = lists
    return improved, found, entered


def cluster_order(nearest: IntArray) -> IntArray:
    """All images, those at home in one cluster together."""
    return group_rows(nearest[:, :1], int(nearest[:, 0].max()) + 1)[0]


def _search(
    shared: tuple[Vectors, FloatArray, IntArray, IntArray, BoolArray, IntArray], rows: IntArray
) -> tuple[FloatArray, IntArray, BoolArray]:
    """The lists of some images after the pass, and which of their entries are new."""
    vectors, best, ids, near, is_fresh, nearest = shared
    starts, images = _collect(rows, ids, near, is_fresh, nearest)
    values = _measure(vectors, rows, starts, images)
    improved, found = best[rows], ids[rows]
    entered = np.zeros(found.shape, np.bool_)
    _insert(starts, images, values, improved, found, entered)
    return improved, found, entered


def _measure(vectors: Vectors, rows: IntArray, starts: LongArray, images: IntArray) -> FloatArray:
    """Similarities of rows[i] and images[starts[i]:starts[i + 1]]."""
    values = np.empty(len(images), np.float32)
    if vectors.source.dtype == np.float32:
        _dots(vectors.source, vectors.scale, rows, starts, images, values)
        return values
    needed, places = np.unique(np.concatenate([rows, images]), return_inverse=True)
    of_rows, of_images = np.split(places.astype(np.int32), [len(rows)])
    _dots(vectors.take(needed), np.ones(len(needed)), of_rows, starts, of_images, values)
    return values


@sum_kernel
def _dots(
    vectors: FloatArray,
    scale: DoubleArray,
    rows: IntArray,
    starts: LongArray,
    images: IntArray,
    values: FloatArray,
) -> None:
    for row in range(len(rows)):
        query = vectors[rows[row]]
        for position in range(starts[row], starts[row + 1]):
            vector = vectors[images[position]]
            total = np.float32(0)
            for column in range(len(query)):
                total += query[column] * vector[column]
            values[position] = total * scale[rows[row]] * scale[images[position]]


@kernel
def _both_directions(ids: IntArray, fresh: BoolArray, near: IntArray, is_fresh: BoolArray) -> None:
    """Fill in up to 2 x width neighbors of every image: its best ones, then images that have it among theirs, by rank there."""
    n_images, width = ids.shape[0], near.shape[1] // 2
    near[:, :width] = ids[:, :width]
    is_fresh[:, :width] = fresh[:, :width]
    count = np.full(n_images, width, np.int32)
    for rank in range(width):
        for image in range(n_images):
            other = ids[image, rank]
            if other >= 0 and count[other] < 2 * width:
                near[other, count[other]] = image
                is_fresh[other, count[other]] = fresh[image, rank]
                count[other] += 1


@kernel
def _collect(
    rows: IntArray, ids: IntArray, near: IntArray, is_fresh: BoolArray, nearest: IntArray
) -> tuple[LongArray, IntArray]:
    """The images to compare every row with: where each row's begin, and their ids."""
    width = near.shape[1]
    seen = np.full(len(ids), -1, np.int32)
    starts = np.zeros(len(rows) + 1, np.int64)
    found = np.empty(len(rows) * width * width, np.int32)
    n_found = 0
    for row in range(len(rows)):
        image = rows[row]
        seen[image] = row
        for other in ids[image]:
            if other >= 0:
                seen[other] = row
        for first in range(width):
            middle = near[image, first]
            if middle < 0:
                continue
            for second in range(width):
                other = near[middle, second]
                if (
                    other < 0
                    or seen[other] == row
                    or not (is_fresh[image, first] or is_fresh[middle, second])
                ):
                    continue
                seen[other] = row
                compared = False
                for place in range(nearest.shape[1]):
                    compared |= nearest[image, place] == nearest[other, 0]
                    compared |= nearest[other, place] == nearest[image, 0]
                if not compared:
                    found[n_found] = other
                    n_found += 1
        starts[row + 1] = n_found
    return starts, found[:n_found].copy()


@kernel
def _insert(
    starts: LongArray,
    images: IntArray,
    values: FloatArray,
    best: FloatArray,
    ids: IntArray,
    fresh: BoolArray,
) -> None:
    """Put every row's images into its list and mark them as new."""
    for row in range(len(best)):
        for position in range(starts[row], starts[row + 1]):
            slot = insert_in_order(best[row], ids[row], values[position], images[position])
            if slot >= 0:
                for later in range(best.shape[1] - 1, slot, -1):
                    fresh[row, later] = fresh[row, later - 1]
                fresh[row, slot] = True

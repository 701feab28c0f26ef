"""Clusters of images, and the nearest clusters of every image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
from cdp.knn.panels import find_best, pack_panels
from cdp.knn.pca import Vectors
from cdp.knn.topk import best_columns, roughly_best_columns
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import AnyArray, FloatArray, IntArray, LongArray

# The cluster that an image is at home in is looked for in so many cells; twice as many find hardly more.
_CELLS_SEARCHED = 6
# Its other nearest clusters are looked for among so many that are near that one: an eighth of all, more or less. These are looked for
# among so many in the nearest cells: among a quarter of them a twentieth of ten million images' neighbors were in none (measured).
_NEAR_HOME = (256, 2048)
_SEARCHED_NEAR = 2**16
_BLOCK_ROWS = 4096
_WIDE_ENTRIES = 2**20
_TILES_AT_ONCE = 8

Rows = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Centroids:
    """Centers of clusters, by cells of neighboring ones, so that the nearest are found without looking at all.

    Attributes:
        vectors: unit vectors (n_clusters, d), cell by cell.
        cells: unit vectors (n_cells, d).
        ends: where the clusters of each cell begin, int64 (n_cells + 1,).
        near: clusters near every cluster, itself among them, int32 (n_clusters, ...), -1 where there are fewer: where the nearest clusters of
            an image are looked for. None = among all, where they are many.
    """

    vectors: FloatArray
    cells: FloatArray
    ends: LongArray
    near: IntArray | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def panels(self) -> list[FloatArray]:
        """The centers of every cell, as they are compared."""
        bounds = self.ends.tolist()
        return [pack_panels(self.vectors[start:stop]) for start, stop in pairwise(bounds)]


def find_near(vectors: FloatArray, cells: FloatArray, ends: LongArray, runtime: Runtime) -> IntArray:
    """The clusters nearest to every cluster, for `Centroids`; looked for in the nearest cells where there are very many."""
    fewest, most = _NEAR_HOME
    count = min(len(vectors), max(fewest, min(most, len(vectors) // 8)))
    near: IntArray = runtime.empty((len(vectors), count), np.int32)
    n_cells = min(len(cells), max(1, _SEARCHED_NEAR * len(cells) // len(vectors)))
    nearest = np.empty((len(cells), n_cells), np.int32)
    best_columns(cells @ cells.T, nearest)
    nearest.sort(axis=1)
    found = runtime.map(_find_near, (vectors, ends, count), enumerate(nearest))
    for (start, stop), of_cell in zip(pairwise(ends.tolist()), found, strict=True):
        near[start:stop] = of_cell
    return near


def _find_near(shared: tuple[FloatArray, LongArray, int], cell_and_nearest: tuple[int, IntArray]) -> IntArray:
    """The clusters nearest to each of one cell's, of those in some cells."""
    vectors, ends, count = shared
    cell, cells = cell_and_nearest
    others = np.concatenate([np.arange(ends[one], ends[one + 1]) for one in cells])
    own, others_vectors = vectors[ends[cell] : ends[cell + 1]], vectors[others]
    near = np.empty((len(own), count), np.int32)
    for start, stop in spans(len(own), max(1, _WIDE_ENTRIES // len(others))):
        found = np.full((stop - start, count), -1, np.int32)
        roughly_best_columns(own[start:stop] @ others_vectors.T, found)
        near[start:stop] = np.where(found < 0, -1, others[found])
    return near


def find_homes(
    vectors: Vectors, centroids: Centroids, *, runtime: Runtime, rows: Rows | None = None
) -> IntArray:
    """The cluster with the most similar center to each image, or to some of them, int32 (n,)."""
    n_rows = vectors.n_images if rows is None else len(rows)
    homes = np.empty(n_rows, np.int32)
    centroids.panels  # noqa: B018 (made once, before threads want it)
    cut = spans(n_rows, _BLOCK_ROWS)
    blocks = (span if rows is None else rows[slice(*span)] for span in cut)
    found = runtime.map(_find_homes, (vectors, centroids), blocks)
    for (start, stop), of_block in zip(cut, found, strict=True):
        homes[start:stop] = of_block
    return homes


def _queries(vectors: Vectors, block: tuple[int, int] | Rows) -> FloatArray:
    """The vectors of some images, given by their span or one by one."""
    return vectors.block(*block) if isinstance(block, tuple) else vectors.take(block)


def _find_homes(shared: tuple[Vectors, Centroids], block: tuple[int, int] | Rows) -> IntArray:
    vectors, centroids = shared
    return _homes_of(_queries(vectors, block), centroids)


def _homes_of(queries: FloatArray, centroids: Centroids) -> IntArray:
    visitors, bounds = group_rows(_nearest_cells(queries, centroids.cells), len(centroids.cells))
    best, homes = np.full(len(queries), -np.inf, np.float32), np.zeros(len(queries), np.int32)
    for cell in np.flatnonzero(np.diff(bounds)):
        some = visitors[bounds[cell] : bounds[cell + 1]]
        first, last = centroids.ends[cell], centroids.ends[cell + 1]
        find_best(queries, some, centroids.panels[cell], first, last - first, best, homes)
    return homes


def _nearest_cells(queries: FloatArray, cells: FloatArray) -> IntArray:
    """The cells most similar to every query, in no order, (n, at most 6)."""
    tile, count = queries @ cells.T, min(_CELLS_SEARCHED, len(cells))
    _number_columns(tile.view(np.int32), _bits_for(len(cells)))
    tile.partition(-count, axis=1)
    columns: IntArray = np.ascontiguousarray(tile[:, -count:]).view(np.int32) & _bits_for(len(cells))
    return columns


def _bits_for(n_columns: int) -> int:
    """The bits that the number of a column takes, all set."""
    return (1 << (n_columns - 1).bit_length()) - 1


@kernel
def _number_columns(tile: IntArray, bits: int) -> None:
    """Put the number of its column into the last bits of every entry, a float that is given by its bits.

    Sorted rows then know where their entries were: the library sorts without branches, which is faster than keeping a list of the best.
    """
    for row in range(tile.shape[0]):
        for column in range(tile.shape[1]):
            tile[row, column] = (tile[row, column] & ~bits) | column


def nearest_clusters(
    vectors: Vectors,
    centroids: Centroids,
    count: int,
    *,
    runtime: Runtime,
    rows: Rows | None = None,
) -> IntArray:
    """The clusters with the most similar centers to each image, or to some of them: the most similar first, (n, count).

    The others are only roughly in order. They are looked for near the first, -1 where fewer are near it, or among all. Short integers, as there
    may be hundreds for each of millions of images.
    """
    n_rows = vectors.n_images if rows is None else len(rows)
    kind = np.int16 if len(centroids) < 2**15 else np.int32
    nearest = runtime.full((n_rows, count), -1, kind)
    shared = (vectors, centroids, count)
    if centroids.near is None:
        cut = spans(n_rows, _TILES_AT_ONCE * _rows_per_tile(centroids))
        blocks = (span if rows is None else rows[slice(*span)] for span in cut)
        for (start, stop), found in zip(cut, runtime.map(_assign_many, shared, blocks), strict=True):
            nearest[start:stop] = found
        return nearest
    homes = find_homes(vectors, centroids, runtime=runtime, rows=rows)
    order, _ = group(homes, len(centroids))
    places = [order[slice(*span)] for span in spans(n_rows, _BLOCK_ROWS)]
    few = ((some if rows is None else rows[some], homes[some]) for some in places)
    for some, found in zip(places, runtime.map(_assign_few, shared, few), strict=True):
        nearest[some] = found
    return nearest


def _rows_per_tile(centroids: Centroids) -> int:
    return max(64, _WIDE_ENTRIES // len(centroids))


def _assign_many(shared: tuple[Vectors, Centroids, int], block: tuple[int, int] | Rows) -> IntArray:
    """The nearest of all clusters to some images."""
    vectors, centroids, count = shared
    queries = _queries(vectors, block)
    nearest = np.full((len(queries), count), -1, np.int32)
    # The same memory for all tiles: new memory takes longer to get than to fill.
    memory = np.empty((_rows_per_tile(centroids), len(centroids)), np.float32)
    for start, stop in spans(len(queries), len(memory)):
        tile = np.matmul(queries[start:stop], centroids.vectors.T, out=memory[: stop - start])
        roughly_best_columns(tile, nearest[start:stop])
    return nearest


def _assign_few(shared: tuple[Vectors, Centroids, int], block: tuple[Rows, IntArray]) -> IntArray:
    """The nearest clusters of some images, those at home in one cluster together: of those near the cluster the nearest."""
    vectors, centroids, count = shared
    rows, homes = block
    queries, near = vectors.take(rows), centroids.near
    assert near is not None
    tile = np.empty((len(queries), near.shape[1]), np.float32)
    bounds = [0, *(np.flatnonzero(np.diff(homes)) + 1).tolist(), len(homes)]
    for start, stop in pairwise(bounds):
        clusters = near[homes[start]]
        np.matmul(queries[start:stop], centroids.vectors[clusters].T, out=tile[start:stop])
        if clusters[-1] < 0:
            tile[start:stop, clusters < 0] = -2
    bits = _bits_for(near.shape[1])
    _number_columns(tile.view(np.int32), bits)
    n_kept = min(near.shape[1], count + 1)  # the home is among them
    tile.partition(-n_kept, axis=1)
    best = np.ascontiguousarray(tile[:, -n_kept:])
    best.sort(axis=1)
    nearest = np.full((len(queries), count), -1, np.int32)
    _take_last(best.view(np.int32), bits, homes, near, nearest)
    return nearest


@kernel
def _take_last(tile: IntArray, bits: int, homes: IntArray, near: IntArray, nearest: IntArray) -> None:
    """Fill in the homes, and behind them the clusters near them by the columns of sorted entries, the last ones first."""
    for row in range(len(homes)):
        nearest[row, 0] = homes[row]
        count = 1
        for column in range(tile.shape[1] - 1, -1, -1):
            if count == nearest.shape[1]:
                break
            cluster = near[homes[row], tile[row, column] & bits]
            if cluster >= 0 and cluster != homes[row]:
                nearest[row, count] = cluster
                count += 1


def group(labels: IntArray, n_groups: int) -> tuple[IntArray, LongArray]:
    """Positions by label, ascending inside each, and where each label's begin (n_groups + 1); labels below 0 are left out."""
    return group_rows(labels[:, None], n_groups)


def group_rows(labels: AnyArray, n_groups: int, runtime: Runtime | None = None) -> tuple[IntArray, LongArray]:
    """Rows of a table by the labels in them, ascending inside each, and where each label's begin; labels below 0 are left out."""
    bounds = np.zeros(n_groups + 1, np.int64)
    _count_labels(labels, bounds)
    np.cumsum(bounds, out=bounds)
    n_rows = int(bounds[-1])
    rows = np.empty(n_rows, np.int32) if runtime is None else runtime.empty(n_rows, np.int32)
    _place_rows(labels, bounds[:-1].copy(), rows)
    return rows, bounds


@kernel
def _count_labels(labels: AnyArray, bounds: LongArray) -> None:
    for row in range(labels.shape[0]):
        for label in labels[row]:
            if label >= 0:
                bounds[label + 1] += 1


@kernel
def _place_rows(labels: AnyArray, ends: LongArray, rows: IntArray) -> None:
    for row in range(labels.shape[0]):
        for label in labels[row]:
            if label >= 0:
                rows[ends[label]] = row
                ends[label] += 1


def in_order(rows: AnyArray, order: IntArray, runtime: Runtime) -> AnyArray:
    """The same rows in another order."""
    moved = runtime.empty(rows.shape, rows.dtype)
    for start, stop in spans(len(order), _BLOCK_ROWS):
        moved[start:stop] = rows[order[start:stop]]
    return moved


def cluster_order(nearest: IntArray) -> IntArray:
    """All images, those at home in one cluster together."""
    return group_rows(nearest[:, :1], int(nearest[:, 0].max()) + 1)[0]

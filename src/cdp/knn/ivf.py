"""Inverted file (IVF): cells around centroids, the assignment of images to cells, and inverted lists.

Centroids are found on two levels: each belongs to a coarse cell, and an image is compared only with the
centroids of its nearest coarse cells. The further cells that an image probes are taken from those near its
assigned cell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
from cdp.knn.panels import find_nearest_centroid, pack_panels
from cdp.knn.pca import Vectors
from cdp.knn.topk import roughly_top_columns, top_columns
from cdp.runtime.kernels import kernel
from cdp.runtime.row_table import RowTable, gather_rows
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import AnyArray, FloatArray, IntArray, LongArray

# Coarse cells that an image's assigned cell is searched in; with twice as many, hardly any image is assigned
# elsewhere.
_COARSE_NPROBE = 6
# The other cells to probe are taken from the cells nearest to the assigned one: an eighth of all, within
# these bounds. Those are found among this many centroids in the nearest coarse cells: with a quarter of them,
# a twentieth of ten million images' neighbors were in no cell that was considered (`python -m
# benchmarks.scale`).
_NEARBY_CELLS = (256, 2048)
_CENTROIDS_SEARCHED = 2**16
# An image whose cell is known from before centroids moved a little is compared with this many cells near it.
_NEAREST = 32
_BLOCK_ROWS = 4096
_TILE_ENTRIES = 2**20
_TILES_PER_BLOCK = 8

Rows = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Centroids:
    """Centroids of IVF cells, in the order of their coarse cells.

    Attributes:
        vectors: unit vectors (nlist, d).
        coarse: unit vectors (n_coarse, d), the centroids of coarse cells.
        offsets: where the centroids of each coarse cell start, int64 (n_coarse + 1,).
        nearby: cells nearest to every cell, itself among them, int32 (nlist, ...), -1 where there are fewer;
            the cells to probe are taken from them, and they are sorted to 0.001. None = all centroids are
            compared.
        known: int32 (n,), the cell of every image shortly before, when centroids had moved a little less; -1
            where it is unknown. None = of all images.
    """

    vectors: FloatArray
    coarse: FloatArray
    offsets: LongArray
    nearby: IntArray | None = None
    known: IntArray | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def panels(self) -> list[FloatArray]:
        """The centroids of every coarse cell, packed for comparison."""
        bounds = self.offsets.tolist()
        return [pack_panels(self.vectors[start:stop]) for start, stop in pairwise(bounds)]


def find_nearby_cells(
    vectors: FloatArray, coarse: FloatArray, offsets: LongArray, runtime: Runtime
) -> IntArray:
    """Find the cells nearest to every cell; with very many cells, only in the nearest coarse cells."""
    fewest, most = _NEARBY_CELLS
    count = min(len(vectors), max(fewest, min(most, len(vectors) // 8)))
    table = RowTable.of((len(vectors), count), np.int32, runtime)
    n_searched = min(len(coarse), max(1, _CENTROIDS_SEARCHED * len(coarse) // len(vectors)))
    nearest = np.empty((len(coarse), n_searched), np.int32)
    top_columns(coarse @ coarse.T, nearest)
    nearest.sort(axis=1)
    for _ in runtime.map(_find_nearby, (vectors, offsets, table), enumerate(nearest)):
        pass
    return table.finish(runtime)


def _find_nearby(
    shared: tuple[FloatArray, LongArray, RowTable], cell_and_nearest: tuple[int, IntArray]
) -> None:
    """Find the nearest cells of those in one coarse cell, among the cells of some coarse cells."""
    vectors, offsets, table = shared
    count = table.shape[1]
    cell, searched = cell_and_nearest
    others = np.concatenate([np.arange(offsets[one], offsets[one + 1]) for one in searched])
    own, others_vectors = vectors[offsets[cell] : offsets[cell + 1]], vectors[others]
    nearby = np.empty((len(own), count), np.int32)
    for start, stop in spans(len(own), max(1, _TILE_ENTRIES // len(others))):
        found = np.full((stop - start, count), -1, np.int32)
        roughly_top_columns(own[start:stop] @ others_vectors.T, found)
        nearby[start:stop] = np.where(found < 0, -1, others[found])
    table.write(int(offsets[cell]), nearby)


def assign_cells(
    vectors: Vectors, centroids: Centroids, *, runtime: Runtime, rows: Rows | None = None
) -> IntArray:
    """Assign each image, or some of them, to the cell with the most similar centroid, int32 (n,)."""
    n_rows = vectors.n_images if rows is None else len(rows)
    cells = np.empty(n_rows, np.int32)
    centroids.panels  # noqa: B018 (computed once, before several threads need it)
    cut = spans(n_rows, _BLOCK_ROWS)
    blocks = (span if rows is None else rows[slice(*span)] for span in cut)
    found = runtime.map(_assign_block, (vectors, centroids), blocks)
    for (start, stop), of_block in zip(cut, found, strict=True):
        cells[start:stop] = of_block
    return cells


def assign_again(
    vectors: Vectors, centroids: Centroids, before: IntArray, *, runtime: Runtime, rows: Rows
) -> IntArray:
    """Assign images whose cell is known from before centroids moved a little, int32 (len(rows),).

    They are compared with the cells nearest to that one only, so the time per image does not grow with nlist.
    """
    assert centroids.nearby is not None
    cells = np.empty(len(rows), np.int32)
    order, _ = inverted_lists(before, len(centroids))
    places = [order[slice(*span)] for span in spans(len(rows), _BLOCK_ROWS)]
    shared = (vectors, centroids.vectors, np.ascontiguousarray(centroids.nearby[:, :_NEAREST]))
    given = ((rows[some], before[some]) for some in places)
    for some, found in zip(places, runtime.map(_assign_block_again, shared, given), strict=True):
        cells[some] = found
    return cells


def _assign_block_again(
    shared: tuple[Vectors, FloatArray, IntArray], block: tuple[Rows, IntArray]
) -> IntArray:
    vectors, centroids, nearest = shared
    rows, before = block
    queries, found = vectors.take(rows), np.empty(len(rows), np.int32)
    bounds = [0, *(np.flatnonzero(np.diff(before)) + 1).tolist(), len(before)]
    for start, stop in pairwise(bounds):
        cells = nearest[before[start]]
        cells = cells[cells >= 0]
        found[start:stop] = cells[np.argmax(queries[start:stop] @ centroids[cells].T, axis=1)]
    return found


def _queries(vectors: Vectors, block: tuple[int, int] | Rows) -> FloatArray:
    """Read the vectors of some images, given by their span or one by one."""
    return vectors.block(*block) if isinstance(block, tuple) else vectors.take(block)


def _assign_block(shared: tuple[Vectors, Centroids], block: tuple[int, int] | Rows) -> IntArray:
    vectors, centroids = shared
    queries = _queries(vectors, block)
    probing, bounds = inverted_lists(_coarse_cells_to_probe(queries, centroids.coarse), len(centroids.coarse))
    best, cells = np.full(len(queries), -np.inf, np.float32), np.zeros(len(queries), np.int32)
    for cell in np.flatnonzero(np.diff(bounds)):
        some = probing[bounds[cell] : bounds[cell + 1]]
        first, last = centroids.offsets[cell], centroids.offsets[cell + 1]
        find_nearest_centroid(queries, some, centroids.panels[cell], first, last - first, best, cells)
    return cells


def _coarse_cells_to_probe(queries: FloatArray, coarse: FloatArray) -> IntArray:
    """Find the coarse cells most similar to every query, in no order, (n, at most 6)."""
    tile, count = queries @ coarse.T, min(_COARSE_NPROBE, len(coarse))
    _store_columns(tile.view(np.int32), _bit_mask(len(coarse)))
    tile.partition(-count, axis=1)
    columns: IntArray = np.ascontiguousarray(tile[:, -count:]).view(np.int32) & _bit_mask(len(coarse))
    return columns


def _bit_mask(n_columns: int) -> int:
    """Mask of the bits that the number of a column takes."""
    return (1 << (n_columns - 1).bit_length()) - 1


@kernel
def _store_columns(tile: IntArray, mask: int) -> None:
    """Store the number of its column in the low bits of every entry, a float that is given by its bits.

    `np.partition` of the floats then is an argpartition: it has no branches, which is faster than keeping a
    top-k list.
    """
    for row in range(tile.shape[0]):
        for column in range(tile.shape[1]):
            tile[row, column] = (tile[row, column] & ~mask) | column


@dataclass(frozen=True, eq=False)
class CellTable:
    """The cells that images probe, image by image in the order of their assigned cells.

    Attributes:
        cells: (n, nprobe), the assigned cell first, the others roughly in order; they are taken from the
            cells near the assigned one, -1 where there are fewer, or from all. int16 where that is enough:
            there may be hundreds for each of millions of images.
        order: int32 (n,), the image of every row, ascending inside a cell.
        bounds: int64 (nlist + 1,), where the images of each cell start.
    """

    cells: IntArray
    order: IntArray
    bounds: LongArray

    @cached_property
    def places(self) -> IntArray:
        """The row of every image."""
        return invert_order(self.order)

    def by_image(self, runtime: Runtime) -> IntArray:
        """Copy the cells in the order of images."""
        return gather_rows(self.cells, self.places, runtime)


def cells_to_probe(
    vectors: Vectors,
    centroids: Centroids,
    nprobe: int,
    *,
    runtime: Runtime,
    rows: Rows | None = None,
) -> CellTable:
    """Find the nprobe cells with the most similar centroids to each image, or to some of them."""
    n_rows = vectors.n_images if rows is None else len(rows)
    dtype = np.int16 if len(centroids) < 2**15 else np.int32
    table = RowTable.of((n_rows, nprobe), dtype, runtime)
    known, centroids = centroids.known, replace(centroids, known=None)  # not sent to other processes
    shared = (vectors, centroids, table)
    if centroids.nearby is None:
        cut = spans(n_rows, _TILES_PER_BLOCK * _rows_per_tile(centroids))
        blocks = ((span[0], span if rows is None else rows[slice(*span)]) for span in cut)
        assigned = np.concatenate([np.empty(0, np.int32), *runtime.map(_probe_all, shared, blocks)])
        order, bounds = inverted_lists(assigned, len(centroids), runtime)
        return CellTable(gather_rows(table.finish(runtime), order, runtime), order, bounds)
    assigned = _assign_all(vectors, centroids, known, runtime, rows)
    order, bounds = inverted_lists(assigned, len(centroids), runtime)
    places = ((start, order[start:stop]) for start, stop in spans(n_rows, _BLOCK_ROWS))
    few = ((start, some if rows is None else rows[some], assigned[some]) for start, some in places)
    for _ in runtime.map(_probe_nearby, shared, few):
        pass
    return CellTable(table.finish(runtime), order, bounds)


def _assign_all(
    vectors: Vectors, centroids: Centroids, known: IntArray | None, runtime: Runtime, rows: Rows | None
) -> IntArray:
    """Assign each image, or some of them, to a cell; most cells are known from training."""
    if known is None:
        return assign_cells(vectors, centroids, runtime=runtime, rows=rows)
    wanted = np.arange(vectors.n_images, dtype=np.int32) if rows is None else rows
    cells: IntArray = known[wanted]
    for places, is_known in ((np.flatnonzero(cells >= 0), True), (np.flatnonzero(cells < 0), False)):
        some = wanted[places]
        if is_known:
            cells[places] = assign_again(vectors, centroids, cells[places], runtime=runtime, rows=some)
        else:
            cells[places] = assign_cells(vectors, centroids, runtime=runtime, rows=some)
    return cells


def _rows_per_tile(centroids: Centroids) -> int:
    return max(64, _TILE_ENTRIES // len(centroids))


def _probe_all(
    shared: tuple[Vectors, Centroids, RowTable], block: tuple[int, tuple[int, int] | Rows]
) -> IntArray:
    """Write the cells to probe of some images, among all cells, and return the first of each."""
    vectors, centroids, table = shared
    first, rows = block
    queries = _queries(vectors, rows)
    cells = np.full((len(queries), table.shape[1]), -1, np.int32)
    # One buffer for all tiles: allocating memory takes longer than filling it.
    buffer = np.empty((_rows_per_tile(centroids), len(centroids)), np.float32)
    for start, stop in spans(len(queries), len(buffer)):
        tile = np.matmul(queries[start:stop], centroids.vectors.T, out=buffer[: stop - start])
        roughly_top_columns(tile, cells[start:stop])
    table.write(first, cells)
    return cells[:, 0].copy()


def _probe_nearby(shared: tuple[Vectors, Centroids, RowTable], block: tuple[int, Rows, IntArray]) -> None:
    """Write the cells to probe of images ordered by assigned cell, among the cells near that one."""
    vectors, centroids, table = shared
    first, rows, assigned = block
    queries, nearby, nprobe = vectors.take(rows), centroids.nearby, table.shape[1]
    assert nearby is not None
    tile = np.empty((len(queries), nearby.shape[1]), np.float32)
    bounds = [0, *(np.flatnonzero(np.diff(assigned)) + 1).tolist(), len(assigned)]
    for start, stop in pairwise(bounds):
        cells = nearby[assigned[start]]
        np.matmul(queries[start:stop], centroids.vectors[cells].T, out=tile[start:stop])
        if cells[-1] < 0:
            tile[start:stop, cells < 0] = -2
    mask = _bit_mask(nearby.shape[1])
    _store_columns(tile.view(np.int32), mask)
    n_kept = min(nearby.shape[1], nprobe + 1)  # the assigned cell is among them
    tile.partition(-n_kept, axis=1)
    best = np.ascontiguousarray(tile[:, -n_kept:])
    best.sort(axis=1)
    found = np.full((len(queries), nprobe), -1, np.int32)
    _take_last(best.view(np.int32), mask, assigned, nearby, found)
    table.write(first, found)


@kernel
def _take_last(tile: IntArray, mask: int, assigned: IntArray, nearby: IntArray, cells: IntArray) -> None:
    """Fill in the assigned cells, then nearby cells by the columns stored in sorted entries, last first."""
    for row in range(len(assigned)):
        cells[row, 0] = assigned[row]
        count = 1
        for column in range(tile.shape[1] - 1, -1, -1):
            if count == cells.shape[1]:
                break
            cell = nearby[assigned[row], tile[row, column] & mask]
            if cell >= 0 and cell != assigned[row]:
                cells[row, count] = cell
                count += 1


def inverted_lists(cells: AnyArray, nlist: int, runtime: Runtime | None = None) -> tuple[IntArray, LongArray]:
    """Invert a table of cells, (n,) or (n, nprobe): the rows that name each cell, ascending.

    Returns:
        int32 rows, cell by cell, and int64 bounds (nlist + 1,) of each cell's; cells below 0 are left out.
    """
    table = cells[:, None] if cells.ndim == 1 else cells
    bounds = np.zeros(nlist + 1, np.int64)
    _count_cells(table, bounds)
    np.cumsum(bounds, out=bounds)
    n_rows = int(bounds[-1])
    rows = np.empty(n_rows, np.int32) if runtime is None else runtime.empty(n_rows, np.int32)
    _place_rows(table, bounds[:-1].copy(), rows)
    return rows if runtime is None else runtime.finished(rows), bounds


@kernel
def _count_cells(cells: AnyArray, bounds: LongArray) -> None:
    for row in range(cells.shape[0]):
        for cell in cells[row]:
            if cell >= 0:
                bounds[cell + 1] += 1


@kernel
def _place_rows(cells: AnyArray, ends: LongArray, rows: IntArray) -> None:
    for row in range(cells.shape[0]):
        for cell in cells[row]:
            if cell >= 0:
                rows[ends[cell]] = row
                ends[cell] += 1


def invert_order(order: IntArray) -> IntArray:
    """Find the place of every image in an order of all."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places

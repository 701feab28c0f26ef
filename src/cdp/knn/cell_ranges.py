"""An approximate search on a cluster: tasks own ranges of images, then of cells, then of images again.

In a round of probing, an inversion task owns a range of images: it sorts the cells that they probe by ranges
of cells. A search task owns a range of cells: it compares their images with the queries that probe them, and
sorts the candidates for the lists of both by ranges of images. A merge task inserts the candidates of a range
of images into their lists. What tasks leave for the next kind of task are files, each cut into a piece per
range. Tables with a row per image are one file each, which tasks write in place.
The driver hands out ranges, and keeps where pieces start, thresholds and the assigned cell of every image.
A list holds the best of all that was compared, ties by id, so ranges change nothing: the lists are those of
threads. A task that runs again reads and writes the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import CellTable, invert_order, inverted_lists
from cdp.knn.pair_similarity import rerank, rows_per_rerank
from cdp.knn.probe import Cell, SearchContext, TopKLists, find_all_candidates, search_assigned
from cdp.runtime.row_table import RowTable, gather_rows
from cdp.runtime.runtime import Runtime
from cdp.storage.files import partial_beside
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, FloatArray, IntArray, LongArray

# A task reads a piece of every file: more ranges are more, smaller pieces; fewer take more memory.
MOST_RANGES = 1024
_FEWEST_CELLS = 32
_FEWEST_IMAGES = 4096
# Of the work of a round, what searching takes.
_SEARCH_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class AssignedCells:
    """The images assigned to every cell, and the cells that images probe.

    Attributes:
        cells: (n, nprobe) in the order of rows, the assigned one first.
        order: int32 (n,), the rows of all cells, cell by cell; None = as they are numbered.
        bounds: int64 (nlist + 1,), where those of each cell start.
        per_range: cells of a range.
    """

    cells: IntArray
    order: IntArray | None
    bounds: LongArray
    per_range: int

    @classmethod
    def of(cls, table: CellTable, is_reordered: bool, runtime: Runtime) -> AssignedCells:
        """Take the cells of a table, for images in its order or for those in their own."""
        per_range = max(_FEWEST_CELLS, -(-(len(table.bounds) - 1) // MOST_RANGES))
        if is_reordered:
            return cls(table.cells, None, table.bounds, per_range)
        return cls(table.by_image(runtime), table.order, table.bounds, per_range)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges of cells."""
        return spans(len(self.bounds) - 1, self.per_range)

    def images(self, cell: int) -> IntArray:
        """Return the rows assigned to a cell, ascending."""
        start, stop = self.bounds[cell : cell + 2]
        return np.arange(start, stop, dtype=np.int32) if self.order is None else self.order[start:stop]


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Tables that tasks wrote, a file each, and each cut into a piece for every range that is read.

    Attributes:
        folder: of the files, absolute, on storage that all machines see.
        starts: of the ranges whose tasks wrote a file; it names the file.
    """

    folder: Path
    starts: list[int]

    @cached_property
    def tables(self) -> list[IntArray]:
        """The tables, mapped: once per process."""
        return [np.load(_file(self.folder, start), mmap_mode="r") for start in self.starts]

    def read(self, bounds: LongArray) -> Iterator[IntArray]:
        """Yield a piece of each file, given where they start and end (files, 2)."""
        for table, (low, high) in zip(self.tables, bounds.tolist(), strict=True):
            if low < high:
                yield table[low:high]

    def remove(self, runtime: Runtime) -> None:
        """Remove the files, in tasks: that takes time in proportion to their size."""
        for _ in runtime.map(_remove_file, self.folder, self.starts):
            pass


def _write_pieces(folder: Path, start: int, table: IntArray, keys: IntArray, n_ranges: int) -> LongArray:
    """Write columns of a table, sorted by range, as rows of a file; return where each range's start."""
    order, bounds = inverted_lists(keys, n_ranges)
    if len(order):
        _write_file(_file(folder, start), np.ascontiguousarray(table[:, order].T))
    return bounds


def _collect_pieces(folder: Path, starts: list[int], bounds: list[LongArray]) -> tuple[_Pieces, LongArray]:
    """Collect what tasks wrote, and where the pieces of every file start (files, ranges + 1)."""
    written = [number for number, of_file in enumerate(bounds) if of_file[-1]]
    table = np.array([bounds[number] for number in written], np.int64).reshape(len(written), -1)
    return _Pieces(folder, [starts[number] for number in written]), table


def _pieces_of(table: LongArray, number: int) -> LongArray:
    """Return where the pieces of a range start and end, copied: it alone is sent."""
    return table[:, number : number + 2].copy()


@dataclass(frozen=True, eq=False)
class _Search:
    """What all search tasks of a round need.

    Attributes:
        context: the vectors.
        assigned: images by cell.
        queries: by ranges of cells; rows of an image and a cell that it probes.
        thresholds: float32 (n,), the last similarity of every list.
        rows_per_range: images of a range.
        folder: of candidate files.
    """

    context: SearchContext
    assigned: AssignedCells
    queries: _Pieces
    thresholds: FloatArray
    rows_per_range: int
    folder: Path


class RangeLists:
    """Top-k lists of all images during a search; merge tasks write new tables in every round.

    Attributes:
        best: similarities, float32 (n, keep), best first.
        ids: int32 (n, keep), -1 where there are fewer.
        thresholds: float32 (n,), the last similarity of every list.
        ranges: the ranges of images.
    """

    def __init__(self, best: FloatArray, ids: IntArray, thresholds: FloatArray) -> None:
        self.best, self.ids, self.thresholds = best, ids, thresholds
        # Whole pages of every table.
        fewest = min(_FEWEST_IMAGES, 1024)
        per_range = max(_FEWEST_IMAGES, -(-len(best) // MOST_RANGES))
        self.rows_per_range = -(-per_range // fewest) * fewest
        self.ranges = spans(len(best), self.rows_per_range)

    @classmethod
    def of(cls, best: FloatArray, ids: IntArray, runtime: Runtime) -> RangeLists:
        """Wrap lists that are filled already, as those of a checkpoint."""
        return cls(runtime.finished(best), runtime.finished(ids), best[:, -1].copy())

    def merge(self, candidates: _Pieces, bounds: LongArray, runtime: Runtime) -> Iterator[float]:
        """Insert candidates into the lists, in tasks, and yield the share done."""
        tables = _empty_lists(self.best.shape, runtime)
        shared = candidates, (self.best, self.ids), tables
        blocks = ((span, _pieces_of(bounds, number)) for number, span in enumerate(self.ranges))
        merged = runtime.map(_merge_images, shared, blocks)
        for done, ((start, stop), thresholds) in enumerate(zip(self.ranges, merged, strict=True), 1):
            self.thresholds[start:stop] = thresholds
            yield done / len(self.ranges)
        self.best, self.ids = (table.finish(runtime) for table in tables)


def search_assigned_ranges(
    context: SearchContext, assigned: AssignedCells, keep: int, runtime: Runtime
) -> Generator[float, None, RangeLists]:
    """Find the top-k lists among the images of every image's assigned cell; yield the share done."""
    tables, ranges, found = _empty_lists((len(assigned.cells), keep), runtime), assigned.ranges, []
    for part in runtime.map(_search_assigned_range, (context, assigned, tables), ranges):
        found.append(part)
        yield len(found) / len(ranges)
    thresholds = np.concatenate(found)
    best, ids = (table.finish(runtime) for table in tables)
    if assigned.order is None:
        return RangeLists(best, ids, thresholds)
    places = invert_order(assigned.order)
    moved = (gather_rows(table, places, runtime) for table in (best, ids))
    return RangeLists(next(moved), next(moved), thresholds[places])


def probe_ranges(
    context: SearchContext,
    assigned: AssignedCells,
    probes: tuple[int, int],
    lists: RangeLists,
    runtime: Runtime,
) -> Iterator[float]:
    """Probe some of the cells of every image and update both lists; yield the share done.

    Args:
        context: the vectors.
        assigned: images by cell, and the cells that they probe.
        probes: number of the first of these to probe, and the number after the last one.
        lists: of all images.
        runtime: workers, and spill files that all of them see.
    """
    folders = [runtime.spill.new_path().absolute() for _ in range(2)]
    for folder in folders:
        folder.mkdir()
    try:
        cells = assigned.ranges
        bounds = list(runtime.map(_invert_images, (assigned, probes, folders[0]), lists.ranges))
        queries, starts = _collect_pieces(folders[0], [start for start, _ in lists.ranges], bounds)
        thresholds = lists.thresholds.copy()
        search = _Search(context, assigned, queries, thresholds, lists.rows_per_range, folders[1])
        owned = ((span, _pieces_of(starts, number)) for number, span in enumerate(cells))
        bounds = []
        for done, of_range in enumerate(runtime.map(_search_cells, search, owned), 1):
            bounds.append(of_range)
            yield _SEARCH_SHARE * done / len(cells)
        queries.remove(runtime)
        candidates, starts = _collect_pieces(folders[1], [low for low, _ in cells], bounds)
        for share in lists.merge(candidates, starts, runtime):
            yield _SEARCH_SHARE + (1 - _SEARCH_SHARE) * share
        candidates.remove(runtime)
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def rerank_ranges(
    embeddings: Embeddings,
    ids: IntArray,
    order: IntArray,
    places: IntArray,
    k: int,
    is_reordered: bool,
    runtime: Runtime,
) -> tuple[IntArray, FloatArray]:
    """Sort all lists by full-dimension similarity, cut them to k, and undo the renumbering.

    Args:
        embeddings: all images.
        ids: the lists.
        order: of images by cell.
        places: of images in that order.
        k: number of neighbors.
        is_reordered: whether lists are in that order, and name images by their places.
        runtime: workers.
    """
    n_images, width = ids.shape
    tables = _empty_lists((n_images, k), runtime)
    shared = embeddings, ids, order, is_reordered, tables
    for _ in runtime.map(_rerank_range, shared, spans(n_images, rows_per_rerank(width))):
        pass
    similarity, neighbors = (gather_rows(table.finish(runtime), places, runtime) for table in tables)
    return neighbors, similarity


def _rerank_range(
    shared: tuple[Embeddings, IntArray, IntArray, bool, tuple[RowTable, RowTable]], span: tuple[int, int]
) -> None:
    """Re-rank the lists of some images in the order of cells: they have neighbors in common."""
    embeddings, ids, order, is_reordered, tables = shared
    rows = order[slice(*span)]
    lists = ids[slice(*span)] if is_reordered else ids[rows]
    if is_reordered:
        lists = np.where(lists < 0, np.int32(-1), order[lists])
    found, similarity = rerank(embeddings, rows, lists)
    for table, part in zip(tables, (similarity, found), strict=True):
        table.write(span[0], part[:, : table.shape[1]])


def _empty_lists(shape: tuple[int, ...], runtime: Runtime) -> tuple[RowTable, RowTable]:
    """Allocate similarities and ids."""
    n_images, keep = shape
    best, ids = (RowTable.of((n_images, keep), dtype, runtime) for dtype in (np.float32, np.int32))
    return best, ids


def _search_assigned_range(
    shared: tuple[SearchContext, AssignedCells, tuple[RowTable, RowTable]], owned: tuple[int, int]
) -> FloatArray:
    """Write the lists of the images of a range of cells, cell by cell, and return their thresholds."""
    context, assigned, tables = shared
    keep = tables[0].shape[1]
    best, ids = [np.empty((0, keep), np.float32)], [np.empty((0, keep), np.int32)]
    nobody = np.empty(0, np.int32)
    cells = [Cell(assigned.images(number), nobody) for number in range(*owned)]
    for _, similarity, others in search_assigned((context, keep), cells):
        best.append(similarity)
        ids.append(others)
    lists: tuple[AnyArray, AnyArray] = np.concatenate(best), np.concatenate(ids)
    for table, part in zip(tables, lists, strict=True):
        table.write(int(assigned.bounds[owned[0]]), part)
    return lists[0][:, -1].copy()


def _invert_images(shared: tuple[AssignedCells, tuple[int, int], Path], span: tuple[int, int]) -> LongArray:
    """Write the cells that a range of images probes, and return where those of each range of cells start."""
    assigned, (first, last), folder = shared
    start, stop = span
    cells = assigned.cells[start:stop, first:last].astype(np.int32)
    is_cell = cells >= 0
    images = np.repeat(np.arange(start, stop, dtype=np.int32), np.count_nonzero(is_cell, axis=1))
    probed, n_ranges = cells[is_cell], len(assigned.ranges)
    return _write_pieces(folder, start, np.stack([images, probed]), probed // assigned.per_range, n_ranges)


def _search_cells(search: _Search, owned: tuple[tuple[int, int], LongArray]) -> LongArray:
    """Probe a range of cells, write the candidates, and return where those of each range of images start."""
    (low, high), bounds = owned
    pieces = np.concatenate([np.empty((0, 2), np.int32), *search.queries.read(bounds)])
    order, starts = inverted_lists(pieces[:, 1] - low, high - low)
    queries = pieces[order, 0]
    cells = [
        Cell(search.assigned.images(number), queries[starts[number - low] : starts[number - low + 1]])
        for number in range(low, high)
    ]
    found = find_all_candidates(search.context, cells, search.thresholds)
    n_ranges = -(-len(search.thresholds) // search.rows_per_range)
    return _write_pieces(search.folder, low, found, found[0] // search.rows_per_range, n_ranges)


def _merge_images(
    shared: tuple[_Pieces, tuple[FloatArray, IntArray], tuple[RowTable, RowTable]],
    owned: tuple[tuple[int, int], LongArray],
) -> FloatArray:
    """Insert the candidates of a range of images into their lists, write these, return their thresholds."""
    candidates, (best, ids), tables = shared
    (start, stop), bounds = owned
    lists = TopKLists.of(np.array(best[start:stop], order="C"), np.array(ids[start:stop], order="C"))
    for piece in candidates.read(bounds):
        some = np.array(piece.T, order="C")  # a copy, also of a single one
        some[0] -= start
        lists.insert(some)
    for table, part in zip(tables, (lists.best, lists.ids), strict=True):
        table.write(start, part)
    return lists.thresholds


def _remove_file(folder: Path, start: int) -> None:
    _file(folder, start).unlink(missing_ok=True)


def _write_file(file: Path, table: IntArray) -> None:
    """Write a file at once: a task that is killed leaves none."""
    partial = partial_beside(file)
    with partial.open("wb") as handle:
        np.save(handle, table)
    partial.replace(file)


def _file(folder: Path, start: int) -> Path:
    return folder / f"{start}.npy"

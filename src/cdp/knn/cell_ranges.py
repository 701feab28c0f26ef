"""One round of probing on a cluster: tasks own ranges of cells, then ranges of images.

A search task owns a range of cells. It compares their images with the queries that probe them, and writes the
candidates for the lists of both to a file, range of images by range of images. A merge task owns a range of
images: it inserts their candidates from all files into their lists, which are a file per range and round.
The driver hands out ranges and keeps the thresholds; it sees neither candidates nor lists before the last
round is over. A list holds the best of all that was compared, ties by id, so ranges change nothing: the lists
are those of threads. A task that runs again reads and writes the same files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import inverted_lists
from cdp.knn.probe import (
    Round,
    SearchContext,
    TopKLists,
    as_slice,
    find_all_candidates,
    search_assigned,
)
from cdp.runtime.runtime import Runtime
from cdp.storage.files import partial_beside
from cdp.types.arrays import FloatArray, IntArray, LongArray

# A merge task reads a piece of every file: more ranges are more, smaller pieces; fewer take more memory.
_MOST_RANGES = 1024
_FEWEST_CELLS = 32
_FEWEST_IMAGES = 4096
# Of the work of a round, what searching takes.
_SEARCH_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class _Search:
    """What all search tasks of a round need.

    Attributes:
        context: the vectors.
        cells: of the round.
        thresholds: float32 (n,), the last similarity of every list.
        rows_per_range: images of a range.
        folder: of candidate files, absolute, on storage that all machines see.
    """

    context: SearchContext
    cells: Round
    thresholds: FloatArray
    rows_per_range: int
    folder: Path


class RangeLists:
    """Top-k lists of all images during a search: a file per range of images, written by merge tasks.

    Attributes:
        thresholds: float32 (n,), the last similarity of every list.
        ranges: the ranges of images.
    """

    def __init__(self, best: FloatArray, ids: IntArray, runtime: Runtime) -> None:
        self.thresholds: FloatArray = best[:, -1].copy()
        self.rows_per_range = max(_FEWEST_IMAGES, -(-len(best) // _MOST_RANGES))
        self.ranges = spans(len(best), self.rows_per_range)
        self._best, self._ids = best, ids
        # Files that only are read are sent by name.
        self._first = runtime.finished(best), runtime.finished(ids)
        self._new_path = runtime.spill.new_path
        self._folder: Path | None = None

    def merge(self, files: Sequence[IntArray], bounds: LongArray, runtime: Runtime) -> Iterator[float]:
        """Insert candidates into the lists, in tasks, and yield the share done.

        Args:
            files: of candidates.
            bounds: int64 (files, ranges + 1), where the candidates of each range start in every file.
            runtime: workers.
        """
        written = self._new_path().absolute()
        written.mkdir()
        blocks = (
            (start, self._find(start, stop), written / f"{start}.npy", bounds[:, number : number + 2].copy())
            for number, (start, stop) in enumerate(self.ranges)
        )
        merged = runtime.map(_merge_images, files, blocks)
        for done, ((start, stop), thresholds) in enumerate(zip(self.ranges, merged, strict=True), 1):
            self.thresholds[start:stop] = thresholds
            yield done / len(self.ranges)
        self.remove()
        self._folder = written

    def collect(self) -> None:
        """Copy the lists into the arrays that they came from."""
        if self._folder is not None:
            for start, stop in self.ranges:
                self._best[start:stop], self._ids[start:stop] = _read_lists(self._folder / f"{start}.npy")

    def remove(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _find(self, start: int, stop: int) -> Path | tuple[FloatArray, IntArray]:
        if self._folder is not None:
            return self._folder / f"{start}.npy"
        return self._first[0][start:stop], self._first[1][start:stop]


def probe_ranges(
    context: SearchContext, cells: Round, lists: RangeLists, runtime: Runtime
) -> Iterator[float]:
    """Compare the queries of every cell with its images and update both lists; yield the share done.

    Args:
        context: the vectors.
        cells: of the round.
        lists: of all images.
        runtime: workers, and spill files that all of them see.
    """
    nlist = len(cells.assigned_bounds) - 1
    folder = runtime.spill.new_path().absolute()
    folder.mkdir()
    try:
        search = _Search(context, cells, lists.thresholds.copy(), lists.rows_per_range, folder)
        owned = spans(nlist, max(_FEWEST_CELLS, -(-nlist // _MOST_RANGES)))
        bounds = []
        for done, of_range in enumerate(runtime.map(_search_cells, search, owned), 1):
            bounds.append(of_range)
            yield _SEARCH_SHARE * done / len(owned)
        # Mapped for reading, so that other processes get their names.
        written = [at for at, of_range in enumerate(bounds) if of_range[-1]]
        files = [np.load(_file(folder, owned[at]), mmap_mode="r") for at in written]
        table = np.array([bounds[at] for at in written], np.int64).reshape(-1, len(lists.ranges) + 1)
        for share in lists.merge(files, table, runtime):
            yield _SEARCH_SHARE + (1 - _SEARCH_SHARE) * share
        del files
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def search_assigned_ranges(
    context: SearchContext, cells: Round, best: FloatArray, ids: IntArray, runtime: Runtime
) -> Iterator[float]:
    """Fill the empty lists with the top-k of every image's assigned cell; yield the share done."""
    nlist = len(cells.assigned_bounds) - 1
    owned = spans(nlist, max(_FEWEST_CELLS, -(-nlist // _MOST_RANGES)))
    found = runtime.map(_search_assigned_range, (context, cells, best.shape[1]), owned)
    for done, ((low, high), lists) in enumerate(zip(owned, found, strict=True), 1):
        images = cells.assigned[cells.assigned_bounds[low] : cells.assigned_bounds[high]]
        # Ids ascend inside a cell; where images are numbered cell by cell, they do so in all of them.
        rows = as_slice(images) if (np.diff(images) > 0).all() else images
        best[rows], ids[rows] = lists
        yield done / len(owned)


def _search_assigned_range(
    shared: tuple[SearchContext, Round, int], owned: tuple[int, int]
) -> tuple[FloatArray, IntArray]:
    """Return the lists of the images of a range of cells, cell by cell."""
    context, cells, keep = shared
    best, ids = [np.empty((0, keep), np.float32)], [np.empty((0, keep), np.int32)]
    for _, similarity, others in search_assigned((context, keep), cells.cells(*owned)):
        best.append(similarity)
        ids.append(others)
    return np.concatenate(best), np.concatenate(ids)


def _search_cells(search: _Search, owned: tuple[int, int]) -> LongArray:
    """Probe a range of cells, write the candidates, and return where those of each range of images start."""
    found = find_all_candidates(search.context, search.cells.cells(*owned), search.thresholds)
    n_ranges = -(-len(search.thresholds) // search.rows_per_range)
    order, bounds = inverted_lists(found[0] // search.rows_per_range, n_ranges)
    if len(order):
        _write_file(_file(search.folder, owned), np.ascontiguousarray(found[:, order].T))
    return bounds


def _merge_images(
    files: Sequence[IntArray],
    block: tuple[int, Path | tuple[FloatArray, IntArray], Path, LongArray],
) -> FloatArray:
    """Insert the candidates of a range of images into their lists, write these, return their thresholds."""
    start, source, target, bounds = block
    best, ids = _read_lists(source) if isinstance(source, Path) else source
    lists = TopKLists.of(np.array(best, order="C"), np.array(ids, order="C"))
    for candidates, (low, high) in zip(files, bounds.tolist(), strict=True):
        if low < high:
            some = np.array(candidates[low:high].T, order="C")  # a copy, also of a single one
            some[0] -= start
            lists.insert(some)
    _write_file(target, np.stack([lists.best.view(np.int32), lists.ids]))
    return lists.thresholds


def _read_lists(file: Path) -> tuple[FloatArray, IntArray]:
    """Map the lists of a range: similarities, whose bits are stored as whole numbers, and images."""
    best, ids = np.load(file, mmap_mode="r")
    return best.view(np.float32), ids


def _write_file(file: Path, table: IntArray) -> None:
    """Write a file at once: a task that is killed leaves none."""
    partial = partial_beside(file)
    with partial.open("wb") as handle:
        np.save(handle, table)
    partial.replace(file)


def _file(folder: Path, owned: tuple[int, int]) -> Path:
    return folder / f"{owned[0]}.npy"

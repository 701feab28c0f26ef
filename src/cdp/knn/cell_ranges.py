"""One round of probing on a cluster: tasks own ranges of cells, then ranges of images.

A search task owns a range of cells. It compares their images with the queries that probe them, and writes the
candidates for the lists of both to a file, range of images by range of images. A merge task owns a range of
images: it inserts their candidates from all files into their lists. The driver hands out ranges and keeps the
lists; it sees no candidates. A list holds the best of all that was compared, ties by id, so ranges change
nothing: the lists are those of threads. A task that runs again writes the same file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import inverted_lists
from cdp.knn.probe import Round, SearchContext, TopKLists, find_all_candidates
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


def probe_ranges(
    context: SearchContext, cells: Round, best: FloatArray, ids: IntArray, runtime: Runtime
) -> Iterator[float]:
    """Compare the queries of every cell with its images and update both lists; yield the share done.

    Args:
        context: the vectors.
        cells: of the round.
        best: float32 (n, keep), the lists' similarities.
        ids: int32 (n, keep), the images that they belong to.
        runtime: workers, and spill files that all of them see.
    """
    n_images, nlist = len(best), len(cells.assigned_bounds) - 1
    rows_per_range = max(_FEWEST_IMAGES, -(-n_images // _MOST_RANGES))
    folder = runtime.spill.new_path().absolute()
    folder.mkdir()
    try:
        search = _Search(context, cells, best[:, -1].copy(), rows_per_range, folder)
        owned = spans(nlist, max(_FEWEST_CELLS, -(-nlist // _MOST_RANGES)))
        bounds = []
        for done, of_range in enumerate(runtime.map(_search_cells, search, owned), 1):
            bounds.append(of_range)
            yield _SEARCH_SHARE * done / len(owned)
        # Mapped for reading, so that other processes get their names.
        written = [at for at, of_range in enumerate(bounds) if of_range[-1]]
        files = [np.load(_file(folder, owned[at]), mmap_mode="r") for at in written]
        ranges = spans(n_images, rows_per_range)
        blocks = (
            (start, best[start:stop], ids[start:stop], [bounds[at][number : number + 2] for at in written])
            for number, (start, stop) in enumerate(ranges)
        )
        merged = runtime.map(_merge_images, files, blocks)
        for done, ((start, stop), lists) in enumerate(zip(ranges, merged, strict=True), 1):
            best[start:stop], ids[start:stop] = lists
            yield _SEARCH_SHARE + (1 - _SEARCH_SHARE) * done / len(ranges)
        del files
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _search_cells(search: _Search, owned: tuple[int, int]) -> LongArray:
    """Probe a range of cells, write the candidates, and return where those of each range of images start."""
    found = find_all_candidates(search.context, search.cells.cells(*owned), search.thresholds)
    n_ranges = -(-len(search.thresholds) // search.rows_per_range)
    order, bounds = inverted_lists(found[0] // search.rows_per_range, n_ranges)
    if len(order):
        file = _file(search.folder, owned)
        partial = partial_beside(file)
        with partial.open("wb") as handle:
            np.save(handle, np.ascontiguousarray(found[:, order].T))
        partial.replace(file)
    return bounds


def _merge_images(
    files: Sequence[IntArray], block: tuple[int, FloatArray, IntArray, Sequence[LongArray]]
) -> tuple[FloatArray, IntArray]:
    """Insert the candidates of a range of images into their lists."""
    start, best, ids, bounds = block
    lists = TopKLists.of(best.copy(), ids.copy())
    for candidates, (low, high) in zip(files, bounds, strict=True):
        if low < high:
            some = np.array(candidates[low:high].T, order="C")  # a copy, also of a single one
            some[0] -= start
            lists.insert(some)
    return lists.best, lists.ids


def _file(folder: Path, owned: tuple[int, int]) -> Path:
    return folder / f"{owned[0]}.npy"

"""Probing: compare each query with the images of the cells it probes, and update both top-k lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import inverted_lists
from cdp.knn.panels import find_candidates, pack_panels, pad_thresholds
from cdp.knn.pca import ReducedVectors, Vectors
from cdp.knn.topk import find_tile_candidates, insert_candidates, top_k_of_rows
from cdp.runtime.devices import find_accelerator
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import ByteArray, FloatArray, IntArray, LongArray

# Pairs that are compared before their candidates are inserted.
_PAIRS_PER_TURN = 2**17
_CELLS_PER_BATCH = 8

Product: TypeAlias = Callable[[IntArray, IntArray], FloatArray]
"""From the ids of two sets of images to the table of their similarities."""
CandidatePairs: TypeAlias = IntArray
"""int32 (3, m): an image, another that may enter its top-k list, and the bits of their float32 similarity."""


@dataclass(frozen=True, eq=False)
class TopKLists:
    """Top-k lists of all images, as they grow.

    Attributes:
        best: similarities, float32 (n, keep), best first.
        ids: of the images they belong to, int32 (n, keep), -1 where there are fewer.
        thresholds: the last similarity of every list, float32 (n,).
        locks: one per list, uint8 (n,).
    """

    best: FloatArray
    ids: IntArray
    thresholds: FloatArray
    locks: ByteArray

    @classmethod
    def of(cls, best: FloatArray, ids: IntArray) -> TopKLists:
        """Wrap lists that may be partly filled."""
        return cls(best, ids, best[:, -1].copy(), np.zeros(len(best), np.uint8))

    def insert(self, candidates: CandidatePairs) -> None:
        """Insert candidates; safe on several threads."""
        values = candidates[2].view(np.float32)
        insert_candidates(
            candidates[0], candidates[1], values, self.best, self.ids, self.thresholds, self.locks
        )


@dataclass(frozen=True, eq=False)
class SearchContext:
    """The vectors that are compared, and the device that compares them."""

    vectors: Vectors
    device: str

    @cached_property
    def product(self) -> Product | None:
        """Inner products on a GPU; None without one."""
        accelerator = find_accelerator(self.device)
        if accelerator is None:
            return None
        from cdp.knn.gpu import make_product

        return make_product(self.vectors, accelerator)


@dataclass(frozen=True, eq=False)
class Cell:
    """The images assigned to a cell (its inverted list), and the queries that probe it."""

    images: IntArray
    queries: IntArray


@dataclass(frozen=True, eq=False)
class Round:
    """The cells of one round of probing, with their images and queries.

    Attributes:
        assigned: int32 (n,), the images of all cells, cell by cell.
        assigned_bounds: int64 (nlist + 1,), where those of each cell start.
        probing: int32, the queries of all cells.
        probing_bounds: int64 (nlist + 1,), where those of each cell start.
    """

    assigned: IntArray
    assigned_bounds: LongArray
    probing: IntArray
    probing_bounds: LongArray

    @classmethod
    def of(cls, cells: IntArray, first: int, last: int, nlist: int, runtime: Runtime) -> Round:
        """Invert cells to probe: queries have a cell first-th to last-th; there are none where first = 0.

        `cells` are those of every image, (n, nprobe), the assigned one first.
        """
        assigned, assigned_bounds = inverted_lists(cells[:, :1], nlist, runtime)
        probing, probing_bounds = assigned, np.zeros_like(assigned_bounds)
        if first > 0:
            probing, probing_bounds = inverted_lists(cells[:, first:last], nlist, runtime)
        return cls(assigned, assigned_bounds, probing, probing_bounds)

    def cells(self, low: int, high: int) -> list[Cell]:
        """Return the cells low..high-1."""
        return [
            Cell(
                self.assigned[self.assigned_bounds[number] : self.assigned_bounds[number + 1]],
                self.probing[self.probing_bounds[number] : self.probing_bounds[number + 1]],
            )
            for number in range(low, high)
        ]


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The least similarity that enters the lists of a cell's images and of its queries.

    Thresholds only rise, so outdated ones let too many candidates pass, never too few.
    """

    images: FloatArray
    queries: FloatArray

    @classmethod
    def of(cls, thresholds: FloatArray, cell: Cell) -> Thresholds:
        """Take them from those of all lists."""
        return cls(thresholds[cell.images], thresholds[cell.queries])


def search_assigned_cells(
    context: SearchContext, cells: Sequence[Cell], lists: TopKLists, runtime: Runtime
) -> Iterator[float]:
    """Fill the empty lists with the top-k of every image's assigned cell; yield the share done."""
    shared = context, lists.best.shape[1]
    for done, found in enumerate(runtime.map(search_assigned, shared, _batches(cells)), 1):
        for images, similarity, others in found:
            rows = as_slice(images)
            lists.best[rows], lists.ids[rows], lists.thresholds[rows] = similarity, others, similarity[:, -1]
        yield min(1.0, done * _CELLS_PER_BATCH / len(cells))


def _batches(cells: Sequence[Cell]) -> Iterator[Sequence[Cell]]:
    return (cells[start:stop] for start, stop in spans(len(cells), _CELLS_PER_BATCH))


def search_assigned(
    shared: tuple[SearchContext, int], cells: Sequence[Cell]
) -> list[tuple[IntArray, FloatArray, IntArray]]:
    """Compare the images of each cell with each other."""
    context, keep = shared
    found = []
    for images in (cell.images for cell in cells):
        if context.product is None:
            rows = _vectors_of(context.vectors, images)
            tile = rows @ rows.T
        else:
            tile = context.product(images, images)
        found.append((images, *top_k_of_rows(tile, images, keep)))
    return found


def probe_cells(
    context: SearchContext, cells: Sequence[Cell], lists: TopKLists, runtime: Runtime
) -> Iterator[float]:
    """Compare the queries of every cell with its images, update both lists, and yield the share done.

    Threads share the lists; a cluster has `cdp.knn.cell_ranges` instead.
    """
    used = [cell for cell in cells if len(cell.images) and len(cell.queries)]
    inserted = runtime.map(_probe_and_insert, (context, lists), _batches(used))
    for done, _ in enumerate(inserted, 1):
        yield min(1.0, done * _CELLS_PER_BATCH / len(used))


def _probe_and_insert(shared: tuple[SearchContext, TopKLists], cells: Sequence[Cell]) -> None:
    """Probe some cells and insert candidates at once: thresholds rise before the next cell is probed."""
    context, lists = shared
    buffer = _candidate_buffer(cells)
    for cell in cells:
        for count in _compare(context, cell, Thresholds.of(lists.thresholds, cell), buffer):
            lists.insert(buffer[:, :count])


def find_all_candidates(
    context: SearchContext, cells: Sequence[Cell], thresholds: FloatArray
) -> CandidatePairs:
    """Probe some cells and return all candidates; `thresholds` are those of all lists."""
    used = [cell for cell in cells if len(cell.images) and len(cell.queries)]
    if not used:
        return np.empty((3, 0), np.int32)
    buffer = _candidate_buffer(used)
    candidates = [
        buffer[:, :count].copy()
        for cell in used
        for count in _compare(context, cell, Thresholds.of(thresholds, cell), buffer)
    ]
    return np.concatenate(candidates, axis=1)


def _candidate_buffer(cells: Sequence[Cell]) -> CandidatePairs:
    """Allocate memory for the candidates of any of the cells, once: allocating takes longer than filling."""
    most = max(_queries_per_turn(cell) * len(cell.images) for cell in cells)
    return np.empty((3, 2 * most), np.int32)


def _compare(
    context: SearchContext, cell: Cell, thresholds: Thresholds, buffer: CandidatePairs
) -> Iterator[int]:
    """Write candidates to the buffer, some queries at a time, and yield their number."""
    compare = _compare_on_cpu if context.product is None else _compare_on_gpu
    return compare(context, cell, thresholds, buffer)


def _compare_on_cpu(
    context: SearchContext, cell: Cell, thresholds: Thresholds, buffer: CandidatePairs
) -> Iterator[int]:
    vectors = context.vectors
    panels = pack_panels(_vectors_of(vectors, cell.images))
    image_thresholds = pad_thresholds(thresholds.images)
    for start, stop in spans(len(cell.queries), _queries_per_turn(cell)):
        queries = cell.queries[start:stop]
        if isinstance(vectors, ReducedVectors):
            source, rows = vectors.source, queries
        else:
            source, rows = vectors.take(queries), np.arange(len(queries), dtype=np.int32)
        given = (source, rows, queries, thresholds.queries[start:stop], panels)
        yield find_candidates(*given, cell.images, image_thresholds, buffer)


def _compare_on_gpu(
    context: SearchContext, cell: Cell, thresholds: Thresholds, buffer: CandidatePairs
) -> Iterator[int]:
    assert context.product is not None
    for start, stop in spans(len(cell.queries), _queries_per_turn(cell)):
        queries = cell.queries[start:stop]
        tile = context.product(queries, cell.images)
        given = (tile, queries, thresholds.queries[start:stop], cell.images, thresholds.images)
        yield find_tile_candidates(*given, buffer)


def _queries_per_turn(cell: Cell) -> int:
    """Return the number of queries that are compared at a time."""
    return min(len(cell.queries), max(1, _PAIRS_PER_TURN // len(cell.images)))


def _vectors_of(vectors: Vectors, images: IntArray) -> FloatArray:
    rows = as_slice(images)
    return vectors.block(rows.start, rows.stop) if isinstance(rows, slice) else vectors.take(images)


def as_slice(images: IntArray) -> slice | IntArray:
    """Convert ascending ids to a slice if contiguous, as those of a cell are: nothing is gathered then."""
    if len(images) and images[-1] - images[0] + 1 == len(images):
        return slice(int(images[0]), int(images[-1]) + 1)
    return images

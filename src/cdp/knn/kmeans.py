"""Centroids of IVF cells: spherical k-means on two levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import Centroids, assign_again, assign_cells, find_nearby_cells, inverted_lists
from cdp.knn.pca import Vectors
from cdp.knn.topk import top_columns
from cdp.runtime.kernels import kernel
from cdp.runtime.row_table import RowTable
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import FloatArray, IntArray, LongArray

_SAMPLE_PER_CELL = 32
_SAMPLE_PER_COARSE_CELL = 256
_ITERATIONS = 5
# Centroids of few images are noisy: with two more iterations on a larger sample, structureless images need a
# tenth fewer probes for the same recall. Measured by `python -m benchmarks.search constants`.
_REFINEMENT_PER_CELL = 64
_REFINEMENTS = 2
_BLOCK_ROWS = 2048
_CELLS_PER_SUM = 256


def train_centroids(
    vectors: Vectors, nlist: int, *, exhaustive: bool = False, seed: int, runtime: Runtime
) -> Centroids:
    """Train about nlist centroids: k-means of a sample into sqrt(nlist) coarse cells, then of each.

    Args:
        vectors: all images.
        nlist: number of cells.
        exhaustive: whether the cells to probe will be found by comparing all centroids; nearby cells are not
            needed then.
        seed: of the sample and of the initial centroids.
        runtime: how the search runs.
    """
    generator = np.random.default_rng(seed)
    n_sample = min(vectors.n_images, _SAMPLE_PER_CELL * nlist)
    drawn = np.sort(generator.choice(vectors.n_images, n_sample, replace=False))
    sample = _take_sample(vectors, drawn, runtime)
    n_coarse = round(np.sqrt(nlist))
    few = np.ascontiguousarray(sample[:: max(1, n_sample // (_SAMPLE_PER_COARSE_CELL * n_coarse))])
    coarse = _k_means(few, n_coarse, generator, runtime)
    order, bounds = inverted_lists(_nearest(sample, coarse, runtime), len(coarse))
    used = np.flatnonzero(np.diff(bounds)).tolist()
    rows_of_cells = ((cell, order[bounds[cell] : bounds[cell + 1]]) for cell in used)
    parts = list(runtime.map(_split_coarse_cell, (sample, nlist / n_sample, seed), rows_of_cells))
    coarse = coarse[np.diff(bounds) > 0]
    offsets, centroids = np.cumsum([0, *map(len, parts)]), np.concatenate(parts)
    del sample, rows_of_cells
    nearby = None if exhaustive else find_nearby_cells(centroids, coarse, offsets, runtime)
    return Centroids(centroids, coarse, offsets, nearby)


def _take_sample(vectors: Vectors, drawn: LongArray, runtime: Runtime) -> FloatArray:
    """Copy the vectors of a sample, in tasks."""
    table = RowTable.of((len(drawn), vectors.dimensions), np.float32, runtime)
    blocks = ((start, drawn[start:stop]) for start, stop in spans(len(drawn), _BLOCK_ROWS))
    for _ in runtime.map(_take_block, (vectors, table), blocks):
        pass
    return table.finish(runtime)


def _take_block(shared: tuple[Vectors, RowTable], block: tuple[int, LongArray]) -> None:
    vectors, table = shared
    start, rows = block
    table.write(start, vectors.take(rows))


def refine_centroids(
    vectors: Vectors, centroids: Centroids, nlist: int, *, seed: int, runtime: Runtime
) -> Centroids:
    """Run two more iterations of k-means, on a larger sample than the centroids were trained on."""
    n_rows = min(vectors.n_images, _REFINEMENT_PER_CELL * nlist)
    rows = np.random.default_rng((seed, 2)).choice(vectors.n_images, n_rows, replace=False)
    rows.sort()
    cells: IntArray | None = None
    for _ in range(_REFINEMENTS if len(centroids) > 1 else 0):
        if cells is None or centroids.nearby is None:
            cells = assign_cells(vectors, centroids, runtime=runtime, rows=rows)
        else:
            cells = assign_again(vectors, centroids, cells, runtime=runtime, rows=rows)
        centroids = _move(centroids, vectors, rows, cells, runtime)
    if cells is None or centroids.nearby is None:
        return centroids
    known = np.full(vectors.n_images, -1, np.int32)
    known[rows] = cells
    return replace(centroids, known=known)


def _move(
    centroids: Centroids, vectors: Vectors, rows: LongArray, cells: IntArray, runtime: Runtime
) -> Centroids:
    """Move every centroid to the mean of the rows assigned to it."""
    order, bounds = inverted_lists(cells, len(centroids))
    # Every cell's rows are added in their order, however cells are cut into blocks.
    parts = (
        (rows[order[bounds[start] : bounds[stop]]], np.diff(bounds[start : stop + 1]))
        for start, stop in spans(len(centroids), _CELLS_PER_SUM)
    )
    sums = np.concatenate(list(runtime.map(_sum_cells, vectors, parts)))
    return replace(centroids, vectors=_unit(sums, centroids.vectors))


def _sum_cells(vectors: Vectors, part: tuple[LongArray, LongArray]) -> FloatArray:
    """Add up the vectors of every cell, given by their rows cell by cell and the number of each."""
    rows, counts = part
    sums = np.zeros((len(counts), vectors.dimensions), np.float32)
    labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    for start, stop in spans(len(rows), _BLOCK_ROWS):
        _add_by_label(vectors.take(rows[start:stop]), labels[start:stop], sums)
    return sums


def _split_coarse_cell(
    shared: tuple[FloatArray, float, int], cell_and_rows: tuple[int, IntArray]
) -> FloatArray:
    """Train the centroids inside one coarse cell, in proportion to its rows of the sample."""
    sample, centroids_per_row, seed = shared
    cell, rows = cell_and_rows
    count = max(1, round(len(rows) * centroids_per_row))
    return _k_means(sample[rows], count, np.random.default_rng((seed, cell)))


def _k_means(
    vectors: FloatArray, n_centroids: int, generator: np.random.Generator, runtime: Runtime | None = None
) -> FloatArray:
    """Run spherical k-means from random rows; unit vectors (at most n_centroids, d).

    With a runtime, rows are assigned in blocks that it runs.
    """
    drawn = generator.choice(len(vectors), min(n_centroids, len(vectors)), replace=False)
    centroids = vectors[np.sort(drawn)]
    for _ in range(_ITERATIONS if len(centroids) > 1 else 1):
        sums = np.zeros_like(centroids)
        _add_by_label(vectors, _nearest(vectors, centroids, runtime), sums)
        centroids = _unit(sums, centroids)
    return centroids


def _unit(sums: FloatArray, centroids: FloatArray) -> FloatArray:
    """Normalize the sums; a centroid of an empty cell stays as it is."""
    lengths = np.sqrt(np.square(sums).sum(axis=1, keepdims=True))
    moved: FloatArray = np.where(lengths > 1e-6, sums / np.maximum(lengths, 1e-6), centroids)
    return moved


def _nearest(vectors: FloatArray, centroids: FloatArray, runtime: Runtime | None = None) -> IntArray:
    """Find the nearest centroid of every vector."""
    blocks = spans(len(vectors), _BLOCK_ROWS)
    shared = (vectors, centroids)
    found = (
        (_nearest_of_block(shared, block) for block in blocks)
        if runtime is None
        else runtime.map(_nearest_of_block, shared, blocks)
    )
    return np.concatenate([np.empty(0, np.int32), *found])


def _nearest_of_block(shared: tuple[FloatArray, FloatArray], block: tuple[int, int]) -> IntArray:
    vectors, centroids = shared
    nearest = np.empty((block[1] - block[0], 1), np.int32)
    top_columns(vectors[slice(*block)] @ centroids.T, nearest)
    return nearest[:, 0]


@kernel
def _add_by_label(vectors: FloatArray, labels: IntArray, sums: FloatArray) -> None:
    for row in range(vectors.shape[0]):
        for column in range(vectors.shape[1]):
            sums[labels[row], column] += vectors[row, column]

"""Clusters of images by k-means on two levels, and the nearest clusters of every image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.graph.neighbor_lists import best_columns, insert_visitors, roughly_best_columns
from cdp.graph.projection import Vectors
from cdp.kernels import kernel
from cdp.parallel import Workers, map_shared, spans
from cdp.scratch import Scratch
from cdp.types.arrays import AnyArray, FloatArray, IntArray, LongArray

_SAMPLE_PER_CLUSTER = 32
_ITERATIONS = 5
# Centers of few images are blurred by chance: with these, structureless images look into a fifth fewer clusters (measured).
_REFINING_PER_CLUSTER = 64
_REFINEMENTS = 2
# The clusters of an image are looked for in so many cells; twice as many find hardly more.
_CELLS_SEARCHED = 6
# Past so many nearest clusters, all are looked at.
_FEW = 32
_BLOCK_ROWS = 2048
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
    """

    vectors: FloatArray
    cells: FloatArray
    ends: LongArray

    def __len__(self) -> int:
        return len(self.vectors)


def find_centroids(
    vectors: Vectors, n_clusters: int, *, seed: int, threads: Workers, scratch: Scratch | None = None
) -> Centroids:
    """About n_clusters centers of clusters of similar size: k-means on a sample, in cells and then inside each."""
    scratch = scratch or Scratch()
    generator = np.random.default_rng(seed)
    n_sample = min(vectors.n_images, _SAMPLE_PER_CLUSTER * n_clusters)
    drawn = np.sort(generator.choice(vectors.n_images, n_sample, replace=False))
    sample: FloatArray = scratch.empty((n_sample, vectors.dimensions), np.float32)
    for start, stop in spans(n_sample, _BLOCK_ROWS):
        sample[start:stop] = vectors.take(drawn[start:stop])
    cells = _k_means(sample, round(np.sqrt(n_clusters)), generator)
    order, bounds = group(_nearest(sample, cells), len(cells))
    used = np.flatnonzero(np.diff(bounds)).tolist()
    rows_of_cells = ((cell, sample[order[bounds[cell] : bounds[cell + 1]]]) for cell in used)
    parts = list(map_shared(_split_cell, (n_clusters / n_sample, seed), rows_of_cells, threads))
    cells = cells[np.diff(bounds) > 0]
    ends = np.cumsum([0, *map(len, parts)])
    del sample, rows_of_cells
    return Centroids(np.concatenate(parts), cells, ends)


def refine_centroids(
    vectors: Vectors, centroids: Centroids, n_clusters: int, *, seed: int, threads: Workers
) -> Centroids:
    """The same centers, moved twice to the mean of those that are nearest to each, of a larger sample than they were found on."""
    n_refining = min(vectors.n_images, _REFINING_PER_CLUSTER * n_clusters)
    rows = np.random.default_rng((seed, 2)).choice(vectors.n_images, n_refining, replace=False)
    rows.sort()
    for _ in range(_REFINEMENTS if len(centroids) > 1 else 0):
        centroids = _refine(centroids, vectors, rows, threads)
    return centroids


def _refine(centroids: Centroids, vectors: Vectors, rows: LongArray, threads: Workers) -> Centroids:
    """Every center where the mean of the rows nearest to it is."""
    homes = nearest_clusters(vectors, centroids, 1, rows=rows, threads=threads)[:, 0].astype(np.int32)
    sums = np.zeros_like(centroids.vectors)
    for start, stop in spans(len(rows), _BLOCK_ROWS):
        _add_by_label(vectors.take(rows[start:stop]), homes[start:stop], sums)
    return Centroids(_unit(sums, centroids.vectors), centroids.cells, centroids.ends)


def _split_cell(shared: tuple[float, int], cell_and_rows: tuple[int, FloatArray]) -> FloatArray:
    share, seed = shared
    cell, rows = cell_and_rows
    return _k_means(rows, max(1, round(len(rows) * share)), np.random.default_rng((seed, cell)))


def nearest_clusters(
    vectors: Vectors,
    centroids: Centroids,
    count: int,
    *,
    rows: Rows | None = None,
    threads: Workers = 0,
    scratch: Scratch | None = None,
) -> IntArray:
    """The clusters with the most similar centers to each image, or to some of them: best first, (n, count).

    Many are only roughly in order but for the first. -1 where the cells searched have fewer. Short integers, as there may be
    hundreds for each of millions of images.
    """
    n_rows = vectors.n_images if rows is None else len(rows)
    kind = np.int16 if len(centroids) < 2**15 else np.int32
    nearest = (scratch or Scratch()).full((n_rows, count), -1, kind)
    cut = spans(n_rows, _BLOCK_ROWS if count <= _FEW else _TILES_AT_ONCE * _rows_per_tile(centroids))
    blocks = (span if rows is None else rows[slice(*span)] for span in cut)
    shared = (vectors, centroids, count)
    for (start, stop), found in zip(cut, map_shared(_assign, shared, blocks, threads), strict=True):
        nearest[start:stop] = found
    return nearest


def _rows_per_tile(centroids: Centroids) -> int:
    return max(64, _WIDE_ENTRIES // len(centroids))


def _assign(shared: tuple[Vectors, Centroids, int], block: tuple[int, int] | Rows) -> IntArray:
    """The nearest clusters of some images, given by their span or one by one."""
    vectors, centroids, count = shared
    queries = vectors.block(*block) if isinstance(block, tuple) else vectors.take(block)
    nearest = np.full((len(queries), count), -1, np.int32)
    if count > _FEW:
        # The same memory for all tiles: new memory takes longer to get than to fill.
        memory = np.empty((_rows_per_tile(centroids), len(centroids)), np.float32)
        for start, stop in spans(len(queries), len(memory)):
            tile = np.matmul(queries[start:stop], centroids.vectors.T, out=memory[: stop - start])
            roughly_best_columns(tile, nearest[start:stop])
        return nearest
    n_cells = min(_CELLS_SEARCHED, len(centroids.cells))
    cells = np.empty((len(queries), n_cells), np.int32)
    best_columns(queries @ centroids.cells.T, cells)
    order, bounds = group(cells.ravel(), len(centroids.cells))
    similarity = np.full((len(queries), count), -np.inf, np.float32)
    for cell in np.flatnonzero(np.diff(bounds)):
        visitors = order[bounds[cell] : bounds[cell + 1]] // n_cells
        start, stop = centroids.ends[cell], centroids.ends[cell + 1]
        tile = np.take(queries, visitors, axis=0) @ centroids.vectors[start:stop].T
        insert_visitors(tile, visitors, start, similarity, nearest)
    return nearest


def group(labels: IntArray, n_groups: int) -> tuple[IntArray, LongArray]:
    """Positions by label, ascending inside each, and where each label's begin (n_groups + 1); labels below 0 are left out."""
    return group_rows(labels[:, None], n_groups)


def group_rows(labels: AnyArray, n_groups: int, scratch: Scratch | None = None) -> tuple[IntArray, LongArray]:
    """Rows of a table by the labels in them, ascending inside each, and where each label's begin; labels below 0 are left out."""
    bounds = np.zeros(n_groups + 1, np.int64)
    _count_labels(labels, bounds)
    np.cumsum(bounds, out=bounds)
    rows = (scratch or Scratch()).empty(int(bounds[-1]), np.int32)
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


def in_order(rows: AnyArray, order: IntArray, scratch: Scratch) -> AnyArray:
    """The same rows in another order."""
    moved = scratch.empty(rows.shape, rows.dtype)
    for start, stop in spans(len(order), _BLOCK_ROWS):
        moved[start:stop] = rows[order[start:stop]]
    return moved


def _k_means(vectors: FloatArray, n_centers: int, generator: np.random.Generator) -> FloatArray:
    """Unit vectors (at most n_centers, d): centers by cosine similarity, starting from random rows."""
    centers = vectors[np.sort(generator.choice(len(vectors), min(n_centers, len(vectors)), replace=False))]
    for _ in range(_ITERATIONS if len(centers) > 1 else 1):
        sums = np.zeros_like(centers)
        _add_by_label(vectors, _nearest(vectors, centers), sums)
        centers = _unit(sums, centers)
    return centers


def _unit(sums: FloatArray, centers: FloatArray) -> FloatArray:
    """The sums as unit vectors; a center that nothing is nearest to stays where it is."""
    lengths = np.sqrt(np.square(sums).sum(axis=1, keepdims=True))
    moved: FloatArray = np.where(lengths > 1e-6, sums / np.maximum(lengths, 1e-6), centers)
    return moved


def _nearest(vectors: FloatArray, centers: FloatArray) -> IntArray:
    nearest = np.empty((len(vectors), 1), np.int32)
    for start, stop in spans(len(vectors), _BLOCK_ROWS):
        best_columns(vectors[start:stop] @ centers.T, nearest[start:stop])
    return nearest[:, 0]


@kernel
def _add_by_label(vectors: FloatArray, labels: IntArray, sums: FloatArray) -> None:
    for row in range(vectors.shape[0]):
        for column in range(vectors.shape[1]):
            sums[labels[row], column] += vectors[row, column]

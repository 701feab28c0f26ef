"""Centers of clusters by k-means on two levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import Centroids, find_homes, find_near, group
from cdp.knn.pca import Vectors
from cdp.knn.topk import best_columns
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import FloatArray, IntArray, LongArray

_SAMPLE_PER_CLUSTER = 32
_ITERATIONS = 5
# Centers of few images are blurred by chance: with these, structureless images look into a fifth fewer clusters (measured).
_REFINING_PER_CLUSTER = 64
_REFINEMENTS = 2
_BLOCK_ROWS = 2048


def find_centroids(
    vectors: Vectors,
    n_clusters: int,
    *,
    among_all: bool = False,
    seed: int,
    runtime: Runtime,
) -> Centroids:
    """About n_clusters centers of clusters of similar size: k-means on a sample, in cells and then inside each."""
    generator = np.random.default_rng(seed)
    n_sample = min(vectors.n_images, _SAMPLE_PER_CLUSTER * n_clusters)
    drawn = np.sort(generator.choice(vectors.n_images, n_sample, replace=False))
    sample: FloatArray = runtime.empty((n_sample, vectors.dimensions), np.float32)
    for start, stop in spans(n_sample, _BLOCK_ROWS):
        sample[start:stop] = vectors.take(drawn[start:stop])
    cells = _k_means(sample, round(np.sqrt(n_clusters)), generator)
    order, bounds = group(_nearest(sample, cells), len(cells))
    used = np.flatnonzero(np.diff(bounds)).tolist()
    rows_of_cells = ((cell, sample[order[bounds[cell] : bounds[cell + 1]]]) for cell in used)
    parts = list(runtime.map(_split_cell, (n_clusters / n_sample, seed), rows_of_cells))
    cells = cells[np.diff(bounds) > 0]
    ends, centers = np.cumsum([0, *map(len, parts)]), np.concatenate(parts)
    del sample, rows_of_cells
    return Centroids(centers, cells, ends, None if among_all else find_near(centers, cells, ends, runtime))


def refine_centroids(
    vectors: Vectors, centroids: Centroids, n_clusters: int, *, seed: int, runtime: Runtime
) -> Centroids:
    """The same centers, moved twice to the mean of those that are nearest to each, of a larger sample than they were found on."""
    n_refining = min(vectors.n_images, _REFINING_PER_CLUSTER * n_clusters)
    rows = np.random.default_rng((seed, 2)).choice(vectors.n_images, n_refining, replace=False)
    rows.sort()
    for _ in range(_REFINEMENTS if len(centroids) > 1 else 0):
        centroids = _refine(centroids, vectors, rows, runtime)
    return centroids


def _refine(centroids: Centroids, vectors: Vectors, rows: LongArray, runtime: Runtime) -> Centroids:
    """Every center where the mean of the rows nearest to it is."""
    homes = find_homes(vectors, centroids, runtime=runtime, rows=rows)
    sums = np.zeros_like(centroids.vectors)
    for start, stop in spans(len(rows), _BLOCK_ROWS):
        _add_by_label(vectors.take(rows[start:stop]), homes[start:stop], sums)
    return replace(centroids, vectors=_unit(sums, centroids.vectors))


def _split_cell(shared: tuple[float, int], cell_and_rows: tuple[int, FloatArray]) -> FloatArray:
    share, seed = shared
    cell, rows = cell_and_rows
    return _k_means(rows, max(1, round(len(rows) * share)), np.random.default_rng((seed, cell)))


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

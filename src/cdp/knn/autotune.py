"""Auto-tuning of the IVF search: the cheapest nlist and nprobe that reach the recall asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import Centroids, cells_to_probe
from cdp.knn.kmeans import refine_centroids, train_centroids
from cdp.knn.pca import Vectors
from cdp.knn.recall import GroundTruth
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings

# Images per cell, values of nprobe to try, and whether the cells to probe are found by comparing all
# centroids. Many small cells are best where neighbors are in few of them; where neighbors are spread over
# many, fewer and larger cells are compared faster. The second layout is tried where it might be cheaper.
LAYOUTS = (
    (100, (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 80, 104, 128), False),
    (125, (40, 56, 72, 88, *range(104, 496, 24), *range(496, 1025, 48)), True),
)
_BLOCK_PAIRS = 2**17
# Refining centroids raises the recall of an operating point by up to 0.04, and a few rows estimate it to
# about 0.02: where the largest nprobe is below the recall asked for by more, refining is a waste. Measured by
# `python -m benchmarks.search constants`.
_MAX_REFINEMENT_GAIN = 0.06
_SCREENING_ROWS = 100
# Recall lost to PCA, on top of neighbors in cells that are not probed. Measured by the same command.
_PCA_LOSS = 0.003
# Costs per image, in units of one multiply-add of an inner product: comparing a product with the thresholds
# of both images, probing a cell whatever its size, and everything that does not depend on the operating point
# (ground truth, PCA, k-means, assignment). Only ratios matter: they rank operating points and exact search.
# The same command fits them to timed searches.
_ENTRY_COST = 12.5
_PROBE_COST = 7_140
_FIXED_COST = 714_000
# Centroids are compared by BLAS, which takes half the time of the probing loop per multiply-add.
_CENTROID_COST = 0.5
# Exact search computes every product once for two images; keeping the top-k adds a tenth.
_EXACT_COST = 0.55


@dataclass(frozen=True, eq=False)
class OperatingPoint:
    """Parameters of an IVF search: nlist centroids, cells probed per query, and the expected recall."""

    centroids: Centroids
    nprobe: int
    recall: float


def choose_operating_point(
    embeddings: Embeddings,
    vectors: Vectors,
    truth: GroundTruth,
    recall: float,
    *,
    seed: int,
    runtime: Runtime,
) -> OperatingPoint | None:
    """Choose the cheapest operating point that reaches the recall; None if exact search is cheaper.

    Args:
        embeddings: all images.
        vectors: the vectors that are compared.
        truth: the sample and its exact neighbors.
        recall: to reach.
        seed: of k-means.
        runtime: how the search runs.
    """
    limit, cheapest = _exact_cost(embeddings), None
    for cell_size, choice, exhaustive in LAYOUTS:
        nlist = max(1, embeddings.n_images // cell_size)
        nprobes = [nprobe for nprobe in choice if nprobe <= nlist]
        if not nprobes or _cost(vectors, cell_size, nprobes[0], exhaustive) > limit:
            continue
        centroids = train_centroids(vectors, nlist, exhaustive=exhaustive, seed=seed, runtime=runtime)
        nprobes = [nprobe for nprobe in nprobes if nprobe <= len(centroids)]
        about = (vectors, truth, centroids)
        if not nprobes or (not exhaustive and not _may_reach(*about, nprobes[-1], recall, runtime)):
            continue
        centroids = refine_centroids(vectors, centroids, nlist, seed=seed, runtime=runtime)
        before = cheapest
        for is_finer in (False, True):
            tried = _between(nprobes, cheapest) if is_finer else nprobes
            affordable = [nprobe for nprobe in tried if _cost(vectors, cell_size, nprobe, exhaustive) < limit]
            for point in _predict(vectors, truth, centroids, affordable, runtime):
                cost = _cost(vectors, cell_size, point.nprobe, exhaustive)
                if point.recall >= recall and cost < limit:
                    limit, cheapest = cost, point
            if cheapest is before:
                break
    return cheapest


def _between(nprobes: Sequence[int], chosen: OperatingPoint | None) -> list[int]:
    """List values of nprobe between the chosen one and the next smaller one that was tried."""
    if chosen is None:
        return []
    smaller = max((nprobe for nprobe in nprobes if nprobe < chosen.nprobe), default=chosen.nprobe)
    return list(range(smaller, chosen.nprobe, max(1, (chosen.nprobe - smaller) // 4)))[1:]


def _may_reach(
    vectors: Vectors,
    truth: GroundTruth,
    centroids: Centroids,
    nprobe: int,
    recall: float,
    runtime: Runtime,
) -> bool:
    """Return whether the largest nprobe comes near the recall, on a few rows: is refining worth it?"""
    few = truth.first(_SCREENING_ROWS)
    if few.n_counted == 0:
        return True
    (point,) = _predict(vectors, few, centroids, [nprobe], runtime)
    return point.recall >= recall - _MAX_REFINEMENT_GAIN


def _predict(
    vectors: Vectors,
    truth: GroundTruth,
    centroids: Centroids,
    nprobes: Sequence[int],
    runtime: Runtime,
) -> list[OperatingPoint]:
    """Predict the recall for each nprobe, without searching.

    Insertion is symmetric, so two neighbors are compared if either probes the other's assigned cell.
    """
    if not nprobes:
        return []
    n_found = np.zeros(len(nprobes), np.int64)
    for start, stop in spans(len(truth.rows), max(1, _BLOCK_PAIRS // (truth.neighbors.shape[1] + 1) ** 2)):
        images = np.concatenate([truth.rows[start:stop, None], truth.neighbors[start:stop]], axis=1)
        table = cells_to_probe(vectors, centroids, nprobes[-1], runtime=runtime, rows=images.ravel())
        cells = table.cells[table.places].reshape(*images.shape, nprobes[-1])
        is_compared = cells[:, :1] == cells[:, 1:, :1]
        is_compared |= cells[:, 1:] == cells[:, :1, :1]
        is_found = np.logical_or.accumulate(is_compared, axis=2)[:, :, np.array(nprobes) - 1]
        if truth.counted is not None:
            is_found &= truth.counted[start:stop, :, None]
        n_found += np.count_nonzero(is_found, axis=(0, 1))
    loss = 0.0 if isinstance(vectors, Embeddings) or not vectors.is_lossy else _PCA_LOSS
    return [
        OperatingPoint(centroids, nprobe, float(share) - loss)
        for nprobe, share in zip(nprobes, n_found / truth.n_counted, strict=True)
    ]


def _cost(vectors: Vectors, cell_size: int, nprobe: int, exhaustive: bool) -> float:
    """Estimate the cost of a search per image, in multiply-adds."""
    per_probe = _PROBE_COST + cell_size * (_ENTRY_COST + vectors.dimensions)
    n_compared = vectors.n_images / cell_size if exhaustive else 0
    per_centroid = _ENTRY_COST + _CENTROID_COST * vectors.dimensions
    return _FIXED_COST + per_probe * nprobe + per_centroid * n_compared


def _exact_cost(embeddings: Embeddings) -> float:
    """Estimate the cost of exact search per image, in multiply-adds."""
    return _EXACT_COST * embeddings.dimensions * embeddings.n_images

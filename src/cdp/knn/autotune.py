"""How many clusters an image looks into, for the recall asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import Centroids, nearest_clusters
from cdp.knn.kmeans import find_centroids, refine_centroids
from cdp.knn.pca import Vectors
from cdp.knn.recall import TrueNeighbors
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings

# Images per cluster, how many clusters are looked into, and whether these are looked for among all. Many small ones are best where
# neighbors are in few of them; where they are in many, fewer and larger ones are looked through faster. The second are tried where they
# might be cheaper.
LAYOUTS = (
    (100, (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 80, 104, 128), False),
    (125, (40, 56, 72, 88, *range(104, 496, 24), *range(496, 1025, 48)), True),
)
_BLOCK_PAIRS = 2**17
# Refined centers raise the recall of a plan by less than this (measured: 0.02), and so does chance on so few rows.
_GAINED_BY_REFINING = 0.06
_ROWS_TO_TELL = 100
# What fewer directions lose beside it (measured).
_LOST_BY_PROJECTION = 0.003
# Nanoseconds on one core of a common processor; only their ratios matter. One multiplication and addition in a product, one
# similarity that is looked at, a cluster that an image looks into, and what is before and after
# all.
_PER_PRODUCT = 0.028
_PER_ENTRY = 0.35
_PER_CLUSTER = 200
_BEFORE = 20000


@dataclass(frozen=True, eq=False)
class Plan:
    """How many of which clusters every image looks into, and the recall to expect."""

    centroids: Centroids
    clusters: int
    recall: float


def choose_plan(
    embeddings: Embeddings,
    vectors: Vectors,
    truth: TrueNeighbors,
    recall: float,
    *,
    seed: int,
    runtime: Runtime,
) -> Plan | None:
    """The cheapest plan that reaches the recall on a sample; None if exact search is cheaper than all that do.

    Args:
        embeddings: all images.
        vectors: what is compared.
        truth: the sample.
        recall: to reach.
        seed: of the clusters.
        runtime: how the search runs.
    """
    limit, cheapest = _exact_cost(embeddings), None
    for size, choice, among_all in LAYOUTS:
        n_clusters = max(1, embeddings.n_images // size)
        counts = [count for count in choice if count <= n_clusters]
        if not counts or _cost(vectors, size, counts[0], among_all) > limit:
            continue
        centroids = find_centroids(vectors, n_clusters, among_all=among_all, seed=seed, runtime=runtime)
        counts = [count for count in counts if count <= len(centroids)]
        about = (vectors, truth, centroids)
        if not counts or (not among_all and not _may_reach(*about, counts[-1], recall, runtime)):
            continue
        centroids = refine_centroids(vectors, centroids, n_clusters, seed=seed, runtime=runtime)
        before = cheapest
        for is_finer in (False, True):
            tried = _between(counts, cheapest) if is_finer else counts
            may_win = [count for count in tried if _cost(vectors, size, count, among_all) < limit]
            for plan in _predict(vectors, truth, centroids, may_win, runtime):
                cost = _cost(vectors, size, plan.clusters, among_all)
                if plan.recall >= recall and cost < limit:
                    limit, cheapest = cost, plan
            if cheapest is before:
                break
    return cheapest


def _between(counts: Sequence[int], chosen: Plan | None) -> list[int]:
    """Numbers of clusters between the one that was chosen and the next smaller one that was tried."""
    if chosen is None:
        return []
    smaller = max((count for count in counts if count < chosen.clusters), default=chosen.clusters)
    return list(range(smaller, chosen.clusters, max(1, (chosen.clusters - smaller) // 4)))[1:]


def _may_reach(
    vectors: Vectors,
    truth: TrueNeighbors,
    centroids: Centroids,
    count: int,
    recall: float,
    runtime: Runtime,
) -> bool:
    """Whether the most clusters come near the recall asked for, so that centers are worth refining; a few rows tell."""
    few = truth.first(_ROWS_TO_TELL)
    if few.n_counted == 0:
        return True
    (plan,) = _predict(vectors, few, centroids, [count], runtime)
    return plan.recall >= recall - _GAINED_BY_REFINING


def _predict(
    vectors: Vectors,
    truth: TrueNeighbors,
    centroids: Centroids,
    counts: Sequence[int],
    runtime: Runtime,
) -> list[Plan]:
    """All plans with so many clusters, with the share of the sample's true neighbors that each would find.

    Two images meet where one looks into the cluster that the other is at home in.
    """
    if not counts:
        return []
    n_found = np.zeros(len(counts), np.int64)
    for start, stop in spans(len(truth.rows), max(1, _BLOCK_PAIRS // (truth.neighbors.shape[1] + 1) ** 2)):
        images = np.concatenate([truth.rows[start:stop, None], truth.neighbors[start:stop]], axis=1)
        clusters = nearest_clusters(vectors, centroids, counts[-1], runtime=runtime, rows=images.ravel())
        clusters = clusters.reshape(*images.shape, counts[-1])
        meet = clusters[:, :1] == clusters[:, 1:, :1]
        meet |= clusters[:, 1:] == clusters[:, :1, :1]
        found = np.logical_or.accumulate(meet, axis=2)[:, :, np.array(counts) - 1]
        if truth.counted is not None:
            found &= truth.counted[start:stop, :, None]
        n_found += np.count_nonzero(found, axis=(0, 1))
    lost = 0.0 if isinstance(vectors, Embeddings) or not vectors.is_rounded else _LOST_BY_PROJECTION
    return [
        Plan(centroids, count, float(share) - lost)
        for count, share in zip(counts, n_found / truth.n_counted, strict=True)
    ]


def _cost(vectors: Vectors, size: int, clusters: int, among_all: bool) -> float:
    """Nanoseconds per image."""
    per_cluster = _PER_CLUSTER + size * (_PER_ENTRY + _PER_PRODUCT * vectors.dimensions)
    n_centers = vectors.n_images / size if among_all else 0
    per_center = _PER_ENTRY + _PER_PRODUCT / 2 * vectors.dimensions
    return _BEFORE + per_cluster * clusters + per_center * n_centers


def _exact_cost(embeddings: Embeddings) -> float:
    # Every similarity once for two images, and a tenth more to keep the best.
    return 0.55 * _PER_PRODUCT * embeddings.dimensions * embeddings.n_images

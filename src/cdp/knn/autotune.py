"""How many clusters an image looks into, and how many passes follow, for the recall asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import Centroids, nearest_clusters
from cdp.knn.kmeans import find_centroids, refine_centroids
from cdp.knn.pca import Vectors
from cdp.knn.recall import TrueNeighbors
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, BoolArray

# Images per cluster, how many clusters are looked into, and whether these are looked for among all. Many small ones are best where
# neighbors are in few of them; where they are in many, fewer and larger ones are looked through faster. The second are tried where they
# might be cheaper.
LAYOUTS = (
    (100, (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 80, 104, 128), False),
    (125, (40, 56, 72, 88, *range(104, 496, 24), *range(496, 1025, 48)), True),
)
_PASSES = (0, 1, 2, 3)
_BLOCK_PAIRS = 2**17
# Refined centers raise the recall of a plan by less than this (measured: 0.02), and so does chance on so few rows.
_GAINED_BY_REFINING = 0.06
_ROWS_TO_TELL = 100
# Passes miss more than the neighbors of a sample among themselves tell, by this factor (measured).
_MISSED_BY_PASSES = 1.45
# What fewer directions lose beside it (measured).
_LOST_BY_PROJECTION = 0.003
# Nanoseconds on one core of a common processor; only their ratios matter. One multiplication and addition in a product, one
# similarity that is looked at, a cluster that an image looks into, a neighbor's neighbor in a pass, and what is before and after
# all.
_PER_PRODUCT = 0.028
_PER_ENTRY = 0.35
_PER_CLUSTER = 200
_PER_HOP = 45
_BEFORE = 20000


@dataclass(frozen=True, eq=False)
class Plan:
    """How many of which clusters every image looks into, how many passes follow, and the recall to expect."""

    centroids: Centroids
    clusters: int
    passes: int
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
    limit, k, cheapest = _exact_cost(embeddings), truth.neighbors.shape[1], None
    for size, choice, among_all in LAYOUTS:
        n_clusters = max(1, embeddings.n_images // size)
        counts = [count for count in choice if count <= n_clusters]
        if not counts or _cost(vectors, size, counts[0], 0, k, among_all) > limit:
            continue
        centroids = find_centroids(vectors, n_clusters, among_all=among_all, seed=seed, runtime=runtime)
        counts = [count for count in counts if count <= len(centroids)]
        about = (embeddings, vectors, truth)
        if not counts or (not among_all and not _may_reach(*about, centroids, counts[-1], recall, runtime)):
            continue
        centroids = refine_centroids(vectors, centroids, n_clusters, seed=seed, runtime=runtime)
        before = cheapest
        for is_finer in (False, True):
            tried = _between(counts, cheapest) if is_finer else counts
            # What passes add takes longest to tell, and they are seldom worth it: only those that may be are looked at.
            for passes in (_PASSES[:1], _PASSES[1:]):
                may_win = [
                    count
                    for count in tried
                    if passes and _cost(vectors, size, count, passes[0], k, among_all) < limit
                ]
                for plan in _predict(*about, centroids, may_win, runtime, passes):
                    cost = _cost(vectors, size, plan.clusters, plan.passes, k, among_all)
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
    embeddings: Embeddings,
    vectors: Vectors,
    truth: TrueNeighbors,
    centroids: Centroids,
    count: int,
    recall: float,
    runtime: Runtime,
) -> bool:
    """Whether the most clusters and passes come near the recall asked for, so that centers are worth refining; a few rows tell."""
    few = truth.first(_ROWS_TO_TELL)
    if few.n_counted == 0:
        return True
    plans = _predict(embeddings, vectors, few, centroids, [count], runtime, _PASSES)
    return max(plan.recall for plan in plans) >= recall - _GAINED_BY_REFINING


def _predict(
    embeddings: Embeddings,
    vectors: Vectors,
    truth: TrueNeighbors,
    centroids: Centroids,
    counts: Sequence[int],
    runtime: Runtime,
    wanted: Sequence[int],
) -> list[Plan]:
    """All plans with so many clusters and passes, with the share of the sample's true neighbors that each would find."""
    if not counts:
        return []
    k = truth.neighbors.shape[1]
    counted = np.ones(truth.neighbors.shape, np.bool_) if truth.counted is None else truth.counted
    n_linked = np.zeros((len(counts), wanted[-1] + 1), np.int64)
    for span in spans(len(truth.rows), max(1, _BLOCK_PAIRS // (k + 1) ** 2)):
        near, nearer, rank = _neighborhoods(
            embeddings, vectors, truth, slice(*span), centroids, counts[-1], runtime
        )
        for row, count in enumerate(counts):
            linked = near & ((rank < count) | (rank < count).transpose(0, 2, 1))
            for passes in range(wanted[-1] + 1):
                n_linked[row, passes] += np.count_nonzero(linked[:, 0, 1:] & counted[slice(*span)])
                if passes < wanted[-1]:
                    hop = (linked & nearer).astype(np.float32)
                    linked |= near & (np.matmul(hop, hop) > 0)
    found = n_linked / truth.n_counted
    lost = 0.0 if isinstance(vectors, Embeddings) or not vectors.is_rounded else _LOST_BY_PROJECTION
    return [
        Plan(
            centroids,
            count,
            passes,
            1 - (1 - float(found[row, passes])) * (_MISSED_BY_PASSES if passes else 1) - lost,
        )
        for row, count in enumerate(counts)
        for passes in wanted
    ]


def _neighborhoods(
    embeddings: Embeddings,
    vectors: Vectors,
    truth: TrueNeighbors,
    some: slice,
    centroids: Centroids,
    count: int,
    runtime: Runtime,
) -> tuple[BoolArray, BoolArray, AnyArray]:
    """For some images of the sample with their k neighbors: which of them are near one another, and by which cluster.

    Returns:
        bool (some, 1 + k, 1 + k): at least as similar as the image and its k-th neighbor;
        bool, the same shape: so similar that a pass most likely goes from one to the other;
        int16, the same shape: at which place among the nearest clusters of the first that of the second is.
    """
    k = truth.neighbors.shape[1]
    images = np.concatenate([truth.rows[some, None], truth.neighbors[some]], axis=1)
    rank = np.empty((*images.shape, images.shape[1]), np.int16)
    clusters = nearest_clusters(vectors, centroids, count, runtime=runtime, rows=images.ravel())
    _find_ranks(clusters.reshape(*images.shape, count), np.full(len(centroids), count, np.int16), rank)
    similarity = np.empty(rank.shape, np.float32)
    for row in range(len(images)):
        around = embeddings.take(images[row])
        np.matmul(around, around.T, out=similarity[row])
    bars = truth.similarity[some]
    far, farther = (bars[:, place - 1, None, None] - 1e-6 for place in (k, (3 * k + 3) // 4))
    return similarity >= far, similarity >= farther, rank


@kernel
def _find_ranks(clusters: AnyArray, place: AnyArray, rank: AnyArray) -> None:
    """Fill in at which place of one image's clusters, (samples, images, count), that of another is: its first; `count` if at none.

    `place` has a number for every cluster, all of them `count`.
    """
    n_samples, n_images, count = clusters.shape
    for sample in range(n_samples):
        for one in range(n_images):
            for number in range(count):
                if clusters[sample, one, number] >= 0:
                    place[clusters[sample, one, number]] = number
            for other in range(n_images):
                rank[sample, one, other] = place[clusters[sample, other, 0]]
            for number in range(count):
                if clusters[sample, one, number] >= 0:
                    place[clusters[sample, one, number]] = count


def _cost(vectors: Vectors, size: int, clusters: int, passes: int, k: int, among_all: bool) -> float:
    """Nanoseconds per image."""
    per_cluster = _PER_CLUSTER + size * (_PER_ENTRY + _PER_PRODUCT * vectors.dimensions)
    n_centers = vectors.n_images / size if among_all else 0
    per_center = _PER_ENTRY + _PER_PRODUCT / 2 * vectors.dimensions
    return _BEFORE + per_cluster * clusters + per_center * n_centers + _PER_HOP * (k + 1) ** 2 * passes


def _exact_cost(embeddings: Embeddings) -> float:
    # Every similarity once for two images, and a tenth more to keep the best.
    return 0.55 * _PER_PRODUCT * embeddings.dimensions * embeddings.n_images

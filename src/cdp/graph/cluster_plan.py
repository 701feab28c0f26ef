"""How many clusters an image looks into, and how many passes follow, for the recall asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cdp.graph.clusters import Centroids, nearest_clusters
from cdp.graph.recall import TrueNeighbors
from cdp.parallel import Workers
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, BoolArray

CLUSTER_SIZE = 100
# The second ones are tried if none of the first is enough: to look at them costs more.
_CLUSTERS = ((2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32), (40, 48, 64, 80, 96, 128))
_PASSES = (0, 1, 2, 3)
# Passes miss more than the neighbors of a sample among themselves tell, by this factor (measured).
_MISSED_BY_PASSES = 1.45
# Nanoseconds on one core of a common processor; only their ratios matter. One multiplication and addition in a product, and
# what an image costs besides: for every cluster it looks into, in every pass, and before and after all.
_PER_PRODUCT = 0.024
_PER_CLUSTER = 2000
_PER_PASS = 7000
_BEFORE = 22000


@dataclass(frozen=True)
class Plan:
    """How many clusters every image looks into, how many passes follow, and the recall to expect."""

    clusters: int
    passes: int
    recall: float


def choose_plan(
    embeddings: Embeddings, truth: TrueNeighbors, centroids: Centroids, recall: float, *, threads: Workers
) -> Plan | None:
    """The cheapest plan that reaches the recall on a sample; None if exact search is cheaper than all that do."""
    for choice in _CLUSTERS:
        counts = [count for count in choice if count <= len(centroids)]
        affordable = [
            plan
            for plan in _predict(embeddings, truth, centroids, counts, threads)
            if plan.recall >= recall and _cost(embeddings, plan) < _exact_cost(embeddings)
        ]
        if affordable:
            return min(affordable, key=partial(_cost, embeddings))
    return None


def _predict(
    embeddings: Embeddings,
    truth: TrueNeighbors,
    centroids: Centroids,
    counts: Sequence[int],
    threads: Workers,
) -> list[Plan]:
    """All plans with so many clusters, with the share of the sample's true neighbors that each would find."""
    if not counts or _cost(embeddings, Plan(counts[0], 0, 0.0)) > _exact_cost(embeddings):
        return []
    near, nearer, rank = _neighborhoods(embeddings, truth, centroids, counts[-1], threads)
    plans = []
    for count in counts:
        linked = near & ((rank < count) | (rank < count).transpose(0, 2, 1))
        for passes in _PASSES:
            missed = (1 - float(linked[:, 0, 1:].mean())) * (_MISSED_BY_PASSES if passes else 1)
            plans.append(Plan(count, passes, 1 - missed))
            hop = (linked & nearer).astype(np.float32)
            linked |= near & (np.matmul(hop, hop) > 0)
    return plans


def _neighborhoods(
    embeddings: Embeddings, truth: TrueNeighbors, centroids: Centroids, count: int, threads: Workers
) -> tuple[BoolArray, BoolArray, AnyArray]:
    """For every image of the sample with its k neighbors: which of them are near one another, and by which cluster.

    Returns:
        bool (sample, 1 + k, 1 + k): at least as similar as the image and its k-th neighbor;
        bool, the same shape: so similar that a pass most likely goes from one to the other;
        int16, the same shape: at which place among the nearest clusters of the first that of the second is.
    """
    k = truth.neighbors.shape[1]
    images = np.concatenate([truth.rows[:, None], truth.neighbors], axis=1)
    clusters = nearest_clusters(embeddings, centroids, count, rows=images.ravel(), threads=threads)
    clusters = clusters.reshape(*images.shape, count)
    rank = np.full((*images.shape, images.shape[1]), count, np.int16)
    for place in reversed(range(count)):
        rank[clusters[:, :, None, place] == clusters[:, None, :, 0]] = place
    similarity = np.empty(rank.shape, np.float32)
    for row in range(len(images)):
        vectors = embeddings.take(images[row])
        np.matmul(vectors, vectors.T, out=similarity[row])
    far, farther = (truth.similarity[:, place - 1, None, None] - 1e-6 for place in (k, (3 * k + 3) // 4))
    return similarity >= far, similarity >= farther, rank


def _cost(embeddings: Embeddings, plan: Plan) -> float:
    per_cluster = _PER_CLUSTER + _PER_PRODUCT * CLUSTER_SIZE * embeddings.dimensions
    return _BEFORE + per_cluster * plan.clusters + _PER_PASS * plan.passes


def _exact_cost(embeddings: Embeddings) -> float:
    # Every similarity once for two images, and a tenth more to keep the best.
    return 0.55 * _PER_PRODUCT * embeddings.dimensions * embeddings.n_images

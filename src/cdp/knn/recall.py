"""Recall of a k-NN graph, measured against the exact neighbors of a random sample of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cdp.knn.exact import search_rows
from cdp.knn.pair_similarity import rerank
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import BoolArray, FloatArray, IntArray, LongArray

# 500 x 20 neighbors give a recall of 0.97 a standard error below 0.004, in a few percent of a search's time.
SAMPLE_ROWS = 500
_SAME_IDENTITY_ROWS = 300


class Gap(NamedTuple):
    """How much less similar the last image of a list of this length is than the k-th."""

    length: int
    similarity: float


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The k nearest neighbors of some images, found by exact search.

    Attributes:
        rows: the images, ascending.
        neighbors: int32 (len(rows), k).
        similarity: float32 (len(rows), k).
        gaps: for lists longer than k, the median gap between the k-th neighbor and the last one.
        counted: bool (len(rows), k), the neighbors that count for the recall; None = all.
    """

    rows: IntArray
    neighbors: IntArray
    similarity: FloatArray
    gaps: tuple[Gap, ...] = ()
    counted: BoolArray | None = None

    @property
    def n_counted(self) -> int:
        """Number of neighbors that count."""
        return self.neighbors.size if self.counted is None else int(np.count_nonzero(self.counted))

    def first(self, count: int) -> GroundTruth:
        """Return the ground truth of the first images only."""
        counted = None if self.counted is None else self.counted[:count]
        return GroundTruth(
            self.rows[:count], self.neighbors[:count], self.similarity[:count], self.gaps, counted
        )

    def recall(self, similarity: FloatArray) -> float:
        """Compute the recall of lists with these similarities, (n, k) of all images.

        A neighbor counts as found if it is at least as similar as the k-th true one: ties are not mistakes.
        """
        return self._share_found(similarity[self.rows])

    def recall_of_lists(self, embeddings: Embeddings, ids: IntArray) -> float:
        """Compute the recall of the sampled images' lists, (len(rows), k or more), before re-ranking.

        Only neighbors that count are considered.
        """
        ids, similarity = rerank(embeddings, self.rows, ids)
        if self.counted is None:
            return self._share_found(similarity)
        is_found = (self.neighbors[:, :, None] == ids[:, None, : self.neighbors.shape[1]]).any(axis=2)
        return float(is_found[self.counted].mean())

    def _share_found(self, similarity: FloatArray) -> float:
        k = self.similarity.shape[1]
        return float(np.mean(similarity[:, :k] >= self.similarity[:, -1:]))


def find_ground_truth(embeddings: Embeddings, k: int, *, seed: int, runtime: Runtime) -> GroundTruth:
    """Search the exact neighbors of a random sample of images."""
    size = min(SAMPLE_ROWS, embeddings.n_images)
    drawn = np.random.default_rng(seed).choice(embeddings.n_images, size, replace=False)
    rows: IntArray = np.sort(drawn).astype(np.int32)
    lengths = sorted({min(length, embeddings.n_images - 1) for length in (k + (k + 1) // 2, 2 * k, 3 * k)})
    neighbors, similarity = search_rows(embeddings, rows, lengths[-1], runtime=runtime)
    gap = similarity[:, k - 1, None] - similarity
    gaps = tuple(Gap(length, float(np.median(gap[:, length - 1]))) for length in lengths)
    return GroundTruth(rows, neighbors[:, :k], similarity[:, :k], gaps)


def find_same_identity_truth(
    embeddings: Embeddings, k: int, identities: LongArray | None, *, seed: int, runtime: Runtime
) -> GroundTruth | None:
    """Search the exact neighbors of a sample of labeled images; only those of the same identity count.

    Args:
        embeddings: all images.
        k: number of neighbors.
        identities: of all images, below 0 = unlabeled; the sample is drawn from identities with two images or
            more.
        seed: of the sample.
        runtime: how the search runs.

    Returns:
        None if there are no labels, or no neighbor has the same identity.
    """
    if identities is None:
        return None
    labeled = np.flatnonzero(identities >= 0)
    _, number, count = np.unique(identities[labeled], return_inverse=True, return_counts=True)
    shared = labeled[count[number] > 1]
    drawn = np.random.default_rng((seed, 1)).choice(
        shared, min(_SAME_IDENTITY_ROWS, len(shared)), replace=False
    )
    rows: IntArray = np.sort(drawn).astype(np.int32)
    if len(rows) == 0:
        return None
    neighbors, similarity = search_rows(embeddings, rows, k, runtime=runtime)
    is_same = identities[neighbors] == identities[rows][:, None]
    return GroundTruth(rows, neighbors, similarity, (), is_same) if is_same.any() else None


def measure_same_identity_recall(
    embeddings: Embeddings,
    graph: KnnGraph,
    identities: LongArray,
    *,
    runtime: Runtime,
    seed: int = 0,
) -> float | None:
    """Measure the recall of a graph among true neighbors of the same identity; None if there are none.

    On a random sample of the labeled images (identity 0 or more) that share their identity with another.
    """
    truth = find_same_identity_truth(embeddings, graph.k, identities, seed=seed, runtime=runtime)
    return None if truth is None else truth.recall_of_lists(embeddings, graph.neighbors[truth.rows])


def measure_recall(embeddings: Embeddings, graph: KnnGraph, *, runtime: Runtime, seed: int = 0) -> float:
    """Measure the share of the true k nearest neighbors that a graph has, on a random sample of images."""
    truth = find_ground_truth(embeddings, graph.k, seed=seed, runtime=runtime)
    return truth.recall(graph.similarity)

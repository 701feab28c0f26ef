"""Recall: which share of the true neighbors a graph has, on a sample of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cdp.knn.exact import search_rows
from cdp.knn.pair_similarity import measure_lists_of
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import BoolArray, FloatArray, IntArray, LongArray

SAMPLE_ROWS = 500
_SAME_IDENTITY_ROWS = 300


class Gap(NamedTuple):
    """How much less similar the last image of a list of this length is than the k-th."""

    length: int
    similarity: float


@dataclass(frozen=True, eq=False)
class TrueNeighbors:
    """The k nearest neighbors of some images, by exact search.

    Attributes:
        rows: the images, ascending.
        neighbors: int32 (len(rows), k).
        similarity: float32 (len(rows), k).
        gaps: for lists that are longer than k, how much less similar than the k-th neighbor their last one is, in the median.
        counted: bool (len(rows), k), the neighbors that count; None = all.
    """

    rows: IntArray
    neighbors: IntArray
    similarity: FloatArray
    gaps: tuple[Gap, ...] = ()
    counted: BoolArray | None = None

    @property
    def n_counted(self) -> int:
        """How many neighbors count."""
        return self.neighbors.size if self.counted is None else int(np.count_nonzero(self.counted))

    def first(self, count: int) -> TrueNeighbors:
        """Those of the first images."""
        counted = None if self.counted is None else self.counted[:count]
        return TrueNeighbors(
            self.rows[:count], self.neighbors[:count], self.similarity[:count], self.gaps, counted
        )

    def recall(self, similarity: FloatArray) -> float:
        """Share of them in lists with these similarities, (n, k) of all images.

        A neighbor counts as found if it is at least as similar as the k-th true one: ties are not mistakes.
        """
        return self._share(similarity[self.rows])

    def recall_of_lists(self, embeddings: Embeddings, ids: IntArray) -> float:
        """The same for the lists of these images, (len(rows), k or more), that are not measured yet; of those that count."""
        ids, similarity = measure_lists_of(embeddings, self.rows, ids)
        if self.counted is None:
            return self._share(similarity)
        is_found = (self.neighbors[:, :, None] == ids[:, None, : self.neighbors.shape[1]]).any(axis=2)
        return float(is_found[self.counted].mean())

    def _share(self, similarity: FloatArray) -> float:
        k = self.similarity.shape[1]
        return float(np.mean(similarity[:, :k] >= self.similarity[:, -1:]))


def find_true_neighbors(embeddings: Embeddings, k: int, *, seed: int, runtime: Runtime) -> TrueNeighbors:
    """The neighbors of a random sample of images."""
    size = min(SAMPLE_ROWS, embeddings.n_images)
    drawn = np.random.default_rng(seed).choice(embeddings.n_images, size, replace=False)
    rows: IntArray = np.sort(drawn).astype(np.int32)
    lengths = sorted({min(length, embeddings.n_images - 1) for length in (k + (k + 1) // 2, 2 * k, 3 * k)})
    neighbors, similarity = search_rows(embeddings, rows, lengths[-1], runtime=runtime)
    behind = similarity[:, k - 1, None] - similarity
    gaps = tuple(Gap(length, float(np.median(behind[:, length - 1]))) for length in lengths)
    return TrueNeighbors(rows, neighbors[:, :k], similarity[:, :k], gaps)


def find_same_identity_neighbors(
    embeddings: Embeddings, k: int, identities: LongArray | None, *, seed: int, runtime: Runtime
) -> TrueNeighbors | None:
    """The neighbors of a random sample of the images whose identities are known (0 or more) and shared.

    Those of the same identity count; None if there are none, or nobody is known.
    """
    if identities is None:
        return None
    known = np.flatnonzero(identities >= 0)
    _, number, count = np.unique(identities[known], return_inverse=True, return_counts=True)
    shared = known[count[number] > 1]
    drawn = np.random.default_rng((seed, 1)).choice(
        shared, min(_SAME_IDENTITY_ROWS, len(shared)), replace=False
    )
    rows: IntArray = np.sort(drawn).astype(np.int32)
    if len(rows) == 0:
        return None
    neighbors, similarity = search_rows(embeddings, rows, k, runtime=runtime)
    is_same = identities[neighbors] == identities[rows][:, None]
    return TrueNeighbors(rows, neighbors, similarity, (), is_same) if is_same.any() else None


def measure_same_identity_recall(
    embeddings: Embeddings,
    graph: KnnGraph,
    identities: LongArray,
    *,
    runtime: Runtime,
    seed: int = 0,
) -> float | None:
    """Of the true k nearest neighbors that show the same identity, the share that the graph has; None if there are none.

    On a random sample of the images whose identities are known (0 or more) and shared.
    """
    truth = find_same_identity_neighbors(embeddings, graph.k, identities, seed=seed, runtime=runtime)
    return None if truth is None else truth.recall_of_lists(embeddings, graph.neighbors[truth.rows])


def measure_recall(embeddings: Embeddings, graph: KnnGraph, *, runtime: Runtime, seed: int = 0) -> float:
    """Share of the true k nearest neighbors that the graph has, on a random sample of images."""
    truth = find_true_neighbors(embeddings, graph.k, seed=seed, runtime=runtime)
    return truth.recall(graph.similarity)

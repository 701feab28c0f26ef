"""Graphs over images: one model's neighbors, candidate pairs, and the pairs that found consensus."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from cdp.errors import InputError
from cdp.types.arrays import AnyArray, Artifact, BoolArray, FloatArray, IntArray, read_only
from cdp.types.softness import Softness

# Checks go block by block, so that they need no memory to speak of.
_ENTRIES_PER_BLOCK = 2**18


@dataclass(frozen=True, eq=False)
class KnnGraph(Artifact):
    """The k nearest neighbors of every image in one model, by cosine similarity.

    Attributes:
        neighbors: int32 (n, k), best first, ties by id, never the image itself; -1 where there are fewer.
        similarity: float32 (n, k); -inf where `neighbors` is -1.
        method: how it was made.
        recall: share of the true neighbors that an approximate search found, on a sample of rows; None if
            not measured.

    Examples:
        >>> from cdp import knn_graph
        >>> graph = knn_graph([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], k=1)
        >>> graph.neighbors.tolist()
        [[1], [0], [1]]
    """

    neighbors: IntArray
    similarity: FloatArray
    method: str = "given"
    recall: float | None = None

    def __post_init__(self) -> None:
        neighbors = np.asarray(self.neighbors)
        similarity = np.asarray(self.similarity)
        if neighbors.ndim != 2 or neighbors.shape != similarity.shape or neighbors.size == 0:
            raise InputError(
                f"KnnGraph: neighbors {neighbors.shape} and similarity {similarity.shape} must be two tables "
                "of the same shape, images x k.",
                code="knn-tables-differ",
                neighbors=neighbors.shape,
                similarity=similarity.shape,
            )
        if neighbors.dtype.kind not in "iu":
            raise InputError(
                f"KnnGraph: neighbors must be whole numbers, got {neighbors.dtype}.",
                code="knn-neighbors-not-whole",
                found=str(neighbors.dtype),
            )
        n_images, k = neighbors.shape
        rows = max(1, _ENTRIES_PER_BLOCK // k)
        for start in range(0, n_images, rows):
            _check_lists(neighbors[start : start + rows], similarity[start : start + rows], start, n_images)
        object.__setattr__(self, "neighbors", read_only(neighbors, np.int32))
        object.__setattr__(self, "similarity", read_only(similarity, np.float32))

    @classmethod
    def unchecked(
        cls, neighbors: AnyArray, similarity: AnyArray, method: str = "given", recall: float | None = None
    ) -> Self:
        """Make a graph of lists that were checked before, or that a search of this run has made."""
        graph = object.__new__(cls)
        vars(graph).update(
            neighbors=read_only(neighbors, np.int32),
            similarity=read_only(similarity, np.float32),
            method=method,
            recall=recall,
        )
        return graph

    @property
    def n_images(self) -> int:
        """Number of images."""
        return int(self.neighbors.shape[0])

    @property
    def k(self) -> int:
        """Number of neighbors per image."""
        return int(self.neighbors.shape[1])

    def nearest(self, k: int) -> KnnGraph:
        """Return the graph of the k nearest neighbors only."""
        if k >= self.k:
            return self
        return self.with_lists(self.neighbors[:, :k], self.similarity[:, :k])

    def with_lists(self, neighbors: AnyArray, similarity: AnyArray) -> KnnGraph:
        """Return the graph with other lists, which follow from its own and are not checked again."""
        return KnnGraph.unchecked(neighbors, similarity, self.method, self.recall)

    def keep_rows(self, kept: BoolArray, number: IntArray) -> KnnGraph:
        """Return the subgraph of some images; lists lose neighbors outside of it.

        Args:
            kept: bool (n,), which images.
            number: int32 (n,), their new numbers, ascending; -1 for the others.
        """
        neighbors = np.where(self.neighbors[kept] < 0, np.int32(-1), number[self.neighbors[kept]])
        similarity = np.where(neighbors < 0, np.float32(-np.inf), self.similarity[kept])
        order = np.argsort(neighbors < 0, axis=1, kind="stable")
        return KnnGraph(
            np.take_along_axis(neighbors, order, axis=1),
            np.take_along_axis(similarity, order, axis=1),
            self.method,
            self.recall,
        )

    def insert_rows(self, start: int, count: int) -> KnnGraph:
        """Insert `count` images without neighbors at row `start`; the ids of later images are shifted."""
        neighbors = self.neighbors + np.where(self.neighbors >= start, np.int32(count), np.int32(0))
        empty = np.full((count, self.k), -1, np.int32)
        return KnnGraph(
            np.concatenate([neighbors[:start], empty, neighbors[start:]]),
            np.concatenate(
                [self.similarity[:start], np.full(empty.shape, -np.inf, np.float32), self.similarity[start:]]
            ),
            self.method,
            self.recall,
        )

    @classmethod
    def load(cls, path: str | Path) -> KnnGraph:
        """Read a graph from an artifact folder, or a k-NN file of another project (docs/formats.md)."""
        from cdp.data.knn_files import read_knn

        return read_knn(path)

    def __repr__(self) -> str:
        recall = "" if self.recall is None else f", recall {self.recall:.3f}"
        return f"KnnGraph: {self.n_images:,} images x {self.k} neighbors ({self.method}{recall})"


@dataclass(frozen=True, eq=False)
class UnfinishedLists(Artifact):
    """What a k-NN search that goes on has found so far.

    Attributes:
        neighbors: int32 (n, keep), numbered as the search numbers images; -1 where there are fewer.
        similarity: float32 (n, keep), best first.
        done: how many parts of the work are in the lists.
    """

    neighbors: IntArray
    similarity: FloatArray
    done: int

    def __post_init__(self) -> None:
        if self.neighbors.ndim != 2 or self.neighbors.shape != self.similarity.shape:
            raise InputError(
                f"UnfinishedLists: neighbors {self.neighbors.shape} and similarity {self.similarity.shape} "
                "must be two tables of the same shape.",
                code="unfinished-shapes-wrong",
                neighbors=self.neighbors.shape,
                similarity=self.similarity.shape,
            )


def take_pairs(ids: IntArray, kept: BoolArray) -> IntArray:
    """Take the pairs (m, 2) that a mask keeps; both ids are moved as one 64-bit number, which is faster."""
    keys = np.ascontiguousarray(ids, np.int32).view(np.int64).ravel()
    taken: IntArray = keys[kept].view(np.int32).reshape(-1, 2)
    return taken


def _check_lists(neighbors: AnyArray, similarity: AnyArray, start: int, n_images: int) -> None:
    """Refuse lists of images from `start` on that are no neighbors."""

    def refuse(wrong: AnyArray, what: str, *, code: str) -> None:
        if wrong.any():
            row = start + int(np.flatnonzero(wrong.any(axis=1))[0])
            raise InputError(f"KnnGraph: the neighbors of image {row} {what}.", code=code, row=row)

    present = neighbors >= 0
    refuse(
        neighbors < -1,
        "have an id below -1; -1 alone marks a missing one",
        code="knn-neighbor-below-minus-one",
    )
    refuse(np.isposinf(similarity), "have an infinite similarity", code="knn-similarity-infinite")
    refuse(
        neighbors >= n_images,
        f"name an image past the last one ({n_images - 1})",
        code="knn-neighbor-out-of-range",
    )
    refuse(
        neighbors == np.arange(start, start + len(neighbors))[:, None],
        "name the image itself",
        code="knn-neighbor-is-image",
    )
    refuse(
        present[:, 1:] & ~present[:, :-1],
        "have a neighbor after a missing one",
        code="knn-neighbor-after-missing",
    )
    refuse(
        np.isnan(similarity) | (np.isneginf(similarity) == present),
        "lack a similarity",
        code="knn-similarity-missing",
    )
    refuse(similarity[:, 1:] > similarity[:, :-1], "are not sorted best first", code="knn-not-sorted")
    in_order = np.sort(neighbors, axis=1)
    refuse(
        (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0),
        "name a neighbor twice",
        code="knn-neighbor-repeated",
    )


@dataclass(frozen=True, eq=False)
class Pairs:
    """Unordered pairs of images, each once.

    Attributes:
        ids: int32 (m, 2), first < second in every row, rows sorted and unique.
        n_images: how many images the ids are drawn from.
    """

    ids: IntArray
    n_images: int

    def __post_init__(self) -> None:
        ids = _check_ids("Pairs", self.ids, self.n_images)
        for start in range(0, len(ids), _ENTRIES_PER_BLOCK):
            block = ids[start : start + _ENTRIES_PER_BLOCK]
            if np.any(block[:, 0] >= block[:, 1]):
                raise InputError(
                    "Pairs: the first id of every pair must be smaller than the second.",
                    code="pairs-first-not-smaller",
                )
        if not _is_rising(ids):
            raise InputError(
                "Pairs: the pairs must be sorted and each must occur once.", code="pairs-not-sorted"
            )
        object.__setattr__(self, "ids", ids)

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def __getitem__(self, rows: slice) -> Pairs:
        return Pairs(self.ids[rows], self.n_images)

    def __repr__(self) -> str:
        return f"Pairs: {len(self):,} pairs of {self.n_images:,} images"


@dataclass(frozen=True, eq=False)
class ConsensusGraph(Artifact):
    """Scored pairs of images and their doubts.

    Doubt is 1 - probability. Near certainty a probability is rounded to 1 and all good pairs look alike; a
    doubt near 0 keeps its precision, and the propagation compares exactly there.

    Attributes:
        ids: int32 (m, 2), each unordered pair once, first < second; a repeated pair keeps its least doubt.
        doubt: float32 or float64 (m,), 0 = certain.
        n_images: number of images, with or without an accepted pair.

    Examples:
        >>> from cdp import ConsensusGraph
        >>> pairs = ConsensusGraph([[0, 1], [1, 2]], [0.02, 0.4], n_images=4)
        >>> pairs.probability.round(2).tolist()
        [0.98, 0.6]
    """

    ids: IntArray
    doubt: AnyArray
    n_images: int

    def __post_init__(self) -> None:
        ids = _check_ids("ConsensusGraph", self.ids, self.n_images)
        doubt = np.asarray(self.doubt)
        if doubt.shape != (len(ids),):
            raise InputError(
                f"ConsensusGraph: {doubt.shape} doubts for {len(ids):,} pairs.",
                code="doubts-differ",
                expected=len(ids),
                found=doubt.shape,
            )
        if doubt.dtype not in (np.float32, np.float64):
            doubt = doubt.astype(np.float64)
        if doubt.size and not float(doubt.min()) >= 0:
            row = int(np.flatnonzero(~(doubt >= 0))[0])
            raise InputError(
                f"ConsensusGraph: the doubt of pair {row} is {doubt[row]}; it must be 0 or more.",
                code="doubt-negative",
                pair=row,
                value=doubt[row],
            )
        if doubt.size and not np.isfinite(doubt.max()):
            raise InputError("ConsensusGraph: a doubt is infinite.", code="doubt-infinite")
        is_turned = False
        for start in range(0, len(ids), _ENTRIES_PER_BLOCK):
            first, second = ids[start : start + _ENTRIES_PER_BLOCK].T
            if np.any(first == second):
                row = start + int(np.flatnonzero(first == second)[0])
                raise InputError(
                    f"ConsensusGraph: pair {row} joins image {ids[row, 0]} with itself.",
                    code="pair-joins-itself",
                    pair=row,
                    image=ids[row, 0],
                )
            is_turned |= bool(np.any(first > second))
        if is_turned:
            ids = np.sort(ids, axis=1)
        ids, doubt = _merge_repeated_pairs(ids, doubt)
        object.__setattr__(self, "ids", read_only(ids))
        object.__setattr__(self, "doubt", read_only(doubt))

    @property
    def probability(self) -> AnyArray:
        """1 - doubt: what the mediator answered, for reading; compute with `doubt`."""
        probability: AnyArray = 1 - self.doubt
        return probability

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def first_images(self, n_images: int) -> Self:
        """Keep the first images and the pairs between them."""
        kept = self.ids[:, 1] < n_images  # the second id is the larger one
        return replace(self, ids=take_pairs(self.ids, kept), doubt=self.doubt[kept], n_images=n_images)

    def __repr__(self) -> str:
        return f"ConsensusGraph: {len(self):,} accepted pairs of {self.n_images:,} images"


@dataclass(frozen=True, eq=False)
class SimilarityGraph(ConsensusGraph):
    """Pairs scored by their z-score, and the vectors from which the z-score of any other pair follows.

    z = offset + dot product of the two vectors. The probability is logistic in z, and one half at the
    threshold.

    Attributes:
        vectors: float16 or float32 (n, d).
        offset: z-score of two vectors whose dot product is 0.
        threshold: z-score with probability one half.
        softness: scales of the logistic function.
    """

    vectors: AnyArray
    offset: float
    threshold: float
    softness: Softness

    def probability_of(self, z: AnyArray) -> AnyArray:
        """Probability at a z-score."""
        return self.softness.probability(z, self.threshold)

    def z_score_at(self, probability: float) -> float:
        """Z-score at a probability between 0 and 1."""
        return self.softness.z_score(probability, self.threshold)

    def first_images(self, n_images: int) -> Self:
        """Keep the first images and the pairs between them."""
        return replace(super().first_images(n_images), vectors=self.vectors[:n_images])


def _merge_repeated_pairs(ids: IntArray, doubt: AnyArray) -> tuple[IntArray, AnyArray]:
    """Merge repeated pairs, keeping the surest; without repeats nothing is copied or reordered."""
    if _is_rising(ids):
        return ids, doubt
    keys = ids[:, 0].astype(np.int64) << 32 | ids[:, 1]
    in_order = np.sort(keys)
    if np.all(np.diff(in_order) > 0):
        return ids, doubt
    order = np.lexsort((doubt, keys))
    first = np.concatenate([[True], np.diff(keys[order]) > 0])
    kept = order[first]
    return ids[kept], doubt[kept]


def _is_rising(ids: IntArray) -> bool:
    """Whether every pair comes after the one before."""
    for start in range(0, len(ids), _ENTRIES_PER_BLOCK):
        block = ids[start : start + _ENTRIES_PER_BLOCK + 1]
        keys = block[:, 0].astype(np.int64) << 32 | block[:, 1]
        if np.any(np.diff(keys) <= 0):
            return False
    return True


def _check_ids(noun: str, given: AnyArray, n_images: int) -> IntArray:
    ids = np.asarray(given)
    if ids.size == 0:
        ids = np.empty((0, 2), np.int32)
    if ids.ndim != 2 or ids.shape[1] != 2 or ids.dtype.kind not in "iu":
        raise InputError(
            f"{noun}: ids must be whole numbers of shape (pairs, 2), got {ids.dtype} {ids.shape}.",
            code="pair-ids-wrong",
            found=(str(ids.dtype), ids.shape),
        )
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n_images):
        raise InputError(
            f"{noun}: ids must be in 0..{n_images - 1}, found {ids.min()}..{ids.max()}.",
            code="pair-ids-out-of-range",
            n_images=n_images,
            found=(int(ids.min()), int(ids.max())),
        )
    return read_only(ids, np.int32)

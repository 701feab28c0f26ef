"""Graphs over images: one model's neighbors, candidate pairs, and the pairs that found consensus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.errors import InputError
from cdp.types.arrays import AnyArray, Artifact, FloatArray, IntArray, read_only


@dataclass(frozen=True, eq=False)
class KnnGraph(Artifact):
    """The k nearest neighbors of every image in one model, by cosine similarity.

    Attributes:
        neighbors: int32 (n, k), best first, ties by id, never the image itself; -1 where there are fewer.
        similarity: float32 (n, k); -inf where `neighbors` is -1.
        method: how it was made.
        recall: share of the true neighbors that an approximate search found, on a sample of rows; None if
            not measured.
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
                "of the same shape, images x k."
            )
        if neighbors.dtype.kind not in "iu":
            raise InputError(f"KnnGraph: neighbors must be whole numbers, got {neighbors.dtype}.")
        n_images = neighbors.shape[0]
        present = neighbors >= 0
        _refuse(neighbors < -1, "have an id below -1; -1 alone marks a missing one")
        _refuse(np.isposinf(similarity), "have an infinite similarity")
        _refuse(neighbors >= n_images, f"name an image past the last one ({n_images - 1})")
        _refuse(neighbors == np.arange(n_images)[:, None], "name the image itself")
        _refuse(present[:, 1:] & ~present[:, :-1], "have a neighbor after a missing one")
        _refuse(np.isnan(similarity) | (np.isneginf(similarity) == present), "lack a similarity")
        _refuse(similarity[:, 1:] > similarity[:, :-1], "are not sorted best first")
        in_order = np.sort(neighbors, axis=1)
        _refuse((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0), "name a neighbor twice")
        object.__setattr__(self, "neighbors", read_only(neighbors, np.int32))
        object.__setattr__(self, "similarity", read_only(similarity, np.float32))

    @property
    def n_images(self) -> int:
        """Number of images."""
        return int(self.neighbors.shape[0])

    @property
    def k(self) -> int:
        """Number of neighbors per image."""
        return int(self.neighbors.shape[1])

    def nearest(self, k: int) -> KnnGraph:
        """The graph of the k nearest neighbors only."""
        if k >= self.k:
            return self
        return KnnGraph(self.neighbors[:, :k], self.similarity[:, :k], self.method, self.recall)

    def first_rows(self, n_images: int) -> KnnGraph:
        """The graph of the first images; neighbors past them are gone, so some have fewer than k."""
        neighbors, similarity = self.neighbors[:n_images], self.similarity[:n_images]
        neighbors = np.where(neighbors >= n_images, -1, neighbors)
        similarity = np.where(neighbors < 0, -np.inf, similarity)
        # Stable, so that what stays keeps its order and the gaps move to the end.
        order = np.argsort(neighbors < 0, axis=1, kind="stable")
        return KnnGraph(
            np.take_along_axis(neighbors, order, axis=1),
            np.take_along_axis(similarity, order, axis=1).astype(np.float32),
            self.method,
            self.recall,
        )

    def make_room(self, start: int, count: int) -> KnnGraph:
        """The graph with so many images more from row `start` on, which have no neighbors yet; later ones move up."""
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
        """A graph from an artifact folder, or from a k-NN file of another project (see docs/formats.md)."""
        from cdp.data.knn_files import read_knn

        return read_knn(path)

    def __repr__(self) -> str:
        recall = "" if self.recall is None else f", recall {self.recall:.3f}"
        return f"KnnGraph: {self.n_images:,} images x {self.k} neighbors ({self.method}{recall})"


def _refuse(wrong: AnyArray, what: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise InputError(f"KnnGraph: the neighbors of image {row} {what}.")


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
        if np.any(ids[:, 0] >= ids[:, 1]):
            raise InputError("Pairs: the first id of every pair must be smaller than the second.")
        step = np.diff(ids[:, 0])
        if np.any((step < 0) | ((step == 0) & (np.diff(ids[:, 1]) <= 0))):
            raise InputError("Pairs: the pairs must be sorted and each must occur once.")
        object.__setattr__(self, "ids", ids)

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def __getitem__(self, rows: slice) -> Pairs:
        return Pairs(self.ids[rows], self.n_images)

    def __repr__(self) -> str:
        return f"Pairs: {len(self):,} pairs of {self.n_images:,} images"


@dataclass(frozen=True, eq=False)
class ConsensusGraph(Artifact):
    """The accepted pairs and how much doubt is left about each.

    Doubt is 1 - probability. Near certainty a probability is rounded to 1 and all good pairs look alike; a
    doubt near 0 keeps its precision, and the propagation compares exactly there.

    Attributes:
        ids: int32 (m, 2), each unordered pair once, first < second; a repeated pair keeps its least doubt.
        doubt: float32 or float64 (m,), 0 = certain.
        n_images: number of images, with or without an accepted pair.
    """

    ids: IntArray
    doubt: AnyArray
    n_images: int

    def __post_init__(self) -> None:
        ids = _check_ids("ConsensusGraph", self.ids, self.n_images)
        doubt = np.asarray(self.doubt)
        if doubt.shape != (len(ids),):
            raise InputError(f"ConsensusGraph: {doubt.shape} doubts for {len(ids):,} pairs.")
        if doubt.dtype not in (np.float32, np.float64):
            doubt = doubt.astype(np.float64)
        if doubt.size and not float(doubt.min()) >= 0:
            row = int(np.flatnonzero(~(doubt >= 0))[0])
            raise InputError(
                f"ConsensusGraph: the doubt of pair {row} is {doubt[row]}; it must be 0 or more."
            )
        if doubt.size and not np.isfinite(doubt.max()):
            raise InputError("ConsensusGraph: a doubt is infinite.")
        if np.any(ids[:, 0] == ids[:, 1]):
            row = int(np.flatnonzero(ids[:, 0] == ids[:, 1])[0])
            raise InputError(f"ConsensusGraph: pair {row} joins image {ids[row, 0]} with itself.")
        if np.any(ids[:, 0] > ids[:, 1]):
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

    def __repr__(self) -> str:
        return f"ConsensusGraph: {len(self):,} accepted pairs of {self.n_images:,} images"


def _merge_repeated_pairs(ids: IntArray, doubt: AnyArray) -> tuple[IntArray, AnyArray]:
    """Every pair once: of a repeated one the surest is kept. Without repeats, nothing is touched or reordered."""
    keys = ids[:, 0].astype(np.int64) << 32 | ids[:, 1]
    if np.all(np.diff(keys) > 0):
        return ids, doubt
    in_order = np.sort(keys)
    if np.all(np.diff(in_order) > 0):
        return ids, doubt
    order = np.lexsort((doubt, keys))
    first = np.concatenate([[True], np.diff(keys[order]) > 0])
    kept = order[first]
    return ids[kept], doubt[kept]


def _check_ids(noun: str, given: AnyArray, n_images: int) -> IntArray:
    ids = np.asarray(given)
    if ids.size == 0:
        ids = np.empty((0, 2), np.int32)
    if ids.ndim != 2 or ids.shape[1] != 2 or ids.dtype.kind not in "iu":
        raise InputError(
            f"{noun}: ids must be whole numbers of shape (pairs, 2), got {ids.dtype} {ids.shape}."
        )
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n_images):
        raise InputError(f"{noun}: ids must lie in 0..{n_images - 1}, found {ids.min()}..{ids.max()}.")
    return read_only(ids, np.int32)

"""Exact k-NN search: tiles of the similarity matrix, of which only the best k per row are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from cdp.devices import find_accelerator
from cdp.errors import InputError
from cdp.kernels import kernel, sum_kernel
from cdp.parallel import map_blocks, spans
from cdp.progress import Progress, no_progress
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import AnyArray, FloatArray, IntArray, LongArray

# Fixed, not derived from cores or memory: the rounding of a matrix product depends on its shape, and the same
# images must give the same graph everywhere. A thread needs about 40 MB.
QUERY_ROWS = 1024
GALLERY_ROWS = 8192
# A few more candidates than k are kept and measured again by `similarities`, so that equal images tie exactly. Where
# even the spare ones lie within rounding of the k-th (many copies of an image), the row is searched once more in full.
_SPARE = 4
_ROUNDING = 1e-5

CandidateSearch: TypeAlias = Callable[[IntArray], tuple[FloatArray, IntArray]]
"""From queries to the similarities and ids of the few best images of each, best first."""


def exact_graph(
    embeddings: Embeddings,
    k: int,
    *,
    threads: int = 0,
    device: str = "auto",
    progress: Progress = no_progress,
    step: str = "k-NN graph",
) -> KnnGraph:
    """The k nearest neighbors of every image, by looking at all of them; never an n x n matrix."""
    rows = np.arange(embeddings.n_images, dtype=np.int32)
    neighbors, similarity = search_rows(
        embeddings, rows, k, threads=threads, device=device, progress=progress, step=step
    )
    return KnnGraph(neighbors, similarity, method="exact")


def search_rows(
    embeddings: Embeddings,
    rows: IntArray,
    k: int,
    *,
    threads: int = 0,
    device: str = "auto",
    progress: Progress = no_progress,
    step: str = "k-NN graph",
) -> tuple[IntArray, FloatArray]:
    """Neighbors and similarities of some of the images, each (len(rows), k)."""
    n_images = embeddings.n_images
    keep = min(k + _SPARE, n_images - 1)
    find_candidates: CandidateSearch = partial(_find_candidates, embeddings, keep)
    accelerator = find_accelerator(device)
    if accelerator is not None:
        from cdp.graph.exact_torch import make_candidate_search

        find_candidates, threads = make_candidate_search(embeddings, keep, accelerator), 1
    neighbors = np.empty((len(rows), k), np.int32)
    similarity = np.empty((len(rows), k), np.float32)

    def search(span: tuple[int, int]) -> tuple[int, int]:
        queries = rows[span[0] : span[1]]
        best, ids = find_candidates(queries)
        ends = np.stack([np.repeat(queries, keep), ids.ravel()], axis=1)
        exact = similarities(embeddings, ends).reshape(ids.shape)
        sort_rows(exact, ids)
        if keep < n_images - 1:
            for row in np.flatnonzero(best[:, k - 1] - best[:, keep - 1] < _ROUNDING):
                ids[row, :k], exact[row, :k] = _search_in_full(embeddings, int(queries[row]), k)
        neighbors[span[0] : span[1]] = ids[:, :k]
        similarity[span[0] : span[1]] = exact[:, :k]
        return span

    for _, done in map_blocks(search, spans(len(rows), QUERY_ROWS), threads):
        progress(step, done, len(rows))
    return neighbors, similarity


def _find_candidates(embeddings: Embeddings, keep: int, queries: IntArray) -> tuple[FloatArray, IntArray]:
    """The `keep` best similarities and ids of every query, best first."""
    best = np.full((len(queries), keep), -np.inf, np.float32)
    ids = np.full((len(queries), keep), -1, np.int32)
    query_vectors = embeddings.take(queries)
    tile = np.empty((len(queries), GALLERY_ROWS), np.float32)
    for start, stop in spans(embeddings.n_images, GALLERY_ROWS):
        width = stop - start
        # Ragged last tiles get their own buffer: BLAS writes only into contiguous memory without a copy.
        out = tile if width == GALLERY_ROWS else np.empty((len(queries), width), np.float32)
        np.matmul(query_vectors, embeddings.block(start, stop).T, out=out)
        _keep_best(out, queries, start, best, ids)
    return best, ids


def _search_in_full(embeddings: Embeddings, query: int, k: int) -> tuple[IntArray, FloatArray]:
    """The k nearest neighbors of one image, every similarity measured exactly, ties by id."""
    others = np.delete(np.arange(embeddings.n_images, dtype=np.int32), query)
    similarity = np.concatenate(
        [
            similarities(embeddings, np.stack([np.full(stop - start, query), others[start:stop]], axis=1))
            for start, stop in spans(len(others), GALLERY_ROWS)
        ]
    )
    best = np.lexsort((others, -similarity))[:k]
    return others[best], similarity[best]


def similarities(embeddings: Embeddings, ends: AnyArray) -> FloatArray:
    """Cosine similarity of every pair in `ends` (m, 2), float32 (m,).

    Every pair is measured by the same loop, so a pair has one similarity wherever it is asked for, and copies
    of an image are exactly equally similar to a third.
    """
    similarity = np.empty(len(ends), np.float32)
    if embeddings.source.dtype == np.float32 and _is_tame(embeddings):
        _cosines(embeddings.source, embeddings.scale, ends, similarity)
        return similarity
    rows, position = np.unique(ends, return_inverse=True)
    _cosines(embeddings.take(rows), np.ones(len(rows)), position.reshape(ends.shape), similarity)
    return similarity


def _is_tame(embeddings: Embeddings) -> bool:
    """Whether products of entries stay far from the ends of float32's range before they are scaled."""
    return bool(embeddings.scale.min() > 1e-12 and embeddings.scale.max() < 1e12)


@sum_kernel
def _cosines(source: AnyArray, scale: AnyArray, ends: AnyArray, similarity: FloatArray) -> None:
    dimensions = source.shape[1]
    for row in range(len(ends)):
        first = min(ends[row, 0], ends[row, 1])  # so that (i, j) and (j, i) round alike
        second = max(ends[row, 0], ends[row, 1])
        total = source[first, 0] * source[second, 0]
        for column in range(1, dimensions):
            total += source[first, column] * source[second, column]
        similarity[row] = min(1.0, max(-1.0, total * scale[first] * scale[second]))


@kernel
def _keep_best(tile: FloatArray, queries: IntArray, offset: int, best: FloatArray, ids: IntArray) -> None:
    """Insert a tile's columns into each row's sorted list of the best; the earlier id wins a tie."""
    keep = best.shape[1]
    for row in range(tile.shape[0]):
        itself = queries[row] - offset
        bar = best[row, keep - 1]
        for column in range(tile.shape[1]):
            value = tile[row, column]
            if value > bar and column != itself:
                slot = keep - 1
                while slot > 0 and best[row, slot - 1] < value:
                    best[row, slot] = best[row, slot - 1]
                    ids[row, slot] = ids[row, slot - 1]
                    slot -= 1
                best[row, slot] = value
                ids[row, slot] = offset + column
                bar = best[row, keep - 1]


@kernel
def sort_rows(similarity: FloatArray, ids: IntArray) -> None:
    """Insertion sort of every row: most similar first, ties by id, missing ones (-1) last."""
    for row in range(similarity.shape[0]):
        for start in range(similarity.shape[1]):
            value = similarity[row, start]
            image = ids[row, start]
            slot = start
            while slot > 0 and (
                similarity[row, slot - 1] < value
                or (similarity[row, slot - 1] == value and ids[row, slot - 1] > image)
            ):
                similarity[row, slot] = similarity[row, slot - 1]
                ids[row, slot] = ids[row, slot - 1]
                slot -= 1
            similarity[row, slot] = value
            ids[row, slot] = image


def graph_from_neighbors(embeddings: Embeddings, neighbors: AnyArray, method: str = "given") -> KnnGraph:
    """A graph from neighbor ids alone: self, repeats and pads (-1) are dropped, similarities measured here."""
    n_images, width = neighbors.shape
    if n_images != embeddings.n_images or neighbors.min() < -1 or neighbors.max() >= n_images:
        raise InputError(
            f"Neighbors of {n_images:,} images with ids {neighbors.min()}..{neighbors.max()} do not belong to "
            f"embeddings of {embeddings.n_images:,} images; ids lie in 0..{embeddings.n_images - 1}, -1 = none."
        )
    ids = np.array(neighbors, dtype=np.int32)
    drop_repeats(ids)
    similarity = np.full(ids.shape, -np.inf, np.float32)
    for start, stop in spans(n_images, max(1, 2**22 // width)):
        block = ids[start:stop]
        rows: LongArray = np.repeat(np.arange(start, stop), width)
        present = block.ravel() >= 0
        ends = np.stack([rows[present], block.ravel()[present]], axis=1)
        similarity[start:stop].reshape(-1)[present] = similarities(embeddings, ends)
    sort_rows(similarity, ids)
    used = int((ids >= 0).sum(axis=1).max())
    if used == 0:
        used = 1
    return KnnGraph(ids[:, :used], similarity[:, :used], method=method)


@kernel
def drop_repeats(ids: IntArray) -> None:
    """Replace the image itself and every second mention by -1."""
    for row in range(ids.shape[0]):
        for column in range(ids.shape[1]):
            image = ids[row, column]
            if image == row:
                ids[row, column] = -1
                continue
            for earlier in range(column):
                if ids[row, earlier] == image:
                    ids[row, column] = -1
                    break

"""Exact k-NN search: tiles of the similarity matrix, of which only the best of every row and column are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.knn.pair_similarity import measure_lists, measure_lists_of, similarities
from cdp.knn.topk import (
    drop_repeats,
    insert_rows,
    insert_rows_and_columns,
    merge_lists,
)
from cdp.runtime.devices import find_accelerator
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import AnyArray, FloatArray, IntArray

# A block of embeddings is read once for many tiles; a tile stays in the processor's cache while it is searched. A
# thread needs about 20 MB. Lists of unfinished searches count pairs of blocks: whoever changes this raises the version of graphs.
BLOCK_ROWS = 4096
TILE_ROWS = 512
# A few more candidates than k are kept and measured again by `similarities`, so that neither the rounding of a product,
# which depends on the shape of its tile, nor the order of tiles decides anything. Where even the spare ones lie within
# rounding of the k-th (many copies of an image), the row is searched once more in full.
_SPARE = 4
_ROUNDING = 1e-5

Candidates: TypeAlias = tuple[FloatArray, IntArray]
"""Similarities and ids of the few best images of each row, best first; -inf and -1 where there are fewer."""
CandidateSearch: TypeAlias = Callable[[IntArray], Candidates]
"""From queries to their candidates."""


def search_bytes(embeddings: Embeddings) -> int:
    """Estimate what a thread of a search holds: a block of vectors and a tile of similarities.

    Half of it is counted among what must be held anyway.
    """
    return BLOCK_ROWS * embeddings.dimensions * 4 + 2**22


def exact_graph(
    embeddings: Embeddings,
    k: int,
    *,
    runtime: Runtime,
    step: str = "k-NN graph",
    key: str = "",
) -> KnnGraph:
    """The k nearest neighbors of every image, by looking at all of them; never an n x n matrix.

    The similarity of a pair is computed once and used for both images. Unfinished lists are kept under the `key`, but for those on a GPU.
    """
    n_images = embeddings.n_images
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    keep = min(k + _SPARE, n_images - 1)
    best = runtime.full((n_images, keep), -np.inf, np.float32)
    ids = runtime.full((n_images, keep), -1, np.int32)
    blocks = spans(n_images, BLOCK_ROWS)
    pairs = pairs_of_blocks(len(blocks))
    _join_blocks(embeddings, (best, ids), k, blocks, pairs, runtime, step, key)
    neighbors = runtime.empty((n_images, k), np.int32)
    similarity = runtime.empty((n_images, k), np.float32)

    lists = (
        (np.arange(start, stop, dtype=np.int32), best[start:stop], ids[start:stop]) for start, stop in blocks
    )
    start = 0
    for found, measured in runtime.map(_settle_block, (embeddings, k), lists):
        rows = slice(start, start + len(found))
        neighbors[rows], similarity[rows] = found, measured
        start = rows.stop
    return KnnGraph(runtime.finished(neighbors), runtime.finished(similarity), method="exact")


def search_rows(
    embeddings: Embeddings, rows: IntArray, k: int, *, runtime: Runtime
) -> tuple[IntArray, FloatArray]:
    """Neighbors and similarities of some of the images, each (len(rows), k)."""
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    keep = min(k + _SPARE, embeddings.n_images - 1)
    find_candidates: CandidateSearch = partial(_find_candidates, embeddings, keep)
    accelerator = find_accelerator(runtime.search_device)
    if accelerator is not None:
        from cdp.knn.gpu import make_candidate_search

        find_candidates = make_candidate_search(embeddings, keep, accelerator)
        runtime = runtime.here(threads=1)
    blocks = [rows[start:stop] for start, stop in spans(len(rows), TILE_ROWS)]
    found = list(runtime.map(_search_block, (embeddings, k, find_candidates), blocks))
    return np.concatenate([ids for ids, _ in found]), np.concatenate([values for _, values in found])


def extend_graph(
    graph: KnnGraph,
    embeddings: Embeddings,
    new: tuple[int, int],
    *,
    runtime: Runtime,
    step: str = "new neighbors",
) -> KnnGraph:
    """The graph with new images: their neighbors among all, and the old lists with those of them that are nearer.

    Every new image is compared with every image, old ones are not compared again: with an exact graph the result is that of a
    search among all of them.

    Args:
        graph: of all images, new ones with empty lists (`KnnGraph.make_room`).
        embeddings: of all images.
        new: first row of the new images, and the row after the last.
        runtime: how the search runs.
        step: what progress calls this.
    """
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    n_images, k = graph.n_images, graph.k
    keep = min(k + _SPARE, n_images - 1)
    best, ids = np.full((n_images, keep), -np.inf, np.float32), np.full((n_images, keep), -1, np.int32)
    width = min(k, keep)
    best[:, :width], ids[:, :width] = graph.similarity[:, :width], graph.neighbors[:, :width]
    blocks, pairs = _new_pairs_of_blocks(n_images, new)
    lists = (best, ids)
    _join_blocks(embeddings, lists, width, blocks, pairs, runtime, step)
    is_changed = (ids[:, :width] != graph.neighbors[:, :width]).any(axis=1)
    if width < keep:  # a new image that rounding may have put behind the last neighbor
        is_changed |= np.isfinite(best[:, width]) & (best[:, width - 1] < best[:, width] + _ROUNDING)
    changed = np.flatnonzero(is_changed).astype(np.int32)
    neighbors, similarity = np.array(graph.neighbors), np.array(graph.similarity)

    each = [changed[start:stop] for start, stop in spans(len(changed), BLOCK_ROWS)]
    unsettled = ((rows, best[rows], ids[rows]) for rows in each)
    settled = runtime.map(_settle_block, (embeddings, width), unsettled)
    for rows, (found, measured) in zip(each, settled, strict=True):
        neighbors[rows, :width], similarity[rows, :width] = found, measured
    return KnnGraph(neighbors, similarity, graph.method, graph.recall)


def _join_blocks(
    embeddings: Embeddings,
    lists: Candidates,
    k: int,
    blocks: Sequence[tuple[int, int]],
    pairs: Sequence[tuple[int, int]],
    runtime: Runtime,
    step: str,
    key: str = "",
) -> None:
    """Put into the lists what pairs of blocks have for them, of which k are wanted; each tile serves its rows and its columns."""
    best, ids = lists
    n_images, keep = best.shape
    accelerator = find_accelerator(runtime.search_device)
    if accelerator is not None:
        from cdp.knn.gpu import join_blocks

        best[:], ids[:] = join_blocks(embeddings, lists, blocks, pairs, accelerator, runtime, step)
        return

    checkpoint = runtime.list_checkpoint(key)
    begun = checkpoint.resume(best, ids)

    def with_bars() -> Iterator[_Join]:
        """What the lists hold when a pair's turn comes: only better images can enter them, or be the k-th by rounding."""
        for first, second in pairs[begun:]:
            held = [best[slice(*blocks[block])] for block in dict.fromkeys((first, second))]
            bars = [np.maximum(rows[:, -1], rows[:, k - 1] - _ROUNDING) for rows in held]
            yield _Join(blocks[first], blocks[second], bars)

    found = runtime.map(_join_pair, (embeddings, keep), with_bars())
    for done, ((first, second), joined) in enumerate(zip(pairs[begun:], found, strict=True), begun + 1):
        for block, (values, images) in zip(dict.fromkeys((first, second)), joined, strict=True):
            rows = slice(*blocks[block])
            merge_lists(values, images, best[rows], ids[rows])
        checkpoint.note(done, best, ids)
        runtime.progress(step, done * n_images // len(pairs), n_images)


def _new_pairs_of_blocks(
    n_images: int, new: tuple[int, int]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Blocks that hold only new images or none, and the pairs of them in which one is new, each once."""
    blocks = [
        (start + shift, stop + shift)
        for shift, count in ((0, new[0]), (new[0], new[1] - new[0]), (new[1], n_images - new[1]))
        for start, stop in spans(count, BLOCK_ROWS)
    ]
    is_new = [new[0] <= start < new[1] for start, _ in blocks]
    pairs = [
        (first, second)
        for first in range(len(blocks))
        if is_new[first]
        for second in range(len(blocks))
        if not is_new[second] or first <= second
    ]
    return blocks, pairs


@dataclass(frozen=True, eq=False)
class _Join:
    """Two blocks to compare, or one with itself, and the least similarity that counts for every row of each."""

    first: tuple[int, int]
    second: tuple[int, int]
    bars: list[FloatArray]


def _join_pair(shared: tuple[Embeddings, int], join: _Join) -> list[Candidates]:
    """The images of each block that belong into the lists of the other's; -1 where there are fewer."""
    embeddings, keep = shared
    (start, stop), (other_start, other_stop) = join.first, join.second
    is_one = start == other_start
    gallery = embeddings.block(other_start, other_stop)
    queries = gallery if is_one else embeddings.block(start, stop)
    best = np.repeat(np.concatenate(join.bars)[:, None], keep, axis=1)
    ids = np.full(best.shape, -1, np.int32)
    # Rows of both blocks are side by side here; images are numbered so too, until all tiles are done.
    offset = 0 if is_one else stop - start
    memory = np.empty(TILE_ROWS * BLOCK_ROWS, np.float32)
    for low, high in spans(stop - start, TILE_ROWS):
        left = low if is_one else 0  # of a block with itself, nothing below the diagonal
        shape = high - low, other_stop - other_start - left
        tile = memory[: shape[0] * shape[1]].reshape(shape)
        np.matmul(queries[low:high], gallery[left:].T, out=tile)
        insert_rows_and_columns(tile, low, offset + left, best, ids)
    ids = np.where(ids < 0, -1, ids + np.where(ids < offset, start, other_start - offset)).astype(np.int32)
    return [(best, ids)] if is_one else [(best[:offset], ids[:offset]), (best[offset:], ids[offset:])]


def pairs_of_blocks(n_blocks: int) -> list[tuple[int, int]]:
    """Every unordered pair of blocks once, the first never after the second.

    Pairs that follow one another share no block where that is possible, so that threads seldom wait for each other.
    """
    apart = [
        (first, (first + gap) % n_blocks) for gap in range(n_blocks // 2 + 1) for first in range(n_blocks)
    ]
    return list(dict.fromkeys((min(pair), max(pair)) for pair in apart))


def _settle_block(
    shared: tuple[Embeddings, int], block: tuple[IntArray, FloatArray, IntArray]
) -> tuple[IntArray, FloatArray]:
    embeddings, k = shared
    queries, best, ids = block
    return _settle(embeddings, queries, k, best, ids)


def _search_block(
    shared: tuple[Embeddings, int, CandidateSearch], queries: IntArray
) -> tuple[IntArray, FloatArray]:
    embeddings, k, find_candidates = shared
    return _settle(embeddings, queries, k, *find_candidates(queries))


def _settle(
    embeddings: Embeddings, queries: IntArray, k: int, best: FloatArray, ids: IntArray
) -> tuple[IntArray, FloatArray]:
    """The k nearest neighbors among the candidates: measured by `similarities`, ties by id."""
    keep = ids.shape[1]
    ids, similarity = measure_lists_of(embeddings, queries, ids)
    if keep < embeddings.n_images - 1:
        is_close = np.isfinite(best[:, keep - 1]) & (best[:, k - 1] < best[:, keep - 1] + _ROUNDING)
        for row in np.flatnonzero(is_close):
            ids[row, :k], similarity[row, :k] = _search_in_full(embeddings, int(queries[row]), k)
    return ids[:, :k], similarity[:, :k]


def _find_candidates(embeddings: Embeddings, keep: int, queries: IntArray) -> Candidates:
    """The `keep` best similarities and ids of every query, best first."""
    best = np.full((len(queries), keep), -np.inf, np.float32)
    ids = np.full((len(queries), keep), -1, np.int32)
    query_vectors = embeddings.take(queries)
    memory = np.empty(len(queries) * BLOCK_ROWS, np.float32)
    for start, stop in spans(embeddings.n_images, BLOCK_ROWS):
        tile = memory[: len(queries) * (stop - start)].reshape(len(queries), stop - start)
        np.matmul(query_vectors, embeddings.block(start, stop).T, out=tile)
        insert_rows(tile, queries, start, best, ids)
    return best, ids


def _search_in_full(embeddings: Embeddings, query: int, k: int) -> tuple[IntArray, FloatArray]:
    """The k nearest neighbors of one image, every similarity measured exactly, ties by id."""
    others = np.delete(np.arange(embeddings.n_images, dtype=np.int32), query)
    similarity = np.concatenate(
        [
            similarities(embeddings, np.stack([np.full(stop - start, query), others[start:stop]], axis=1))
            for start, stop in spans(len(others), BLOCK_ROWS)
        ]
    )
    best = np.lexsort((others, -similarity))[:k]
    return others[best], similarity[best]


def graph_from_neighbors(
    embeddings: Embeddings, neighbors: AnyArray, method: str = "given", *, runtime: Runtime
) -> KnnGraph:
    """A graph from neighbor ids alone: self, repeats and pads (-1) are dropped, similarities measured here."""
    n_images = len(neighbors)
    if n_images != embeddings.n_images or neighbors.min() < -1 or neighbors.max() >= n_images:
        raise InputError(
            f"Neighbors of {n_images:,} images with ids {neighbors.min()}..{neighbors.max()} do not belong to "
            f"embeddings of {embeddings.n_images:,} images; ids lie in 0..{embeddings.n_images - 1}, -1 = none.",
            code="neighbors-of-other-embeddings",
            expected=embeddings.n_images,
            found=n_images,
        )
    ids = np.array(neighbors, dtype=np.int32)
    drop_repeats(ids)
    similarity = measure_lists(embeddings, ids, runtime)
    used = max(1, int((ids >= 0).sum(axis=1).max()))
    return KnnGraph(ids[:, :used], similarity[:, :used], method=method)

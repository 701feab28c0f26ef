"""Exact k-NN search: each tile of the similarity matrix updates the top-k lists of its rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.knn.pair_similarity import rerank, rerank_all, similarities
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

# A block of embeddings is read once for many tiles; a tile stays in the processor's cache while it is
# scanned. A thread needs about 20 MB. Checkpoints count pairs of blocks, so changing this raises the version
# of graphs.
BLOCK_ROWS = 4096
TILE_ROWS = 512
# Images that a few queries are compared with at a time; a multiple of the rows of a block.
_SPAN_ROWS = 2**16
# Lists are a little longer than k and re-ranked by `similarities`, so that neither the rounding of a product,
# which depends on the shape of its tile, nor the order of tiles changes a result. Where even the last one is
# within rounding of the k-th (many copies of an image), the row is searched again by `similarities` alone.
_SPARE = 4
_ROUNDING = 1e-5

TopK: TypeAlias = tuple[FloatArray, IntArray]
"""Similarities and ids of the best images of each row, best first; -inf and -1 where there are fewer."""
TopKSearch: TypeAlias = Callable[[IntArray], TopK]
"""From queries to their top-k lists."""


def search_bytes(embeddings: Embeddings) -> int:
    """Estimate the buffer of one thread of a search: a block of vectors and a tile of similarities.

    The second block of vectors is not counted: half of the memory budget is reserved for what
    must be held.
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
    """Search the k nearest neighbors of every image by comparing all pairs, each once.

    Args:
        embeddings: all images.
        k: number of neighbors.
        runtime: how the search runs.
        step: name of this search in progress reports.
        key: under which unfinished lists are checkpointed, except on a GPU; "" = not at all.
    """
    n_images = embeddings.n_images
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    keep = min(k + _SPARE, n_images - 1)
    best = runtime.full((n_images, keep), -np.inf, np.float32)
    ids = runtime.full((n_images, keep), -1, np.int32)
    blocks = spans(n_images, BLOCK_ROWS)
    pairs = block_pairs(len(blocks))
    _compare_blocks(embeddings, (best, ids), k, blocks, pairs, runtime, step, key)
    neighbors = runtime.empty((n_images, k), np.int32)
    similarity = runtime.empty((n_images, k), np.float32)

    lists = (
        (np.arange(start, stop, dtype=np.int32), best[start:stop], ids[start:stop]) for start, stop in blocks
    )
    start = 0
    for found, measured in runtime.map(_rerank_block, (embeddings, k), lists):
        rows = slice(start, start + len(found))
        neighbors[rows], similarity[rows] = found, measured
        start = rows.stop
    return KnnGraph(runtime.finished(neighbors), runtime.finished(similarity), method="exact")


def search_rows(
    embeddings: Embeddings, rows: IntArray, k: int, *, runtime: Runtime
) -> tuple[IntArray, FloatArray]:
    """Search the k nearest neighbors of some images; ids and similarities, each (len(rows), k)."""
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    keep = min(k + _SPARE, embeddings.n_images - 1)
    accelerator = find_accelerator(runtime.search_device)
    blocks = [rows[start:stop] for start, stop in spans(len(rows), TILE_ROWS)]
    if accelerator is not None:
        from cdp.knn.gpu import make_top_k_search

        find_top_k: TopKSearch = make_top_k_search(embeddings, keep, accelerator)
        found = list(runtime.here(threads=1).map(_search_block, (embeddings, k, find_top_k), blocks))
    else:
        # Few queries, many images: these are cut too, so that more than one worker has something to do.
        cut = [(start, stop) for start, stop in spans(embeddings.n_images, _SPAN_ROWS)]
        items = ((queries, span) for queries in blocks for span in cut)
        lists = runtime.map(_find_top_k, (embeddings, keep), items)
        merged = [(queries, *_merge_spans(islice(lists, len(cut)))) for queries in blocks]
        found = list(runtime.map(_rerank_block, (embeddings, k), merged))
    return np.concatenate([ids for ids, _ in found]), np.concatenate([values for _, values in found])


def _merge_spans(found: Iterable[TopK]) -> TopK:
    """Merge the lists of the same queries in several spans of images."""
    lists = iter(found)
    best, ids = next(lists)
    for values, images in lists:
        merge_lists(values, images, best, ids)
    return best, ids


def extend_graph(
    graph: KnnGraph,
    embeddings: Embeddings,
    new: tuple[int, int],
    *,
    runtime: Runtime,
    step: str = "new neighbors",
) -> KnnGraph:
    """Extend a graph by new images: compare each with all images and update both lists.

    Old images are not compared again. If the graph is exact, the result is the exact graph of all images.

    Args:
        graph: of all images, new ones with empty lists (`KnnGraph.insert_rows`).
        embeddings: of all images.
        new: first row of the new images, and the row after the last.
        runtime: how the search runs.
        step: name of this search in progress reports.
    """
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    n_images, k = graph.n_images, graph.k
    keep = min(k + _SPARE, n_images - 1)
    best, ids = np.full((n_images, keep), -np.inf, np.float32), np.full((n_images, keep), -1, np.int32)
    width = min(k, keep)
    best[:, :width], ids[:, :width] = graph.similarity[:, :width], graph.neighbors[:, :width]
    blocks, pairs = _new_block_pairs(n_images, new)
    lists = (best, ids)
    _compare_blocks(embeddings, lists, width, blocks, pairs, runtime, step)
    is_changed = (ids[:, :width] != graph.neighbors[:, :width]).any(axis=1)
    if width < keep:  # rounding may have put a new image behind the last neighbor
        is_changed |= np.isfinite(best[:, width]) & (best[:, width - 1] < best[:, width] + _ROUNDING)
    changed = np.flatnonzero(is_changed).astype(np.int32)
    neighbors, similarity = np.array(graph.neighbors), np.array(graph.similarity)

    each = [changed[start:stop] for start, stop in spans(len(changed), BLOCK_ROWS)]
    unranked = ((rows, best[rows], ids[rows]) for rows in each)
    reranked = runtime.map(_rerank_block, (embeddings, width), unranked)
    for rows, (found, measured) in zip(each, reranked, strict=True):
        neighbors[rows, :width], similarity[rows, :width] = found, measured
    return KnnGraph(neighbors, similarity, graph.method, graph.recall)


def _compare_blocks(
    embeddings: Embeddings,
    lists: TopK,
    k: int,
    blocks: Sequence[tuple[int, int]],
    pairs: Sequence[tuple[int, int]],
    runtime: Runtime,
    step: str,
    key: str = "",
) -> None:
    """Compare pairs of blocks and update the lists, of which the first k are wanted."""
    best, ids = lists
    n_images, keep = best.shape
    accelerator = find_accelerator(runtime.search_device)
    if accelerator is not None:
        from cdp.knn.gpu import compare_blocks

        best[:], ids[:] = compare_blocks(embeddings, lists, blocks, pairs, accelerator, runtime, step)
        return

    checkpoint = runtime.list_checkpoint(key)
    n_resumed = checkpoint.resume(best, ids)

    def with_thresholds() -> Iterator[_BlockPair]:
        """Add current thresholds: only better images can enter a list, or be its k-th within rounding."""
        for first, second in pairs[n_resumed:]:
            lists_of_blocks = [best[slice(*blocks[block])] for block in dict.fromkeys((first, second))]
            thresholds = [np.maximum(rows[:, -1], rows[:, k - 1] - _ROUNDING) for rows in lists_of_blocks]
            yield _BlockPair(blocks[first], blocks[second], thresholds)

    found = runtime.map(_compare_pair, (embeddings, keep), with_thresholds())
    for done, ((first, second), compared) in enumerate(
        zip(pairs[n_resumed:], found, strict=True), n_resumed + 1
    ):
        for block, (values, images) in zip(dict.fromkeys((first, second)), compared, strict=True):
            rows = slice(*blocks[block])
            merge_lists(values, images, best[rows], ids[rows])
        checkpoint.note(done, best, ids)
        runtime.progress(step, done * n_images // len(pairs), n_images)


def _new_block_pairs(
    n_images: int, new: tuple[int, int]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Cut images into blocks of new or of old images only, and list the pairs with a new block, each once."""
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
class _BlockPair:
    """Two blocks to compare, or one with itself, and the threshold of every row of each."""

    first: tuple[int, int]
    second: tuple[int, int]
    thresholds: list[FloatArray]


def _compare_pair(shared: tuple[Embeddings, int], pair: _BlockPair) -> list[TopK]:
    """Find the images of each block that may enter the lists of the other; -1 where there are fewer."""
    embeddings, keep = shared
    (start, stop), (other_start, other_stop) = pair.first, pair.second
    is_one = start == other_start
    others = embeddings.block(other_start, other_stop)
    queries = others if is_one else embeddings.block(start, stop)
    best = np.repeat(np.concatenate(pair.thresholds)[:, None], keep, axis=1)
    ids = np.full(best.shape, -1, np.int32)
    # Rows of both blocks are numbered consecutively here, until all tiles are done.
    offset = 0 if is_one else stop - start
    buffer = np.empty(TILE_ROWS * BLOCK_ROWS, np.float32)
    for low, high in spans(stop - start, TILE_ROWS):
        left = low if is_one else 0  # a block with itself: nothing below the diagonal
        shape = high - low, other_stop - other_start - left
        tile = buffer[: shape[0] * shape[1]].reshape(shape)
        np.matmul(queries[low:high], others[left:].T, out=tile)
        insert_rows_and_columns(tile, low, offset + left, best, ids)
    ids = np.where(ids < 0, -1, ids + np.where(ids < offset, start, other_start - offset)).astype(np.int32)
    return [(best, ids)] if is_one else [(best[:offset], ids[:offset]), (best[offset:], ids[offset:])]


def block_pairs(n_blocks: int) -> list[tuple[int, int]]:
    """List every unordered pair of blocks once, the first never after the second.

    Consecutive pairs share no block where that is possible, so that their thresholds are up to date.
    """
    apart = [
        (first, (first + gap) % n_blocks) for gap in range(n_blocks // 2 + 1) for first in range(n_blocks)
    ]
    return list(dict.fromkeys((min(pair), max(pair)) for pair in apart))


def _rerank_block(
    shared: tuple[Embeddings, int], block: tuple[IntArray, FloatArray, IntArray]
) -> tuple[IntArray, FloatArray]:
    embeddings, k = shared
    queries, best, ids = block
    return _rerank(embeddings, queries, k, best, ids)


def _search_block(
    shared: tuple[Embeddings, int, TopKSearch], queries: IntArray
) -> tuple[IntArray, FloatArray]:
    embeddings, k, find_top_k = shared
    return _rerank(embeddings, queries, k, *find_top_k(queries))


def _rerank(
    embeddings: Embeddings, queries: IntArray, k: int, best: FloatArray, ids: IntArray
) -> tuple[IntArray, FloatArray]:
    """Re-rank lists by `similarities`, ties by id, and cut them to k."""
    keep = ids.shape[1]
    ids, similarity = rerank(embeddings, queries, ids)
    if keep < embeddings.n_images - 1:
        is_close = np.isfinite(best[:, keep - 1]) & (best[:, k - 1] < best[:, keep - 1] + _ROUNDING)
        for row in np.flatnonzero(is_close):
            ids[row, :k], similarity[row, :k] = _search_exhaustively(embeddings, int(queries[row]), k)
    return ids[:, :k], similarity[:, :k]


def _find_top_k(shared: tuple[Embeddings, int], queries_and_span: tuple[IntArray, tuple[int, int]]) -> TopK:
    """Search the `keep` best images of every query, among a span of all."""
    (embeddings, keep), (queries, (first, last)) = shared, queries_and_span
    best = np.full((len(queries), keep), -np.inf, np.float32)
    ids = np.full((len(queries), keep), -1, np.int32)
    query_vectors = embeddings.take(queries)
    buffer = np.empty(len(queries) * BLOCK_ROWS, np.float32)
    for start, stop in spans(last - first, BLOCK_ROWS):
        others = embeddings.block(first + start, first + stop)
        tile = buffer[: len(queries) * len(others)].reshape(len(queries), len(others))
        np.matmul(query_vectors, others.T, out=tile)
        insert_rows(tile, queries, first + start, best, ids)
    return best, ids


def _search_exhaustively(embeddings: Embeddings, query: int, k: int) -> tuple[IntArray, FloatArray]:
    """Search the k nearest neighbors of one image by `similarities` with all others, ties by id."""
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
    """Build a graph from neighbor ids: drop self, repeats and padding (-1), and compute similarities."""
    n_images = len(neighbors)
    if n_images != embeddings.n_images or neighbors.min() < -1 or neighbors.max() >= n_images:
        raise InputError(
            f"neighbors: ids are {neighbors.min()}..{neighbors.max()} for {n_images:,} images, but "
            f"must be in 0..{embeddings.n_images - 1} or -1 for none; give the graph of these "
            "embeddings.",
            code="neighbors-of-other-embeddings",
            expected=embeddings.n_images,
            found=n_images,
        )
    ids = np.array(neighbors, dtype=np.int32)
    drop_repeats(ids)
    similarity = rerank_all(embeddings, ids, runtime)
    used = max(1, int((ids >= 0).sum(axis=1).max()))
    return KnnGraph(ids[:, :used], similarity[:, :used], method=method)

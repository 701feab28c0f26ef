"""Full-dimension similarity of pairs of images, and re-ranking of neighbor lists by it.

One loop measures every pair, so a pair has the same similarity, bit for bit, wherever it is measured.
"""

from __future__ import annotations

import numpy as np

from cdp.blocks import spans
from cdp.knn.simd import prefetch, to_float32
from cdp.knn.topk import sort_rows
from cdp.runtime.kernels import kernel, sum_kernel
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, FloatArray, IntArray

# Embeddings that the loop cannot read as they are (float64) are converted for this many entries at a time.
_CONVERTED_ENTRIES = 2**21
_MIN_CONVERTED_PAIRS = 256
# Pairs are sorted by buckets of 2^5 rows: a few pages of memory.
_ROWS_PER_BUCKET_LOG2 = 5
# Vectors are prefetched this many pairs ahead.
_PREFETCH_AHEAD = 4
# Pairs of lists that are re-ranked at a time.
_RERANKED_PAIRS = 2**18


def similarities(embeddings: Embeddings, pairs: AnyArray) -> FloatArray:
    """Compute the cosine similarity of every pair (m, 2) of rows, float32 (m,).

    Copies of an image are exactly equally similar to a third.
    """
    similarity = np.empty(len(pairs), np.float32)
    source, *more = embeddings.sources
    if source.dtype != np.float64 and source.flags.c_contiguous and _is_in_range(embeddings):
        parts = (source, *(more or (source[:0],)))
        first, rest = (part.view(np.uint16) if part.dtype == np.float16 else part for part in parts)
        _cosines(first, rest, embeddings.scale, pairs, similarity)
        return similarity
    rows_per_block = max(_MIN_CONVERTED_PAIRS, _CONVERTED_ENTRIES // embeddings.dimensions)
    for start, stop in spans(len(pairs), rows_per_block):
        rows, position = np.unique(pairs[start:stop], return_inverse=True)
        places = position.reshape(-1, 2)
        taken = embeddings.take(rows)
        _cosines(taken, taken[:0], np.ones(len(rows)), places, similarity[start:stop])
    return similarity


@kernel
def sort_for_locality(pairs: IntArray, n_images: int) -> tuple[IntArray, IntArray]:
    """Bucket-sort pairs (m, 2) by their second image, and return the position that each had.

    Rows are then read nearly in order: where embeddings are larger than the processor's cache, similarities
    take half the time.
    """
    offsets = np.zeros((n_images >> _ROWS_PER_BUCKET_LOG2) + 2, np.int32)
    for pair in range(len(pairs)):
        offsets[(pairs[pair, 1] >> _ROWS_PER_BUCKET_LOG2) + 1] += 1
    for bucket in range(1, len(offsets)):
        offsets[bucket] += offsets[bucket - 1]
    moved = np.empty_like(pairs)
    origin = np.empty(len(pairs), np.int32)
    for pair in range(len(pairs)):
        bucket = pairs[pair, 1] >> _ROWS_PER_BUCKET_LOG2
        slot = offsets[bucket]
        offsets[bucket] += 1
        moved[slot, 0], moved[slot, 1] = pairs[pair, 0], pairs[pair, 1]
        origin[slot] = pair
    return moved, origin


def _is_in_range(embeddings: Embeddings) -> bool:
    """Return whether products of entries stay far from the ends of float32's range before they are scaled."""
    least, most = embeddings.scale_range
    return least > 1e-12 and most < 1e12


@sum_kernel
def _cosines(
    source: AnyArray, rest: AnyArray, scale: AnyArray, pairs: AnyArray, similarity: FloatArray
) -> None:
    """Compute the cosines of pairs of rows of two arrays, one after the other."""
    n_first, dimensions = source.shape
    for row in range(len(pairs)):
        if row + _PREFETCH_AHEAD < len(pairs):
            _prefetch_row(source, rest, pairs[row + _PREFETCH_AHEAD, 1])
            if pairs[row + _PREFETCH_AHEAD, 0] != pairs[row, 0]:
                _prefetch_row(source, rest, pairs[row + _PREFETCH_AHEAD, 0])
        first = min(pairs[row, 0], pairs[row, 1])  # so that (i, j) and (j, i) round alike
        second = max(pairs[row, 0], pairs[row, 1])
        one = source[first] if first < n_first else rest[first - n_first]
        other = source[second] if second < n_first else rest[second - n_first]
        total = np.float32(0)
        for column in range(dimensions):
            total += to_float32(one[column]) * to_float32(other[column])
        similarity[row] = min(1.0, max(-1.0, total * scale[first] * scale[second]))


@sum_kernel
def _prefetch_row(source: AnyArray, rest: AnyArray, row: int) -> None:
    if row < len(source):
        prefetch(source, np.int64(row))
    else:
        prefetch(rest, np.int64(row - len(source)))


def rerank_all(embeddings: Embeddings, ids: IntArray, runtime: Runtime) -> FloatArray:
    """Re-rank the lists of all images (n, width) in place; return the similarities, float32 (n, width)."""
    n_images, width = ids.shape
    similarity = np.empty(ids.shape, np.float32)
    cut = spans(n_images, rows_per_rerank(width))
    blocks = ((np.arange(start, stop, dtype=np.int32), ids[start:stop]) for start, stop in cut)
    for (start, stop), lists in zip(cut, runtime.map(rerank_block, embeddings, blocks), strict=True):
        ids[start:stop], similarity[start:stop] = lists
    return similarity


def rows_per_rerank(width: int) -> int:
    """Return the number of lists of this width to re-rank at a time."""
    return max(1, _RERANKED_PAIRS // width)


def rerank_block(embeddings: Embeddings, block: tuple[IntArray, IntArray]) -> tuple[IntArray, FloatArray]:
    """`rerank` as a function of a block: images and their lists."""
    return rerank(embeddings, *block)


def rerank(embeddings: Embeddings, rows: IntArray, ids: IntArray) -> tuple[IntArray, FloatArray]:
    """Sort lists of some images by full-dimension similarity, ties by id; return ids and similarities."""
    ids = ids.copy()
    similarity = np.full(ids.shape, -np.inf, np.float32)
    pairs = np.empty((ids.size, 2), np.int32)
    pairs = pairs[: _list_pairs(rows, ids, pairs)]
    _fill_in(similarities(embeddings, pairs), ids, similarity)
    sort_rows(similarity, ids)
    return ids, similarity


@kernel
def _list_pairs(rows: IntArray, ids: IntArray, pairs: IntArray) -> int:
    """Write every image with each one in its list to `pairs`, and return the number of pairs."""
    count = 0
    for row in range(len(rows)):
        for place in range(ids.shape[1]):
            if ids[row, place] >= 0:
                pairs[count, 0], pairs[count, 1] = rows[row], ids[row, place]
                count += 1
    return count


@kernel
def _fill_in(values: FloatArray, ids: IntArray, similarity: FloatArray) -> None:
    count = 0
    for row in range(len(ids)):
        for place in range(ids.shape[1]):
            if ids[row, place] >= 0:
                similarity[row, place] = values[count]
                count += 1

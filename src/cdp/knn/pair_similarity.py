"""How similar pairs of images are, measured in all dimensions by one loop: a pair has one similarity wherever it is asked for."""

from __future__ import annotations

import numpy as np

from cdp.blocks import spans
from cdp.knn.simd import as_float, prefetch
from cdp.knn.topk import sort_rows
from cdp.runtime.kernels import kernel, sum_kernel
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, FloatArray, IntArray

# Embeddings of 64 bits are converted for so many pairs at a time.
_CONVERTED_ENTRIES = 2**21
_FEWEST_PAIRS = 256
# Rows are read in order but for 2^5 of them that lie together.
_READ_TOGETHER = 5
# Vectors are asked for so many pairs before they are measured.
_ASKED_BEFORE = 4
# Pairs of lists that are measured at a time.
_PAIRS_AT_ONCE = 2**18


def similarities(embeddings: Embeddings, ends: AnyArray) -> FloatArray:
    """Cosine similarity of every pair in `ends` (m, 2), float32 (m,).

    Every pair is measured by the same loop, so a pair has one similarity wherever it is asked for, and copies
    of an image are exactly equally similar to a third.
    """
    similarity = np.empty(len(ends), np.float32)
    source = embeddings.source
    if source.dtype != np.float64 and source.flags.c_contiguous and _is_tame(embeddings):
        numbers = source.view(np.uint16) if source.dtype == np.float16 else source
        _cosines(numbers, embeddings.scale, ends, similarity)
        return similarity
    for start, stop in spans(len(ends), max(_FEWEST_PAIRS, _CONVERTED_ENTRIES // embeddings.dimensions)):
        rows, position = np.unique(ends[start:stop], return_inverse=True)
        places = position.reshape(-1, 2)
        _cosines(embeddings.take(rows), np.ones(len(rows)), places, similarity[start:stop])
    return similarity


@kernel
def in_reading_order(ends: IntArray, n_images: int) -> tuple[IntArray, IntArray]:
    """Pairs (m, 2) by the rows of their second ends, more or less, and where each was: far rows are then read one after the other.

    Where embeddings are larger than the processor's cache, measuring many pairs so takes half the time.
    """
    bounds = np.zeros((n_images >> _READ_TOGETHER) + 2, np.int32)
    for pair in range(len(ends)):
        bounds[(ends[pair, 1] >> _READ_TOGETHER) + 1] += 1
    for place in range(1, len(bounds)):
        bounds[place] += bounds[place - 1]
    moved = np.empty_like(ends)
    origin = np.empty(len(ends), np.int32)
    for pair in range(len(ends)):
        place = ends[pair, 1] >> _READ_TOGETHER
        slot = bounds[place]
        bounds[place] += 1
        moved[slot, 0], moved[slot, 1] = ends[pair, 0], ends[pair, 1]
        origin[slot] = pair
    return moved, origin


def _is_tame(embeddings: Embeddings) -> bool:
    """Whether products of entries stay far from the ends of float32's range before they are scaled."""
    return bool(embeddings.scale.min() > 1e-12 and embeddings.scale.max() < 1e12)


@sum_kernel
def _cosines(source: AnyArray, scale: AnyArray, ends: AnyArray, similarity: FloatArray) -> None:
    dimensions = source.shape[1]
    for row in range(len(ends)):
        if row + _ASKED_BEFORE < len(ends):
            prefetch(source, np.int64(ends[row + _ASKED_BEFORE, 1]))
            if ends[row + _ASKED_BEFORE, 0] != ends[row, 0]:
                prefetch(source, np.int64(ends[row + _ASKED_BEFORE, 0]))
        first = min(ends[row, 0], ends[row, 1])  # so that (i, j) and (j, i) round alike
        second = max(ends[row, 0], ends[row, 1])
        total = np.float32(0)
        for column in range(dimensions):
            total += as_float(source[first, column]) * as_float(source[second, column])
        similarity[row] = min(1.0, max(-1.0, total * scale[first] * scale[second]))


def measure_lists(embeddings: Embeddings, ids: IntArray, runtime: Runtime) -> FloatArray:
    """The similarities of every image and those in its list, float32 (n, width); `ids` are sorted, best first."""
    n_images, width = ids.shape
    similarity = np.empty(ids.shape, np.float32)
    cut = spans(n_images, rows_at_once(width))
    blocks = ((np.arange(start, stop, dtype=np.int32), ids[start:stop]) for start, stop in cut)
    for (start, stop), lists in zip(cut, runtime.map(measure_block, embeddings, blocks), strict=True):
        ids[start:stop], similarity[start:stop] = lists
    return similarity


def rows_at_once(width: int) -> int:
    """Of lists of this width, how many are measured at a time."""
    return max(1, _PAIRS_AT_ONCE // width)


def measure_block(embeddings: Embeddings, block: tuple[IntArray, IntArray]) -> tuple[IntArray, FloatArray]:
    """`measure_lists_of` for some images and their lists."""
    return measure_lists_of(embeddings, *block)


def measure_lists_of(embeddings: Embeddings, rows: IntArray, ids: IntArray) -> tuple[IntArray, FloatArray]:
    """The lists of some images, best first, and their similarities."""
    ids = ids.copy()
    similarity = np.full(ids.shape, -np.inf, np.float32)
    ends = np.empty((ids.size, 2), np.int32)
    ends = ends[: _list_pairs(rows, ids, ends)]
    _fill_in(similarities(embeddings, ends), ids, similarity)
    sort_rows(similarity, ids)
    return ids, similarity


@kernel
def _list_pairs(rows: IntArray, ids: IntArray, ends: IntArray) -> int:
    """Write down every image with each in its list, and return how many pairs these are."""
    count = 0
    for row in range(len(rows)):
        for place in range(ids.shape[1]):
            if ids[row, place] >= 0:
                ends[count, 0], ends[count, 1] = rows[row], ids[row, place]
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

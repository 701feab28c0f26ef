"""Inner products of queries with the images of one cell, compared with thresholds in registers.

For short vectors, writing a table of products and scanning it takes as long as computing it. Here six
queries are multiplied with a panel of sixteen images at a time; the 96 products stay in registers and are
compared there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from cdp.knn.simd import (
    INT,
    LONG,
    call_llvm,
    count_trailing_zeros,
    int64,
    llvm_intrinsic,
    load_vector,
    prefetch,
    splat,
)
from cdp.runtime.kernels import kernel
from cdp.types.arrays import FloatArray, IntArray

# Twelve vectors of eight sums fill the sixteen AVX2 registers, together with one column of both sides. Wider
# registers hold them as well; with fewer registers some sums are spilled to memory.
QUERIES = 6
LANES = 16

_LANES = ir.VectorType(ir.FloatType(), LANES)


def pack_panels(vectors: FloatArray) -> FloatArray:
    """Pack vectors (m, d) into panels of sixteen, column by column: float32 (panels, d, 16)."""
    panels = np.empty((-(-len(vectors) // LANES), vectors.shape[1], LANES), np.float32)
    _fill_panels(vectors, panels)
    return panels


@kernel
def _fill_panels(vectors: FloatArray, panels: FloatArray) -> None:
    for panel in range(len(panels)):
        count = min(LANES, len(vectors) - panel * LANES)
        for column in range(vectors.shape[1]):
            for lane in range(LANES):
                panels[panel, column, lane] = vectors[panel * LANES + lane, column] if lane < count else 0


def pad_thresholds(thresholds: FloatArray) -> FloatArray:
    """Pad the thresholds of packed images with infinity, which nothing reaches."""
    padded = np.full(-(-len(thresholds) // LANES) * LANES, np.inf, np.float32)
    padded[: len(thresholds)] = thresholds
    return padded


@kernel
def find_candidates(
    vectors: FloatArray,
    rows: IntArray,
    queries: IntArray,
    query_thresholds: FloatArray,
    panels: FloatArray,
    images: IntArray,
    image_thresholds: FloatArray,
    found: IntArray,
) -> int:
    """Find the pairs of a query and an image that reach the threshold of either.

    Args:
        vectors: float32 (n, d).
        rows: of the queries among the vectors.
        queries: ids of the queries.
        query_thresholds: their thresholds.
        panels: the images' vectors, packed by `pack_panels`.
        images: ids of the images.
        image_thresholds: their thresholds, padded by `pad_thresholds`.
        found: output (3, at least twice the number of pairs): the image whose list the candidate may enter,
            the candidate, and the bits of their similarity.

    Returns:
        The number of candidates.
    """
    some_rows = np.empty(QUERIES, np.int64)
    thresholds = np.empty(QUERIES, np.float32)
    products = np.empty(QUERIES * LANES, np.float32)
    masks = np.empty(QUERIES, np.int32)
    values = found[2].view(np.float32)
    n_found = 0
    for start in range(0, len(queries), QUERIES):
        count = min(QUERIES, len(queries) - start)
        for place in range(QUERIES):
            # The last few queries are padded with one of them, under a threshold that nothing reaches.
            some_rows[place] = rows[start + min(place, count - 1)]
            thresholds[place] = query_thresholds[start + place] if place < count else np.float32(np.inf)
            if start + QUERIES + place < len(queries):
                prefetch(vectors, np.int64(rows[start + QUERIES + place]))
        for panel in range(len(panels)):
            above = _compare(vectors, some_rows, thresholds, panels, image_thresholds, panel, products, masks)
            if above == 0:
                continue
            for place in range(count):
                mask = masks[place]
                while mask != 0:
                    lane = count_trailing_zeros(mask)
                    mask = np.int32(mask & (mask - 1))
                    if panel * LANES + lane >= len(images):
                        break  # padding
                    value = products[place * LANES + lane]
                    query, image = queries[start + place], images[panel * LANES + lane]
                    if value >= thresholds[place]:
                        found[0, n_found], found[1, n_found], values[n_found] = query, image, value
                        n_found += 1
                    if value >= image_thresholds[panel * LANES + lane]:
                        found[0, n_found], found[1, n_found], values[n_found] = image, query, value
                        n_found += 1
    return n_found


@kernel
def find_nearest_centroid(
    vectors: FloatArray,
    rows: IntArray,
    panels: FloatArray,
    first: int,
    n_centroids: int,
    best: FloatArray,
    ids: IntArray,
) -> None:
    """Update the nearest centroid of some rows by those of one coarse cell; of equal ones the first.

    Args:
        vectors: float32 (n, d).
        rows: some of them.
        panels: the centroids, packed by `pack_panels`.
        first: number of the first centroid.
        n_centroids: number of centroids.
        best: the greatest similarity of every vector so far, float32 (n,).
        ids: the centroid that it belongs to.
    """
    some_rows = np.empty(QUERIES, np.int64)
    thresholds = np.empty(QUERIES, np.float32)
    products = np.empty(QUERIES * LANES, np.float32)
    masks = np.empty(QUERIES, np.int32)
    no_thresholds = np.full(len(panels) * LANES, np.float32(np.inf))
    for start in range(0, len(rows), QUERIES):
        count = min(QUERIES, len(rows) - start)
        for place in range(QUERIES):
            some_rows[place] = rows[start + min(place, count - 1)]
            thresholds[place] = best[some_rows[place]] if place < count else np.float32(np.inf)
        for panel in range(len(panels)):
            if _compare(vectors, some_rows, thresholds, panels, no_thresholds, panel, products, masks) == 0:
                continue
            for place in range(count):
                mask = masks[place]
                while mask != 0:
                    lane = count_trailing_zeros(mask)
                    mask = np.int32(mask & (mask - 1))
                    if panel * LANES + lane >= n_centroids:
                        break  # padding
                    value = products[place * LANES + lane]
                    if value > thresholds[place]:
                        thresholds[place] = value
                        ids[some_rows[place]] = first + panel * LANES + lane
        for place in range(count):
            best[some_rows[place]] = thresholds[place]


@llvm_intrinsic
def _compare(
    _: Any,
    vectors: Any,
    rows: Any,
    thresholds: Any,
    panels: Any,
    image_thresholds: Any,
    panel: Any,
    products: Any,
    masks: Any,
) -> Any:
    """Multiply six rows with a panel; if a product reaches a threshold, store all and a mask per row.

    Returns 0 if none does. LLVM, because Numba cannot be told which values stay in registers.
    """

    def generate(context: Any, build: Any, signature: Any, given: Any) -> Any:
        def array(position: int) -> Any:
            return context.make_array(signature.args[position])(context, build, given[position])

        source, row_ids, row_thresholds, packed, lane_thresholds = (
            array(position).data for position in range(5)
        )
        out, bits = array(6).data, array(7).data
        dimensions = build.extract_value(array(0).shape, 1)
        width = build.mul(dimensions, int64(LANES))
        packed = build.gep(packed, [build.mul(given[5], width)])
        lane_thresholds = build.gep(lane_thresholds, [build.mul(given[5], int64(LANES))])
        starts = [
            build.gep(source, [build.mul(build.load(build.gep(row_ids, [int64(row)])), dimensions)])
            for row in range(QUERIES)
        ]
        sums = _add_products(build, starts, packed, dimensions)
        others = load_vector(build, lane_thresholds, int64(0), LANES)
        reached = []
        for row, total in enumerate(sums):
            threshold = splat(build, build.load(build.gep(row_thresholds, [int64(row)])), LANES)
            reached.append(
                build.or_(build.fcmp_ordered(">=", total, threshold), build.fcmp_ordered(">=", total, others))
            )
        any_reached = reached[0]
        for row_mask in reached[1:]:
            any_reached = build.or_(any_reached, row_mask)
        any_reached = _bits(build, any_reached)
        with build.if_then(build.icmp_unsigned("!=", any_reached, ir.Constant(INT, 0)), likely=False):
            for row, (total, row_mask) in enumerate(zip(sums, reached, strict=True)):
                build.store(_bits(build, row_mask), build.gep(bits, [int64(row)]))
                place = build.gep(out, [int64(row * LANES)])
                build.store(total, build.bitcast(place, _LANES.as_pointer()), align=4)
        return any_reached

    return types.int32(vectors, rows, thresholds, panels, image_thresholds, panel, products, masks), generate


def _add_products(build: Any, starts: list[Any], packed: Any, dimensions: Any) -> list[Any]:
    """Emit the loop over dimensions; of each row, a vector of its inner products with the panel."""
    before = build.block
    loop, after = build.append_basic_block("dimensions"), build.append_basic_block("compared")
    build.branch(loop)
    build.position_at_end(loop)
    column = build.phi(LONG)
    column.add_incoming(int64(0), before)
    sums = [build.phi(_LANES) for _ in starts]
    lanes = load_vector(build, packed, build.mul(column, int64(LANES)), LANES)
    added = []
    for total, start in zip(sums, starts, strict=True):
        entry = splat(build, build.load(build.gep(start, [column])), LANES)
        added.append(call_llvm(build, f"llvm.fmuladd.v{LANES}f32", _LANES, [entry, lanes, total]))
        total.add_incoming(ir.Constant(_LANES, [0.0] * LANES), before)
        total.add_incoming(added[-1], loop)
    following = build.add(column, int64(1))
    column.add_incoming(following, loop)
    build.cbranch(build.icmp_signed("<", following, dimensions), loop, after)
    build.position_at_end(after)
    return added


def _bits(build: Any, mask: Any) -> Any:
    return build.zext(build.bitcast(mask, ir.IntType(LANES)), INT)

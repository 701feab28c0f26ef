"""Products of many images with those of one cluster, compared with what counts for each as they are computed.

A table of products that is written, read and looked through takes as long as the products themselves where vectors are short. Here a
few products at a time stay in the processor's registers: six visitors with a panel of sixteen images, whose vectors lie side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from cdp.knn.simd import (
    INT,
    LONG,
    call_instruction,
    in_all_lanes,
    load_lanes,
    long,
    lowest_bit,
    machine_code,
    prefetch,
)
from cdp.runtime.kernels import kernel
from cdp.types.arrays import FloatArray, IntArray

# Twelve vectors of eight sums are what fits into sixteen registers beside one column of both sides (AVX2). Wider registers hold
# them as well; where there are fewer, some sums lie in memory.
VISITORS = 6
LANES = 16

_LANES = ir.VectorType(ir.FloatType(), LANES)


def pack_panels(vectors: FloatArray) -> FloatArray:
    """Vectors (m, d) in panels of sixteen, column by column: float32 (panels, d, 16), zeros after the last."""
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


def pad_bars(bars: FloatArray) -> FloatArray:
    """Bars of images in panels: infinity, which nothing reaches, after the last."""
    padded = np.full(-(-len(bars) // LANES) * LANES, np.inf, np.float32)
    padded[: len(bars)] = bars
    return padded


@kernel
def find_hits(
    vectors: FloatArray,
    rows: IntArray,
    visitors: IntArray,
    visitor_bars: FloatArray,
    panels: FloatArray,
    gallery: IntArray,
    gallery_bars: FloatArray,
    found: IntArray,
) -> int:
    """Write down pairs of a visitor and an image of the gallery that are good enough for the list of one of the two.

    Args:
        vectors: float32 (n, d).
        rows: of the visitors among the vectors.
        visitors: their ids.
        visitor_bars: the least similarity that counts for each.
        panels: the gallery's vectors, as `pack_panels` makes them.
        gallery: ids.
        gallery_bars: as `pad_bars` makes them.
        found: gets the image whose list it is, the other, and the bits of their similarity, (3, at least twice as many as there are
            pairs).

    Returns:
        how many there are.
    """
    some_rows = np.empty(VISITORS, np.int64)
    bars = np.empty(VISITORS, np.float32)
    products = np.empty(VISITORS * LANES, np.float32)
    masks = np.empty(VISITORS, np.int32)
    values = found[2].view(np.float32)
    n_hits = 0
    for start in range(0, len(visitors), VISITORS):
        count = min(VISITORS, len(visitors) - start)
        for place in range(VISITORS):
            # Where the last are fewer than six, one of them stands in for those that are missing; nothing is taken from it.
            some_rows[place] = rows[start + min(place, count - 1)]
            bars[place] = visitor_bars[start + place] if place < count else np.float32(np.inf)
            if start + VISITORS + place < len(visitors):
                prefetch(vectors, np.int64(rows[start + VISITORS + place]))
        for panel in range(len(panels)):
            if _compare(vectors, some_rows, bars, panels, gallery_bars, panel, products, masks) == 0:
                continue
            for place in range(count):
                hits = masks[place]
                while hits != 0:
                    lane = lowest_bit(hits)
                    hits = np.int32(hits & (hits - 1))
                    if panel * LANES + lane >= len(gallery):
                        break  # zeros after the last image
                    value = products[place * LANES + lane]
                    visitor, image = visitors[start + place], gallery[panel * LANES + lane]
                    if value >= bars[place]:
                        found[0, n_hits], found[1, n_hits], values[n_hits] = visitor, image, value
                        n_hits += 1
                    if value >= gallery_bars[panel * LANES + lane]:
                        found[0, n_hits], found[1, n_hits], values[n_hits] = image, visitor, value
                        n_hits += 1
    return n_hits


@kernel
def find_best(
    vectors: FloatArray,
    rows: IntArray,
    panels: FloatArray,
    first: int,
    n_centers: int,
    best: FloatArray,
    ids: IntArray,
) -> None:
    """Put the most similar of some centers in the place of a row's best so far, if it is better; of equal ones the first.

    Args:
        vectors: float32 (n, d).
        rows: some of them.
        panels: the centers, as `pack_panels` makes them.
        first: the number of the first center; the others follow.
        n_centers: how many there are.
        best: the greatest similarity of every vector so far, float32 (n,).
        ids: the center that it belongs to.
    """
    some_rows = np.empty(VISITORS, np.int64)
    bars = np.empty(VISITORS, np.float32)
    products = np.empty(VISITORS * LANES, np.float32)
    masks = np.empty(VISITORS, np.int32)
    no_bars = np.full(len(panels) * LANES, np.float32(np.inf))
    for start in range(0, len(rows), VISITORS):
        count = min(VISITORS, len(rows) - start)
        for place in range(VISITORS):
            some_rows[place] = rows[start + min(place, count - 1)]
            bars[place] = best[some_rows[place]] if place < count else np.float32(np.inf)
        for panel in range(len(panels)):
            if _compare(vectors, some_rows, bars, panels, no_bars, panel, products, masks) == 0:
                continue
            for place in range(count):
                hits = masks[place]
                while hits != 0:
                    lane = lowest_bit(hits)
                    hits = np.int32(hits & (hits - 1))
                    if panel * LANES + lane >= n_centers:
                        break  # zeros after the last center
                    value = products[place * LANES + lane]
                    if value > bars[place]:
                        bars[place] = value
                        ids[some_rows[place]] = first + panel * LANES + lane
        for place in range(count):
            best[some_rows[place]] = bars[place]


@machine_code
def _compare(
    _: Any,
    vectors: Any,
    rows: Any,
    bars: Any,
    panels: Any,
    gallery_bars: Any,
    panel: Any,
    products: Any,
    masks: Any,
) -> Any:
    """Multiply six rows with a panel; if any product reaches a bar, write all of them down, and per row which ones do, as bits.

    Returns 0 if none does. There is no other way to tell the compiler which numbers stay in registers.
    """

    def write_code(context: Any, build: Any, signature: Any, given: Any) -> Any:
        def array(position: int) -> Any:
            return context.make_array(signature.args[position])(context, build, given[position])

        source, row_ids, row_bars, packed, lane_bars = (array(position).data for position in range(5))
        out, bits = array(6).data, array(7).data
        dimensions = build.extract_value(array(0).shape, 1)
        width = build.mul(dimensions, long(LANES))
        packed = build.gep(packed, [build.mul(given[5], width)])
        lane_bars = build.gep(lane_bars, [build.mul(given[5], long(LANES))])
        starts = [
            build.gep(source, [build.mul(build.load(build.gep(row_ids, [long(row)])), dimensions)])
            for row in range(VISITORS)
        ]
        sums = _add_products(build, starts, packed, dimensions)
        others = load_lanes(build, lane_bars, long(0), LANES)
        hits = []
        for row, total in enumerate(sums):
            bar = in_all_lanes(build, build.load(build.gep(row_bars, [long(row)])), LANES)
            hits.append(
                build.or_(build.fcmp_ordered(">=", total, bar), build.fcmp_ordered(">=", total, others))
            )
        any_hit = hits[0]
        for hit in hits[1:]:
            any_hit = build.or_(any_hit, hit)
        any_hit = _bits(build, any_hit)
        with build.if_then(build.icmp_unsigned("!=", any_hit, ir.Constant(INT, 0)), likely=False):
            for row, (total, hit) in enumerate(zip(sums, hits, strict=True)):
                build.store(_bits(build, hit), build.gep(bits, [long(row)]))
                place = build.gep(out, [long(row * LANES)])
                build.store(total, build.bitcast(place, _LANES.as_pointer()), align=4)
        return any_hit

    return types.int32(vectors, rows, bars, panels, gallery_bars, panel, products, masks), write_code


def _add_products(build: Any, starts: list[Any], packed: Any, dimensions: Any) -> list[Any]:
    """The loop over dimensions: of each row a vector with the sums of products of the panel's images."""
    before = build.block
    loop, after = build.append_basic_block("dimensions"), build.append_basic_block("compared")
    build.branch(loop)
    build.position_at_end(loop)
    column = build.phi(LONG)
    column.add_incoming(long(0), before)
    sums = [build.phi(_LANES) for _ in starts]
    lanes = load_lanes(build, packed, build.mul(column, long(LANES)), LANES)
    added = []
    for total, start in zip(sums, starts, strict=True):
        entry = in_all_lanes(build, build.load(build.gep(start, [column])), LANES)
        added.append(call_instruction(build, f"llvm.fmuladd.v{LANES}f32", _LANES, [entry, lanes, total]))
        total.add_incoming(ir.Constant(_LANES, [0.0] * LANES), before)
        total.add_incoming(added[-1], loop)
    following = build.add(column, long(1))
    column.add_incoming(following, loop)
    build.cbranch(build.icmp_signed("<", following, dimensions), loop, after)
    build.position_at_end(after)
    return added


def _bits(build: Any, truths: Any) -> Any:
    return build.zext(build.bitcast(truths, ir.IntType(LANES)), INT)

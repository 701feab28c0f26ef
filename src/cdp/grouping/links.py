"""Average linkage, the part that counts: links between groups, and joining the two groups with the best one.

A link holds all pairs between two groups: their number and the sum of their probabilities. Probabilities are rounded to multiples of
2⁻³⁶, so that sums of up to 2¹⁷ of them are exact whatever the order; and a link takes the place of the first of its pairs. So what is joined does not depend on
how many of the pairs were put together before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.blocks import spans
from cdp.grouping.indexed_heap import LinkHeap, heap_of, pop, put, take_out
from cdp.grouping.union_find import UnionFind, may_unite, unite
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.runtime.spill import SpillFiles
from cdp.types import ConsensusGraph
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, IntArray, LongArray

_UNIT = 2.0**-36
_ROWS = 2**20


class Links(NamedTuple):
    """What lies between groups, each named after one of its images, in the order of the links' first pairs."""

    ids: IntArray  # the two groups
    total: DoubleArray  # sum of the probabilities of the pairs between them
    present: IntArray  # how many they are


def link_images(graph: ConsensusGraph, runtime: Runtime) -> Links:
    """Every pair as a link of two images, each a group of its own."""
    total, present = runtime.empty(len(graph), np.float64), runtime.full(len(graph), 1, np.int32)
    for start, stop in spans(len(graph), _ROWS):
        probability = np.maximum(1 - graph.doubt[start:stop].astype(np.float64), 0)
        total[start:stop] = np.rint(probability / _UNIT) * _UNIT
    return Links(graph.ids, runtime.finished(total), runtime.finished(present))


def link_groups(links: Links, group: IntArray, runtime: Runtime) -> Links:
    """The links that are left between groups; links between the same two are one.

    Args:
        links: between smaller groups.
        group: int32 (n,), the group of every image.
        runtime: holds the links.
    """
    between = sum(
        int(np.count_nonzero(np.diff(group[links.ids[start:stop]], axis=1)))
        for start, stop in spans(len(links.ids), _ROWS)
    )
    kept = Links(
        runtime.empty((between, 2), np.int32),
        runtime.empty(between, np.float64),
        runtime.empty(between, np.int32),
    )
    n_links = _gather(links, group, runtime.full(_slots_for(between), -1, np.int32), kept)
    return Links(*(runtime.finished(runtime.copy(column[:n_links])) for column in kept))


def may_lead_above(bar: float, links: Links, runtime: Runtime) -> BoolArray:
    """Whether every link can ever be a part of one with a mean above the bar: a mean over several is at most that of the best of them."""
    found: BoolArray = runtime.empty(len(links.ids), np.bool_)
    for start, stop in spans(len(links.ids), _ROWS):
        found[start:stop] = links.total[start:stop] / links.present[start:stop] > bar
    return runtime.finished(found)


def join_groups(
    links: Links,
    size: IntArray,
    state: UnionFind,
    k: int,
    thresholds: tuple[float, float],
    max_size: int,
    spill: SpillFiles,
) -> tuple[IntArray, IntArray, DoubleArray]:
    """Merge the two groups with the best mean, again and again.

    Args:
        links: between groups.
        size: int32 (n,), images in every group.
        state: what may be united; it is changed.
        k: neighbors per image.
        thresholds: no height is above the first; groups are merged while their mean is above the second.
        max_size: largest number of images in a group.
        spill: holds large arrays.

    Returns:
        For every merge in order: the group kept and the group gone, int32, named after an image; and the height,
        float64, the smallest best mean so far (`Dendrogram`).
    """
    n_links, n_images = len(links.ids), len(size)
    chained = _Chained(
        ends=spill.copy(links.ids),
        total=spill.copy(links.total),
        present=spill.copy(links.present),
        mean=spill.empty(n_links, np.float64),
        table=spill.full(_slots_for(n_links), -1, np.int32),
        first=np.full(n_images, -1, np.int64),
        following=spill.full(2 * n_links, 0, np.uint32),
        n_links=np.zeros(n_images, np.int64),
    )
    order, place = spill.empty(n_links, np.int32), spill.full(n_links, -1, np.int32)
    return _join_groups(chained, order, place, size.copy(), state, k, *thresholds, max_size)


def _slots_for(n_links: int) -> int:
    """Of a hash table: a power of two that leaves a third of it free."""
    return 1 << max(3, (3 * n_links // 2 - 1).bit_length())


@kernel
def _mean(total: float, present: int, one: int, other: int, k: int) -> float:
    possible = float(one) * float(other)
    if one + other - 1 > k:
        possible *= k / (one + other - 1)
    return total / max(possible, float(present))


@kernel
def _slot(one: int, other: int, mask: int) -> int:
    low = np.uint64(min(one, other))
    high = np.uint64(max(one, other))
    mixed = (low * np.uint64(0x9E3779B97F4A7C15)) ^ (high * np.uint64(0xC2B2AE3D27D4EB4F))
    slot: int = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))  # type: ignore[assignment]
    return slot


@kernel
def _look_up(table: IntArray, ends: IntArray, one: int, other: int) -> int:
    """Where in the table the link of two groups lies, or the free slot where it belongs."""
    mask = len(table) - 1
    slot = _slot(one, other, mask)
    while table[slot] >= 0:
        link = table[slot]
        if (ends[link, 0] == one and ends[link, 1] == other) or (
            ends[link, 0] == other and ends[link, 1] == one
        ):
            break
        slot = (slot + 1) & mask
    return slot


@kernel
def _remove(table: IntArray, ends: IntArray, slot: int) -> None:
    """Free a slot and move up what had to make way for it, so that the table never fills with deleted entries."""
    mask = len(table) - 1
    hole = slot
    slot = (hole + 1) & mask
    while table[slot] >= 0:
        home = _slot(ends[table[slot], 0], ends[table[slot], 1], mask)
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            table[hole] = table[slot]
            hole = slot
        slot = (slot + 1) & mask
    table[hole] = -1


class _Chained(NamedTuple):
    """Links as they are while groups are joined; there are as many as pairs, so each array is as small as can be."""

    ends: IntArray  # the two groups
    total: DoubleArray
    present: IntArray  # 0 = the link is gone
    mean: DoubleArray  # when it was last put into the heap
    table: IntArray  # hash table: two groups -> link
    first: LongArray  # the links of every group as a chain: entry 2 * link + side hangs in that of ends[link, side]
    following: AnyArray  # one more than the next entry; 0 = none
    n_links: LongArray


@kernel
def _gather(links: Links, group: IntArray, table: IntArray, kept: Links) -> int:
    """Put links between the same two groups together; returns how many are kept."""
    n_kept = 0
    for link in range(len(links.ids)):
        one = group[links.ids[link, 0]]
        other = group[links.ids[link, 1]]
        if one == other:
            continue
        slot = _look_up(table, kept.ids, one, other)
        held = table[slot]
        if held < 0:
            table[slot] = n_kept
            kept.ids[n_kept, 0] = one
            kept.ids[n_kept, 1] = other
            kept.total[n_kept] = links.total[link]
            kept.present[n_kept] = links.present[link]
            n_kept += 1
        else:
            kept.total[held] += links.total[link]
            kept.present[held] += links.present[link]
    return n_kept


@kernel
def _chain(links: _Chained, size: IntArray, k: int) -> None:
    """Hang every link into the table and the chains of its two groups, with its mean."""
    for link in range(len(links.ends)):
        one, other = links.ends[link]
        links.mean[link] = _mean(links.total[link], links.present[link], size[one], size[other], k)
        links.table[_look_up(links.table, links.ends, one, other)] = link
        for side in range(2):
            group = links.ends[link, side]
            links.following[2 * link + side] = links.first[group] + 1
            links.first[group] = 2 * link + side
            links.n_links[group] += 1


@kernel
def _move_link(links: _Chained, entry: int, gone: int, kept: int) -> tuple[int, int]:
    """Hand a link of the group that is gone to the one that is kept.

    Returns the link that now holds its pairs, the first if there were two, and the other one, or -1.
    """
    link, side = entry // 2, entry % 2
    third = links.ends[link, 1 - side]
    _remove(links.table, links.ends, _look_up(links.table, links.ends, gone, third))
    slot = _look_up(links.table, links.ends, kept, third)
    other: int = links.table[slot]
    if 0 <= other < link:
        links.total[other] += links.total[link]
        links.present[other] += links.present[link]
        links.present[link] = 0
        return other, link
    if other >= 0:
        links.total[link] += links.total[other]
        links.present[link] += links.present[other]
        links.present[other] = 0
    else:
        links.n_links[kept] += 1
    links.ends[link, side] = kept
    links.table[slot] = link
    links.following[entry] = links.first[kept] + 1
    links.first[kept] = entry
    return link, other


@kernel
def _hand_over(
    links: _Chained, heap: LinkHeap, size: IntArray, gone: int, kept: int, k: int, join_above: float
) -> None:
    """Give all links of the group that is gone to the one that is kept, with the means they then have."""
    entry = links.first[gone]
    while entry >= 0:
        link = entry // 2
        after = np.int64(links.following[entry]) - 1
        if links.present[link] > 0:
            moved, merged = _move_link(links, entry, gone, kept)
            third = links.ends[moved, 0] + links.ends[moved, 1] - kept
            links.mean[moved] = _mean(links.total[moved], links.present[moved], size[kept], size[third], k)
            if links.mean[moved] > join_above:
                put(heap, moved)
            else:
                take_out(heap, moved)
            if merged >= 0:
                take_out(heap, merged)
        entry = after


@kernel
def _join_groups(
    links: _Chained,
    order: IntArray,
    place: IntArray,
    size: IntArray,
    state: UnionFind,
    k: int,
    highest: float,
    join_above: float,
    max_size: int,
) -> tuple[IntArray, IntArray, DoubleArray]:
    """When two groups are joined, the links of the one with fewer are handed to the other, so a link moves O(log m) times.

    A mean that fell since it was put into the heap, because a group grew, is put back when it comes up.
    """
    _chain(links, size, k)
    joined = np.empty((2, len(size)), np.int32)
    heights = np.empty(len(size), np.float64)
    n_joined, height = 0, highest
    heap = heap_of(links.mean, links.total, join_above, order, place)
    while heap.n_links[0] > 0:
        link = pop(heap)
        kept = links.ends[link, 0]
        gone = links.ends[link, 1]
        mean = _mean(links.total[link], links.present[link], size[kept], size[gone], k)
        if mean < links.mean[link]:
            links.mean[link] = mean
            if mean > join_above:
                put(heap, link)
            continue
        if not may_unite(state, kept, gone, max_size):
            continue
        if links.n_links[kept] < links.n_links[gone]:
            kept, gone = gone, kept
        _remove(links.table, links.ends, _look_up(links.table, links.ends, kept, gone))
        links.present[link] = 0
        unite(state, kept, gone)
        height = min(height, links.mean[link])
        joined[0, n_joined] = kept
        joined[1, n_joined] = gone
        heights[n_joined] = height
        n_joined += 1
        size[kept] += size[gone]
        _hand_over(links, heap, size, gone, kept, k, join_above)
    return joined[0, :n_joined].copy(), joined[1, :n_joined].copy(), heights[:n_joined].copy()

"""Links between groups, and best-first merging: the inner loop of average linkage.

A link holds all pairs between two groups as their number and the sum of their probabilities. Probabilities
are rounded to multiples of 2⁻³⁶, so that sums of up to 2¹⁷ of them are exact in any order, and a link has the
number of its first pair, which decides ties. Merges therefore do not depend on how many pairs were put
together before.

Where the score of a pair is a dot product plus a constant, as a z-score is, the mean over *all* pairs between
two groups follows from the sums of their vectors, whether the pairs are links or not:

    mean(A, B) = offset + (sum of A) . (sum of B) / (|A| |B|)

A link then waits in the heap with the mean of its known pairs, which are neighbors and so nearly always more
similar than the others. When it comes up, the mean of all pairs replaces that of the known ones; if it is
lower, the link is put back. Merges come out in the order of dense average linkage, in O(m log m) for m links.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.grouping.indexed_heap import LinkHeap, heap_of, pop, put, remove
from cdp.grouping.union_find import UnionFind, may_unite, unite
from cdp.runtime.kernels import kernel, sum_kernel
from cdp.runtime.runtime import Runtime
from cdp.runtime.spill import SpillFiles
from cdp.types import ConsensusGraph
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, FloatArray, IntArray, LongArray

_UNIT = 2.0**-36

_KNOWN_PAIRS_ONLY = 0
"""As k: the mean of a link is that of its known pairs, however few they are."""

_MAX_PRESENT = 2**30
"""Cap on the number of pairs of a link with an exact mean, so that two such links can be combined."""


class GroupSums(NamedTuple):
    """Sums of vectors over groups; the score of two images is their dot product plus `offset`."""

    vectors: FloatArray  # (n, d), one row per image or group; changed as groups are merged
    offset: float


class Links(NamedTuple):
    """Links between groups, in the order of their first pairs; groups are named after one of their images."""

    ids: IntArray  # (m, 2), the two groups
    total: DoubleArray  # (m,), sum of the probabilities of the pairs between them
    present: IntArray  # (m,), number of these pairs


def link_images(graph: ConsensusGraph, runtime: Runtime) -> Links:
    """Make every pair a link between two images, each a group of its own."""
    total, present = runtime.empty(len(graph), np.float64), runtime.full(len(graph), 1, np.int32)
    for start, stop in spans(len(graph), PAIRS_PER_BLOCK):
        probability = np.maximum(1 - graph.doubt[start:stop].astype(np.float64), 0)
        total[start:stop] = np.rint(probability / _UNIT) * _UNIT
    return Links(graph.ids, runtime.finished(total), runtime.finished(present))


def link_groups(links: Links, group: IntArray, runtime: Runtime) -> Links:
    """Combine links between the same two groups, and drop those inside a group.

    Args:
        links: between smaller groups.
        group: int32 (n,), the group of every image.
        runtime: memory budget and spill files.
    """
    between = sum(
        int(np.count_nonzero(np.diff(group[links.ids[start:stop]], axis=1)))
        for start, stop in spans(len(links.ids), PAIRS_PER_BLOCK)
    )
    kept = Links(
        runtime.empty((between, 2), np.int32),
        runtime.empty(between, np.float64),
        runtime.empty(between, np.int32),
    )
    n_links = _gather(links, group, runtime.full(_slots_for(between), -1, np.int32), kept)
    return Links(*(runtime.finished(runtime.copy(column[:n_links])) for column in kept))


def may_lead_above(threshold: float, links: Links, runtime: Runtime) -> BoolArray:
    """Return which links can become part of one with a mean above the threshold, bool (m,).

    The mean over several links is at most that of the best of them.
    """
    found: BoolArray = runtime.empty(len(links.ids), np.bool_)
    for start, stop in spans(len(links.ids), PAIRS_PER_BLOCK):
        found[start:stop] = links.total[start:stop] / links.present[start:stop] > threshold
    return runtime.finished(found)


def merge_best_first(
    links: Links,
    size: IntArray,
    state: UnionFind,
    k: int,
    thresholds: tuple[float, float],
    max_cluster_size: int,
    spill: SpillFiles,
    sums: GroupSums | None = None,
) -> tuple[IntArray, IntArray, DoubleArray]:
    """Merge the two groups with the best mean, again and again.

    Args:
        links: between groups.
        size: int32 (n,), images in every group.
        state: which groups may be united; it is changed.
        k: neighbors per image.
        thresholds: no height is above the first; groups are merged while their mean is above the second.
        max_cluster_size: largest number of images in a group.
        spill: holds large arrays.
        sums: where given, means are over all pairs between two groups, and `k` is not used.

    Returns:
        For every merge in order: the group kept and the group gone, int32, named after an image; and the
        height, float64, the smallest best mean so far (`Dendrogram`).
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
    if sums is None:
        sums = GroupSums(np.empty((0, 0), np.float32), 0.0)
    else:
        k = _KNOWN_PAIRS_ONLY
    return _merge_best_first(
        chained, order, place, size.copy(), state, k, *thresholds, max_cluster_size, sums
    )


def _slots_for(n_links: int) -> int:
    """Return the size of a hash table: a power of two that leaves at least a third free."""
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
    """Return the slot of the link between two groups, or the free slot where it belongs."""
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
def _free_slot(table: IntArray, ends: IntArray, slot: int) -> None:
    """Free a slot by backward shift: later entries move up, so the table never fills with deleted ones."""
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
    """Links while groups are merged. There are as many as pairs, so every dtype is as small as possible."""

    ends: IntArray  # the two groups
    total: DoubleArray
    present: IntArray  # 0 = the link is gone
    mean: DoubleArray  # at the time of the last insertion into the heap
    table: IntArray  # hash table: two groups -> link
    # The links of every group as a linked list: entry 2 * link + side is in the list of ends[link, side].
    first: LongArray
    following: AnyArray  # next entry plus one; 0 = none
    n_links: LongArray


@kernel
def _gather(links: Links, group: IntArray, table: IntArray, kept: Links) -> int:
    """Combine links between the same two groups, and return how many are left."""
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
    """Enter every link into the hash table and the lists of its two groups, and compute its mean."""
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
    """Move a link of the group that is gone to the one that is kept.

    Returns:
        The link that holds the pairs now, the first one if there were two; and the other one, or -1.
    """
    link, side = entry // 2, entry % 2
    third = links.ends[link, 1 - side]
    _free_slot(links.table, links.ends, _look_up(links.table, links.ends, gone, third))
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
def _move_all_links(
    links: _Chained, heap: LinkHeap, size: IntArray, gone: int, kept: int, k: int, threshold: float
) -> None:
    """Move all links of the group that is gone to the one that is kept, and update their means."""
    entry = links.first[gone]
    while entry >= 0:
        link = entry // 2
        after = np.int64(links.following[entry]) - 1
        if links.present[link] > 0:
            moved, merged = _move_link(links, entry, gone, kept)
            third = links.ends[moved, 0] + links.ends[moved, 1] - kept
            links.mean[moved] = _mean(links.total[moved], links.present[moved], size[kept], size[third], k)
            if links.mean[moved] > threshold:
                put(heap, moved)
            else:
                remove(heap, moved)
            if merged >= 0:
                remove(heap, merged)
        entry = after


@kernel
def _complete(links: _Chained, link: int, size: IntArray, sums: GroupSums) -> None:
    """Replace the pairs of a link by all pairs between its two groups."""
    one, other = links.ends[link]
    n_pairs = np.int64(size[one]) * np.int64(size[other])
    present = n_pairs if n_pairs < _MAX_PRESENT else _MAX_PRESENT
    if links.present[link] < present:
        links.present[link] = present
        mean = sums.offset + dot(sums.vectors[one], sums.vectors[other]) / n_pairs
        links.total[link] = mean * links.present[link]


@kernel
def score_pairs(ids: IntArray, vectors: FloatArray, offset: float, score: DoubleArray) -> None:
    """Write the score of every pair: its dot product plus the offset."""
    for row in range(len(ids)):
        score[row] = offset + dot(vectors[ids[row, 0]], vectors[ids[row, 1]])


@sum_kernel
def dot(one: FloatArray, other: FloatArray) -> float:
    """Compute the dot product of two float32 vectors in float64."""
    total = 0.0
    for column in range(len(one)):
        total += np.float64(one[column]) * np.float64(other[column])
    return total


@kernel
def _merge_best_first(
    links: _Chained,
    order: IntArray,
    place: IntArray,
    size: IntArray,
    state: UnionFind,
    k: int,
    highest: float,
    threshold: float,
    max_cluster_size: int,
    sums: GroupSums,
) -> tuple[IntArray, IntArray, DoubleArray]:
    """Merge groups best first; see `merge_best_first`.

    The links of the group with fewer are moved to the other, so a link moves O(log m) times. A mean can only
    fall when a group grows without gaining pairs; such a link is put back when it comes up.
    """
    _chain(links, size, k)
    merged = np.empty((2, len(size)), np.int32)
    heights = np.empty(len(size), np.float64)
    n_merges, height = 0, highest
    heap = heap_of(links.mean, links.total, threshold, order, place)
    while heap.n_links[0] > 0:
        link = pop(heap)
        kept = links.ends[link, 0]
        gone = links.ends[link, 1]
        if len(sums.vectors) > 0:
            _complete(links, link, size, sums)
        mean = _mean(links.total[link], links.present[link], size[kept], size[gone], k)
        if mean < links.mean[link]:
            links.mean[link] = mean
            if mean > threshold:
                put(heap, link)
            continue
        if not may_unite(state, kept, gone, max_cluster_size):
            continue
        if links.n_links[kept] < links.n_links[gone]:
            kept, gone = gone, kept
        _free_slot(links.table, links.ends, _look_up(links.table, links.ends, kept, gone))
        links.present[link] = 0
        unite(state, kept, gone)
        height = min(height, mean)
        merged[0, n_merges] = kept
        merged[1, n_merges] = gone
        heights[n_merges] = height
        n_merges += 1
        size[kept] += size[gone]
        for column in range(sums.vectors.shape[1]):
            sums.vectors[kept, column] += sums.vectors[gone, column]
        _move_all_links(links, heap, size, gone, kept, k, threshold)
    return merged[0, :n_merges].copy(), merged[1, :n_merges].copy(), heights[:n_merges].copy()

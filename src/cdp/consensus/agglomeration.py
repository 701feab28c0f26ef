"""Agglomeration: an alternative to Algorithm 1 that one false pair cannot mislead. Not in the paper.

Connected components join two groups if a single pair between them is accepted. Here every image starts alone, and
again and again the two groups are joined whose pairs are the most probable *on average*, as long as that mean is
greater than a bar. A pair that is not a candidate counts as probability 0: had the two images been one identity,
they would probably have been neighbors. So a single false pair between two groups of ten is one hundredth of the
evidence.

A k-NN graph cannot hold all pairs of a large group, though: an image in a group of s has k of its s - 1 pairs at
most. The mean is therefore taken over the pairs that it can hold,

    mean(A, B) = sum of the probabilities between A and B / max(present, |A| |B| min(1, k / (|A| + |B| - 1)))

where `present` is the number of pairs between A and B that are in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cdp.consensus.constraints import Constraints, confirm, leave_out
from cdp.consensus.link_heap import LinkHeap, heap_of, pop, put, take_out
from cdp.consensus.propagation import measure_ties, number_groups
from cdp.consensus.separation import Separation, may_unite, point_to_roots, separate, unite
from cdp.consensus.sharded_components import Batch, group_batches
from cdp.engine import Engine
from cdp.errors import InputError
from cdp.kernels import kernel
from cdp.scratch import Scratch
from cdp.types import ConsensusGraph, Fate, Labels
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, IntArray, LongArray

# So few pairs and what lies between their groups fit into the processor's cache: they take half the time.
_PAIRS_AT_ONCE = 2**14


def agglomerate(
    graph: ConsensusGraph,
    k: int,
    join_above: float = 0.3,
    max_size: int = 600,
    constraints: Constraints | None = None,
    *,
    engine: Engine | None = None,
    scratch: Scratch | None = None,
) -> Labels:
    """Pseudo-identities: the groups with the most probable pairs between them are joined, the best two first.

    Deviation: the paper takes connected components (`propagate`). Here pairs of a low probability count too, so the
    graph should hold all candidates that are not as good as impossible; `CDP(grouping="average")` keeps those above
    0.01.

    Equal means are settled by the larger sum, then by the order of the pairs; only there does the result depend on
    how the images are numbered.

    Args:
        graph: pairs and their doubts.
        k: neighbors per image in the graph that the pairs come from.
        join_above: two groups are joined while the mean probability between them is greater.
        max_size: no pseudo-identity gets more images than this.
        constraints: what groups must keep, free of contradictions (`check_constraints`); two groups with images that must be
            together are one.
        engine: components of pairs above `join_above` are handed out to its workers, as many at a time as fit its memory
            budget; under constraints all pairs are one task.
        scratch: where pairs lie meanwhile.

    Returns:
        Labels. An image that stays alone has the fate `NO_ACCEPTED_PAIR` if none of its pairs is more probable than
        `join_above`, else `ISOLATED`. The confidence is that of `propagate`, over the pairs above `join_above`.
    """
    return next(agglomerate_at(graph, k, [join_above], max_size, constraints, engine=engine, scratch=scratch))


def agglomerate_at(
    graph: ConsensusGraph,
    k: int,
    bars: Sequence[float],
    max_size: int = 600,
    constraints: Constraints | None = None,
    *,
    engine: Engine | None = None,
    scratch: Scratch | None = None,
) -> Iterator[Labels]:
    """`agglomerate` with each bar as `join_above`, from the highest to the lowest, at the price of the lowest alone.

    The best two groups are joined first, so what is joined above a bar does not depend on how much lower one goes on.
    """
    for join_above in bars:
        if not 0 < join_above < 1:
            raise InputError(
                f"agglomerate(join_above={join_above}): a mean probability between 0 and 1, both excluded."
            )
    if max_size < 2:
        raise InputError(f"agglomerate(max_size={max_size}): a pseudo-identity has at least 2 images.")
    if k < 1:
        raise InputError(f"agglomerate(k={k}): at least 1 neighbor per image is needed.")
    falling = sorted(bars, reverse=True)
    settings = _Settings(k, np.array(falling, np.float64), max_size, constraints)
    if constraints is not None:
        # As judged, confirmed or not: a confirmed pair of two groups must not pull its two images out of them.
        graph = leave_out(graph, constraints)
        joins = [_find_joins(settings, Batch(None, graph))]
    else:
        # A mean above the bar has a pair above it.
        found = group_batches(
            _find_joins,
            settings,
            graph,
            falling[-1],
            engine=engine,
            scratch=scratch,
            most_pairs=_PAIRS_AT_ONCE,
        )
        joins = [one for _, one in found]
    state = separate(graph.n_images, constraints)
    for number, join_above in enumerate(falling):
        for of_batch in joins:
            _unite_all(state, *of_batch[number])
        yield _as_labels(graph, state.parent.copy(), join_above, constraints)


@dataclass(frozen=True, eq=False)
class _Settings:
    """How groups are joined; bars from high to low."""

    k: int
    bars: DoubleArray
    max_size: int
    constraints: Constraints | None


def _find_joins(settings: _Settings, batch: Batch) -> list[tuple[IntArray, IntArray]]:
    """For every bar, which groups are kept and which are gone in the joins that it allows after the one before."""
    graph = batch.graph
    state = separate(graph.n_images, settings.constraints)
    gone, kept, ends = _agglomerate(
        graph.ids, graph.doubt, state, settings.k, settings.bars, settings.max_size
    )
    if batch.images is not None:
        gone, kept = batch.images[gone], batch.images[kept]
    return [(kept[start:stop], gone[start:stop]) for start, stop in zip([0, *ends], ends, strict=False)]


def _as_labels(
    graph: ConsensusGraph, group: IntArray, join_above: float, constraints: Constraints | None
) -> Labels:
    size = np.bincount(group, minlength=graph.n_images)[group]
    vouched = np.zeros(graph.n_images, np.bool_)
    _vouch(graph.ids, graph.doubt, join_above, vouched)
    alone = np.where(vouched, Fate.ISOLATED, Fate.NO_ACCEPTED_PAIR)
    fate = np.where(size > 1, Fate.LABELED, alone).astype(np.uint8)
    labels = number_groups(group, fate)
    if constraints is not None:
        graph = confirm(graph, constraints)
    below = np.full(graph.n_images, 1 - join_above)
    return Labels(labels, fate, measure_ties(graph.ids, graph.doubt, labels, below))


@kernel
def _vouch(ids: IntArray, doubt: AnyArray, join_above: float, vouched: BoolArray) -> None:
    """Mark the images that have a pair above the bar."""
    for row in range(len(ids)):
        if max(1.0 - np.float64(doubt[row]), 0.0) > join_above:
            vouched[ids[row, 0]] = True
            vouched[ids[row, 1]] = True


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


class _Links(NamedTuple):
    """What lies between groups: for every link its two groups, the sum and the number of its pairs' probabilities.

    There are as many as pairs, so each array is as small as can be.
    """

    ends: IntArray  # the two groups; a group is named after one of its images
    total: DoubleArray
    present: IntArray  # 0 = the link is gone
    mean: DoubleArray  # when it was last put into the heap
    table: IntArray  # hash table: two groups -> link
    first: LongArray  # the links of every group as a chain: entry 2 * link + side hangs in that of ends[link, side]
    following: AnyArray  # one more than the next entry; 0 = none
    n_links: LongArray


@kernel
def _link_images(ids: IntArray, doubt: AnyArray, n_images: int) -> _Links:
    """Every pair as a link of two images, each a group of its own."""
    n_pairs = len(ids)
    n_slots = 8
    while 2 * n_slots < 3 * n_pairs:
        n_slots *= 2
    total = np.empty(n_pairs, np.float64)
    ends = ids.copy()
    table = np.full(n_slots, -1, np.int32)
    first = np.full(n_images, -1, np.int64)
    following = np.zeros(2 * n_pairs, np.uint32)
    n_links = np.zeros(n_images, np.int64)
    for link in range(n_pairs):
        total[link] = max(1.0 - np.float64(doubt[link]), 0.0)
        table[_look_up(table, ends, ends[link, 0], ends[link, 1])] = link
        for side in range(2):
            image = ends[link, side]
            following[2 * link + side] = first[image] + 1
            first[image] = 2 * link + side
            n_links[image] += 1
    present = np.ones(n_pairs, np.int32)
    return _Links(ends, total, present, total.copy(), table, first, following, n_links)


@kernel
def _move_link(links: _Links, entry: int, gone: int, kept: int) -> int:
    """Hand a link of the group that is gone to the one that is kept; returns the link that now holds its pairs."""
    link, side = entry // 2, entry % 2
    third = links.ends[link, 1 - side]
    _remove(links.table, links.ends, _look_up(links.table, links.ends, gone, third))
    slot = _look_up(links.table, links.ends, kept, third)
    other: int = links.table[slot]
    if other >= 0:
        links.total[other] += links.total[link]
        links.present[other] += links.present[link]
        links.present[link] = 0
        return other
    links.ends[link, side] = kept
    links.table[slot] = link
    links.following[entry] = links.first[kept] + 1
    links.first[kept] = entry
    links.n_links[kept] += 1
    return link


@kernel
def _hand_over(
    links: _Links, heap: LinkHeap, size: IntArray, gone: int, kept: int, k: int, join_above: float
) -> None:
    """Give all links of the group that is gone to the one that is kept, with the means they then have."""
    entry = links.first[gone]
    while entry >= 0:
        link = entry // 2
        after = np.int64(links.following[entry]) - 1
        if links.present[link] > 0:
            moved = _move_link(links, entry, gone, kept)
            third = links.ends[moved, 0] + links.ends[moved, 1] - kept
            links.mean[moved] = _mean(links.total[moved], links.present[moved], size[kept], size[third], k)
            if links.mean[moved] > join_above:
                put(heap, moved)
            else:
                take_out(heap, moved)
            if moved != link:
                take_out(heap, link)
        entry = after


@kernel
def _agglomerate(
    ids: IntArray,
    doubt: AnyArray,
    state: Separation,
    k: int,
    bars: DoubleArray,
    max_size: int,
) -> tuple[IntArray, IntArray, LongArray]:
    """Which group is gone in every join and which is kept, each called after an image; and how many joins each falling bar allows.

    When two groups are joined, the links of the one with fewer are handed to the other, so a link moves O(log m)
    times. A mean that fell since it was put into the heap, because a group grew, is put back when it comes up.
    """
    links = _link_images(ids, doubt, len(state.parent))
    size = np.ones(len(state.parent), np.int32)
    joined = np.empty((2, len(size)), np.int32)
    ends = np.zeros(len(bars), np.int64)
    n_joined, n_passed = 0, 0
    join_above = bars[-1]
    heap = heap_of(links.mean, links.total, join_above)
    while heap.n_links[0] > 0:
        link = pop(heap)
        while links.mean[link] <= bars[n_passed]:  # never the last bar: nothing below it is in the heap
            ends[n_passed] = n_joined
            n_passed += 1
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
        joined[0, n_joined] = gone
        joined[1, n_joined] = kept
        n_joined += 1
        size[kept] += size[gone]
        _hand_over(links, heap, size, gone, kept, k, join_above)
    ends[n_passed:] = n_joined
    return joined[0, :n_joined].copy(), joined[1, :n_joined].copy(), ends


@kernel
def _unite_all(state: Separation, kept: IntArray, gone: IntArray) -> None:
    for join in range(len(kept)):
        unite(state, kept[join], gone[join])
    point_to_roots(state.parent)

"""Indexed binary heap: links between groups by descending mean; a link whose mean changes is moved.

It takes eight bytes per link besides the means. `heapq` would hold three numbers per entry, and another entry
whenever a mean changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.runtime.kernels import kernel
from cdp.types.arrays import DoubleArray, IntArray


class LinkHeap(NamedTuple):
    """Links ordered by mean, then by total, each the largest first, then by number."""

    mean: DoubleArray  # of every link, in the heap or not; changed only right before `put`
    total: DoubleArray
    order: IntArray  # the heap: link numbers
    place: IntArray  # index of every link in `order`, -1 = not in the heap
    n_links: IntArray  # (1,), number of links in the heap


@kernel
def heap_of(
    mean: DoubleArray, total: DoubleArray, threshold: float, order: IntArray, place: IntArray
) -> LinkHeap:
    """Build a heap of the links with a mean above a threshold.

    Args:
        mean: float64 (m,).
        total: float64 (m,).
        threshold: links with a mean up to this are left out.
        order: int32 (m,), to be filled.
        place: int32 (m,), all -1.
    """
    count = 0
    for link in range(len(mean)):
        if mean[link] > threshold:
            order[count] = link
            place[link] = count
            count += 1
    heap = LinkHeap(mean, total, order, place, np.full(1, count, np.int32))
    for at in range(count // 2 - 1, -1, -1):
        _sink(heap, at)
    return heap


@kernel
def pop(heap: LinkHeap) -> int:
    """Remove and return the best link of a heap that is not empty."""
    link: int = heap.order[0]
    remove(heap, link)
    return link


@kernel
def put(heap: LinkHeap, link: int) -> None:
    """Insert a link, or move it after its mean or total changed."""
    if heap.place[link] < 0:
        heap.order[heap.n_links[0]] = link
        heap.place[link] = heap.n_links[0]
        heap.n_links[0] += 1
    _rise(heap, heap.place[link])
    _sink(heap, heap.place[link])


@kernel
def remove(heap: LinkHeap, link: int) -> None:
    """Remove a link if it is in the heap."""
    at = heap.place[link]
    if at < 0:
        return
    heap.place[link] = -1
    heap.n_links[0] -= 1
    last = heap.order[heap.n_links[0]]
    if last != link:
        heap.order[at] = last
        heap.place[last] = at
        put(heap, last)


@kernel
def _is_before(heap: LinkHeap, one: int, other: int) -> bool:
    if heap.mean[one] != heap.mean[other]:
        return bool(heap.mean[one] > heap.mean[other])
    if heap.total[one] != heap.total[other]:
        return bool(heap.total[one] > heap.total[other])
    return one < other


@kernel
def _rise(heap: LinkHeap, at: int) -> None:
    link = heap.order[at]
    while at > 0:
        above = (at - 1) // 2
        if not _is_before(heap, link, heap.order[above]):
            break
        heap.order[at] = heap.order[above]
        heap.place[heap.order[at]] = at
        at = above
    heap.order[at] = link
    heap.place[link] = at


@kernel
def _sink(heap: LinkHeap, at: int) -> None:
    link = heap.order[at]
    count = heap.n_links[0]
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and _is_before(heap, heap.order[below + 1], heap.order[below]):
            below += 1
        if not _is_before(heap, heap.order[below], link):
            break
        heap.order[at] = heap.order[below]
        heap.place[heap.order[at]] = at
        at = below
    heap.order[at] = link
    heap.place[link] = at

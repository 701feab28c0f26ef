"""Images that must be together and images that must not be, while groups are being joined.

Images that must be together are united from the start. Whatever is joined later unites all that either side is united with, and is
refused where that would put two images together that cannot be, or two names, or too many images. So what is joined is transitive:
if an image of one group must be with an image of another, the two groups are one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.runtime.kernels import kernel
from cdp.types.arrays import IntArray, LongArray
from cdp.types.constraints import Constraints


class Separation(NamedTuple):
    """Who is united with whom, and what is known of everyone who is."""

    parent: IntArray  # union-find; the rest is of the roots
    size: IntArray
    name: IntArray  # number of the name, -1 = none
    cannot: IntArray  # pairs that cannot be together
    first: (
        LongArray  # those of every root as a chain: entry 2 * pair + side hangs in that of cannot[pair, side]
    )
    last: LongArray
    following: LongArray
    n_pairs: LongArray


def separate(n_images: int, constraints: Constraints | None) -> Separation:
    """Where joining starts: everybody alone, but for those that must be together."""
    if constraints is None:
        none = np.empty((0, 2), np.int32)
        return _start(none, none, np.full(n_images, -1, np.int32))
    constraints = constraints.among(n_images)
    return _start(constraints.links.astype(np.int32), constraints.cannot, constraints.name_of)


@kernel
def _start(links: IntArray, cannot: IntArray, name: IntArray) -> Separation:
    n_images = len(name)
    first = np.full(n_images, -1, np.int64)
    last = np.full(n_images, -1, np.int64)
    following = np.full(2 * len(cannot), -1, np.int64)
    n_pairs = np.zeros(n_images, np.int64)
    for entry in range(2 * len(cannot)):
        image = cannot[entry // 2, entry % 2]
        following[entry] = first[image]
        first[image] = entry
        if last[image] < 0:
            last[image] = entry
        n_pairs[image] += 1
    parent = np.arange(n_images).astype(np.int32)
    size = np.ones(n_images, np.int32)
    start = Separation(parent, size, name.copy(), cannot, first, last, following, n_pairs)
    for row in range(len(links)):
        unite(start, links[row, 0], links[row, 1])
    return start


@kernel
def find_root(parent: IntArray, node: int) -> int:
    """The image that stands for all that a node is united with."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@kernel
def point_to_roots(parent: IntArray) -> None:
    """Let every image point to the one that stands for all that it is united with."""
    for image in range(len(parent)):
        parent[image] = find_root(parent, image)


@kernel
def may_unite(state: Separation, one: int, other: int, max_size: int) -> bool:
    """Whether two images may be together, with all that they are united with."""
    one = find_root(state.parent, one)
    other = find_root(state.parent, other)
    if one == other:
        return True
    if state.size[one] + state.size[other] > max_size:
        return False
    if state.name[one] != state.name[other] and min(state.name[one], state.name[other]) >= 0:
        return False
    if state.n_pairs[one] > state.n_pairs[other]:
        one, other = other, one
    entry = state.first[one]
    while entry >= 0:
        if find_root(state.parent, state.cannot[entry // 2, 1 - entry % 2]) == other:
            return False
        entry = state.following[entry]
    return True


@kernel
def unite(state: Separation, one: int, other: int) -> None:
    """Put two images together, with all that they are united with."""
    one = find_root(state.parent, one)
    other = find_root(state.parent, other)
    if one == other:
        return
    if state.size[one] < state.size[other]:
        one, other = other, one
    state.parent[other] = one
    state.size[one] += state.size[other]
    state.name[one] = max(state.name[one], state.name[other])
    if state.n_pairs[other] > 0:
        if state.n_pairs[one] > 0:
            state.following[state.last[one]] = state.first[other]
        else:
            state.first[one] = state.first[other]
        state.last[one] = state.last[other]
        state.n_pairs[one] += state.n_pairs[other]

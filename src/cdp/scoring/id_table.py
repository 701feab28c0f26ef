"""Hash tables from a few images to their places, for loops: no loop needs an array of all images."""

from __future__ import annotations

import numpy as np

from cdp.runtime.kernels import kernel
from cdp.types.arrays import IntArray

_MULTIPLIER = np.uint32(2654435769)


@kernel
def make_table(n_keys: int) -> tuple[IntArray, IntArray]:
    """Make a table for at most `n_keys` images: keys, -1 where a slot is free, and their places.

    At most half of the slots are used, so that few are looked at.
    """
    size = 4
    while size < 4 * n_keys:
        size *= 2
    return np.full(size, np.int32(-1)), np.empty(size, np.int32)


@kernel
def find_slot(keys: IntArray, image: int) -> int:
    """Find the slot of an image, or the free one where it belongs."""
    mask = np.uint64(len(keys) - 1)
    slot = ((np.uint64(image) * np.uint64(2654435769)) >> np.uint64(16)) & mask
    while keys[slot] != image and keys[slot] >= 0:
        slot = (slot + np.uint64(1)) & mask
    return slot  # type: ignore[return-value]  # an index without a sign needs no check

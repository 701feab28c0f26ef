"""Numbers drawn from names: every random choice is a function of the seed and of what it is for.

So nothing random has to be saved in a checkpoint, and a rerun draws the same numbers.
"""

from __future__ import annotations

import hashlib


def seed_for(*purpose: int | str) -> int:
    """A seed in 0..2**63-1 for this purpose, drawn from all its parts."""
    digest = hashlib.sha256(repr(purpose).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1

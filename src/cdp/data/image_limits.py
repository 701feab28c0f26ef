"""How large an image may be: one ceiling on its pixels, from which that on its file follows."""

from __future__ import annotations

import os

from cdp.errors import InputError

VARIABLE = "CDP_MAX_PIXELS"
MAX_PIXELS = 100_000_000
# What an uncompressed image with transparency takes; compressed ones take less.
_BYTES_PER_PIXEL = 4
_HEADERS = 2**20


def max_pixels() -> int:
    """The most pixels that an image may have: $CDP_MAX_PIXELS, or 100 million.

    An image beyond it is an error and never changed, so no result depends on this setting; and in the environment it
    holds for every process that decodes.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        return MAX_PIXELS
    if not (given.isascii() and given.isdigit() and 0 < len(given.lstrip("0")) <= 15):
        raise InputError(f"{VARIABLE}={given}: a number of pixels is needed, for example {MAX_PIXELS}.")
    return int(given)


def refuse_many_pixels(width: int, height: int) -> None:
    """Refuse an image that would take too much memory once decoded."""
    if width * height > max_pixels():
        raise InputError(
            f"the image has {width:,} x {height:,} pixels, more than {max_pixels():,} in all; make it smaller, leave it "
            f"out, or set {VARIABLE} to what is allowed."
        )


def refuse_many_bytes(n_bytes: int, what: str) -> None:
    """Refuse a file or an entry of an archive that is longer than any image of allowed size."""
    allowed = _BYTES_PER_PIXEL * max_pixels() + _HEADERS
    if n_bytes > allowed:
        raise InputError(
            f"{what}: {n_bytes:,} bytes, more than an image of {max_pixels():,} pixels takes; leave it out, or set "
            f"{VARIABLE} to what is allowed."
        )

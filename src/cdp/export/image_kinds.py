"""Which kind of image some bytes are."""

from __future__ import annotations

import os

from cdp.data.image_folders import is_image

_STARTS = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG\r\n\x1a\n": ".png",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\x00": ".tif",
    b"MM\x00*": ".tif",
}


def image_suffix(name: str, data: bytes) -> str:
    """Return the suffix of an image's file: its own, else by its first bytes, else `.jpg`."""
    if is_image(name):
        return os.path.splitext(name)[1].lower()
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for start, suffix in _STARTS.items() if data.startswith(start)), ".jpg")

"""Which kind of image some bytes are."""

from __future__ import annotations

import io
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
    """The ending of an image's file: its own if it is that of an image, else what its first bytes say, else `.jpg`."""
    if is_image(name):
        return os.path.splitext(name)[1].lower()
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for start, suffix in _STARTS.items() if data.startswith(start)), ".jpg")


def image_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) from the header; None if it says nothing."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as opened:
            return opened.height, opened.width
    except Exception:  # Decoders raise almost anything on damaged bytes; the bytes are copied all the same.
        return None

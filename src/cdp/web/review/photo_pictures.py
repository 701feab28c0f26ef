"""Photos of faces with a box around the face, made on demand."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdp.data.images import Source, decode
from cdp.errors import InputError
from cdp.faces.face_tables import FaceRow

if TYPE_CHECKING:
    from PIL import Image

LARGEST = 1400
# A photo may take hundreds of megabytes once it is decoded.
_DECODERS = 2
_LIGHT, _DARK = (255, 196, 0), (20, 23, 27)


class PhotoPictures:
    """JPEG pictures of photos by row of a face.

    Only photos that the collection itself lists are ever opened: a request names a row, never a path.
    """

    def __init__(self, faces: Sequence[FaceRow | None]) -> None:
        self._faces, self._source = faces, Source("/")
        self._decoders = threading.Semaphore(_DECODERS)

    def picture(self, row: int) -> bytes:
        """Return the photo of a face, at most 1,400 pixels wide and high, with a box around the face.

        Raises:
            InputError: there is no such row, it has no photo, or the photo cannot be read.
        """
        from PIL import Image

        face = self._faces[row] if 0 <= row < len(self._faces) else None
        if face is None:
            raise InputError(f"There is no photo of row {row}.", code="photo-missing", row=row)
        with self._decoders:
            # Decoded and encoded again, so that nothing but pixels of a photo ever leaves.
            photo = Image.fromarray(decode(self._source.read(face.photo)))
            before = photo.size
            photo.thumbnail((LARGEST, LARGEST))
            box = scaled_box(face.box, before, photo.size)
            if box is not None:
                _draw_box(photo, box)
            stream = io.BytesIO()
            photo.save(stream, "JPEG", quality=88)
        return stream.getvalue()


def scaled_box(
    box: Sequence[float], before: tuple[int, int], after: tuple[int, int]
) -> tuple[int, int, int, int] | None:
    """Return a box on a picture that was made smaller, inside the picture; None if there is none.

    Args:
        box: left, top, right, bottom; NaN = none.
        before: width and height that the box was measured in.
        after: width and height of the picture.
    """
    if any(math.isnan(one) for one in box):
        return None
    wide, high = after[0] / before[0], after[1] / before[1]
    left, top, right, bottom = box[0] * wide, box[1] * high, box[2] * wide, box[3] * high
    left, right = (round(min(max(one, 0), after[0] - 1)) for one in (left, right))
    top, bottom = (round(min(max(one, 0), after[1] - 1)) for one in (top, bottom))
    return (left, top, right, bottom) if left < right and top < bottom else None


def _draw_box(photo: Image.Image, box: tuple[int, int, int, int]) -> None:
    """Draw a bright line between two dark ones, visible on every photo."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(photo)
    line = max(2, round(max(photo.size) / 250))
    left, top, right, bottom = box
    edge = (left - line - 1, top - line - 1, right + line + 1, bottom + line + 1)
    draw.rectangle(edge, outline=_DARK, width=line + 2)
    draw.rectangle((left - line, top - line, right + line, bottom + line), outline=_LIGHT, width=line)

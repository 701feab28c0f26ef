"""Pictures of a collection's images, made when they are asked for and kept in memory for a while."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Sequence

from cdp.data.images import Source, decode
from cdp.errors import InputError

THUMBNAIL = 96
LARGE = 1400
_CACHE_BYTES = 96_000_000
# An image may take hundreds of megabytes once it is decoded, so not every thread may do it at once.
_DECODERS = 3


class Pictures:
    """JPEG pictures by row; the ones used last are kept, up to a number of bytes.

    Only what the collection itself lists is ever opened: a request names a row, never a path.
    """

    def __init__(self, paths: Sequence[str] | None, root: str = ".", cache_bytes: int = _CACHE_BYTES) -> None:
        self._paths, self._source = paths, Source(root)
        self._most, self._used = cache_bytes, 0
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._lock, self._decoders = threading.Lock(), threading.Semaphore(_DECODERS)

    def thumbnail(self, row: int) -> bytes:
        """A small square picture of a row.

        Raises:
            InputError: there is no such row, or the image cannot be read.
        """
        with self._lock:
            if row in self._cache:
                self._cache.move_to_end(row)
                return self._cache[row]
        made = self._jpeg(row, THUMBNAIL)
        with self._lock:
            if row not in self._cache:
                self._cache[row] = made
                self._used += len(made)
            while self._used > self._most and len(self._cache) > 1:
                self._used -= len(self._cache.popitem(last=False)[1])
        return made

    def large(self, row: int) -> bytes:
        """The whole picture of a row, at most 1,400 pixels wide and high.

        Raises:
            InputError: there is no such row, or the image cannot be read.
        """
        return self._jpeg(row, None)

    def _jpeg(self, row: int, size: int | None) -> bytes:
        from PIL import Image

        if self._paths is None or not 0 <= row < len(self._paths):
            raise InputError(f"There is no picture of row {row}.")
        with self._decoders:
            # Decoded and encoded again, so that nothing but pixels of an image ever leaves.
            picture = Image.fromarray(decode(self._source.read(self._paths[row]), size=size))
            if size is None:
                picture.thumbnail((LARGE, LARGE))
            stream = io.BytesIO()
            picture.save(stream, "JPEG", quality=80 if size else 90)
        return stream.getvalue()

    def can_show(self, n_tried: int = 12) -> bool:
        """Whether at least one of a few images can be read."""
        if self._paths is None or not len(self._paths):
            return False
        step = max(1, len(self._paths) // n_tried)
        for row in range(0, len(self._paths), step):
            try:
                self.thumbnail(row)
            except InputError:
                continue
            return True
        return False

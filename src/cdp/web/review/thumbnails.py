"""Pictures of a collection's images, made on demand and cached in memory and on disk."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cdp.data.images import Source, decode
from cdp.errors import InputError
from cdp.storage.files import write_bytes

THUMBNAIL = 96
LARGE = 1400
_CACHE_BYTES = 96_000_000
_DISK_BYTES = 1_000_000_000
# An image may take hundreds of megabytes once it is decoded, so not every thread may do it at once.
_DECODERS = 3


class Pictures:
    """JPEG pictures by row; the ones used last are kept, up to a number of bytes.

    Only what the collection itself lists is ever opened: a request names a row, never a path.
    """

    def __init__(
        self,
        paths: Sequence[str] | None,
        root: str = ".",
        cache_bytes: int = _CACHE_BYTES,
        kept_in: Path | None = None,
        disk_bytes: int = _DISK_BYTES,
    ) -> None:
        self._paths, self._source, self._root = paths, Source(root), Path(root)
        self._disk = None if kept_in is None else _Shelf(kept_in, disk_bytes)
        self._most, self._used = cache_bytes, 0
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._lock, self._decoders = threading.Lock(), threading.Semaphore(_DECODERS)

    def thumbnail(self, row: int) -> bytes:
        """Return a small square picture of a row.

        Raises:
            InputError: there is no such row, or the image cannot be read.
        """
        with self._lock:
            if row in self._cache:
                self._cache.move_to_end(row)
                return self._cache[row]
        made = self._kept(row)
        with self._lock:
            if row not in self._cache:
                self._cache[row] = made
                self._used += len(made)
            while self._used > self._most and len(self._cache) > 1:
                self._used -= len(self._cache.popitem(last=False)[1])
        return made

    def _kept(self, row: int) -> bytes:
        """Return the thumbnail from disk, or made now and kept there."""
        if self._disk is None or self._paths is None or not 0 <= row < len(self._paths):
            return self._jpeg(row, THUMBNAIL)
        key = self._key(self._paths[row])
        found = self._disk.get(key)
        if found is None:
            found = self._jpeg(row, THUMBNAIL)
            self._disk.put(key, found)
        return found

    def _key(self, path: str) -> str:
        """Return a name for the picture of a path as its file is now."""
        file = self._root / path.partition("!")[0]
        stamp: tuple[int, ...] = ()
        with suppress(OSError):
            about = file.stat()
            stamp = (about.st_size, about.st_mtime_ns)
        return hashlib.sha256(f"{file}\0{path}\0{stamp}\0{THUMBNAIL}".encode()).hexdigest()[:32]

    def large(self, row: int) -> bytes:
        """Return the whole picture of a row, at most 1,400 pixels wide and high.

        Raises:
            InputError: there is no such row, or the image cannot be read.
        """
        return self._jpeg(row, None)

    def _jpeg(self, row: int, size: int | None) -> bytes:
        from PIL import Image

        if self._paths is None or not 0 <= row < len(self._paths):
            raise InputError(f"There is no picture of row {row}.", code="picture-missing", row=row)
        with self._decoders:
            # Decoded and encoded again, so that nothing but pixels of an image ever leaves.
            picture = Image.fromarray(decode(self._source.read(self._paths[row]), size=size))
            if size is None:
                picture.thumbnail((LARGE, LARGE))
            stream = io.BytesIO()
            picture.save(stream, "JPEG", quality=80 if size else 90)
        return stream.getvalue()

    def can_show(self, n_tried: int = 12) -> bool:
        """Return whether at least one of a few images can be read."""
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


_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"


class _Shelf:
    """Files by key, up to a number of bytes: the least recently read go first, disk errors are ignored."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._used = -1
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """Return what is kept under a key; a file that was damaged since is as good as none."""
        file = self._folder / key[:2] / key
        try:
            content = file.read_bytes()
        except OSError:
            return None
        if not (content.startswith(_JPEG_START) and content.endswith(_JPEG_END)):
            return None
        with suppress(OSError):
            os.utime(file)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep something."""
        with self._lock, suppress(OSError):
            if self._used < 0:
                self._used = sum(size for _, size, _ in self._files())
            place = self._folder / key[:2]
            place.mkdir(parents=True, exist_ok=True)
            write_bytes(place / key, content)
            self._used += len(content)
            if self._used > self._most:
                self._evict_oldest()

    def _files(self) -> list[tuple[int, int, Path]]:
        files = [one for one in self._folder.glob("*/*") if one.is_file()]
        return [((about := one.stat()).st_mtime_ns, about.st_size, one) for one in files]

    def _evict_oldest(self) -> None:
        """Remove the oldest quarter, so that it is not done for every picture."""
        for _, size, file in sorted(self._files()):
            if self._used <= 3 * self._most // 4:
                break
            file.unlink(missing_ok=True)
            self._used -= size

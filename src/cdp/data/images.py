"""Images of a manifest as bytes or pixels; one that cannot be read is named, never replaced by another."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from cdp.data.archives import Archive, open_archive, refuse_many_bytes, refuse_many_pixels, split_location
from cdp.errors import InputError, install_command
from cdp.storage.array_files import brief, naming, reading, regular_size
from cdp.types.arrays import ByteArray
from cdp.types.manifest import Manifest

if TYPE_CHECKING:
    from PIL import Image

_MOST_OPEN = 128
_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)
"""EXIF's tag, and its values that turn an image by a quarter."""

_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
"""Brands of a file in the HEIF container that Pillow does not read by itself."""

_HEIF_BOXES = 2**16
"""Bytes at the start of a HEIF file that hold its notes about turns."""

_opening = threading.Lock()


def open_images(manifest: Manifest) -> ImageReader:
    """Return a reader for the images of a manifest; archives are opened when first needed."""
    return ImageReader(manifest)


class ImageReader:
    """Reads images by row, from any thread and, pickled or forked, from any process."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._source = Source(manifest.root)

    def __len__(self) -> int:
        return self.manifest.n_images

    def read(self, row: int) -> bytes:
        """Return the encoded image of a row; if it cannot be read, the error names its row and location."""
        with naming(self.manifest.describe(row), row=row, file=self.manifest.locations[row]):
            return self._source.read(self.manifest.locations[row])

    def image(self, row: int, *, color: bool = True, size: int | None = None) -> ByteArray:
        """Return the pixels of a row, uint8 (H, W, 3), or (H, W, 1) without color.

        Args:
            color: three channels if True, else one of gray.
            size: scale the shorter side to this and cut the middle square out, so H = W = size; as it is if
                None.
        """
        with naming(self.manifest.describe(row), row=row, file=self.manifest.locations[row]):
            pixels = decode(self._source.read(self.manifest.locations[row]), color=color, size=size)
        if self.manifest.turns is not None and self.manifest.turns[row]:
            pixels = np.ascontiguousarray(np.rot90(pixels, int(self.manifest.turns[row])))
        return pixels


class Source:
    """Hands out the bytes at a location; keeps the archives open that were used last.

    Not more than a hundred or so of them, to stay below the limit on open files.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._archives: OrderedDict[str, Archive] = OrderedDict()
        self._lock, self._process = threading.Lock(), os.getpid()

    def __reduce__(self) -> tuple[type[Source], tuple[str]]:
        return Source, (self.root,)

    def read(self, location: str) -> bytes:
        """Return the bytes of a file or of an entry in an archive."""
        archive, entry = split_location(location)
        if archive is not None:
            path = os.path.join(self.root, archive)
            # A plain file may be called like an entry of an archive, so the archive must be there.
            if path in self._archives or os.path.isfile(path):
                with reading(path):
                    return self._archive(path).read(entry)
        return _read_file(os.path.join(self.root, location))

    def _archive(self, path: str) -> Archive:
        if self._process != os.getpid():
            # A thread that exists only in the parent may have held the lock at the moment of the fork.
            self._lock, self._process = threading.Lock(), os.getpid()
        with self._lock:
            archive = self._archives.get(path)
            if archive is None:
                archive = self._archives[path] = open_archive(path)
                if len(self._archives) > _MOST_OPEN:
                    self._archives.popitem(last=False)
            else:
                self._archives.move_to_end(path)
            return archive


def _read_file(path: str) -> bytes:
    try:
        refuse_many_bytes(regular_size(path), path)
        with open(path, "rb") as stream:
            return stream.read()
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist; correct the path, or leave the image out.",
            code="image-missing",
            file=path,
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path} cannot be read ({reason}); leave the image out.", code="image-unreadable", file=path
        ) from None


def decode(data: bytes, *, color: bool = True, size: int | None = None) -> ByteArray:
    """Pixels of an encoded image, uint8 (H, W, C), upright as its EXIF note says."""
    from PIL import Image, ImageOps

    if not data:
        raise InputError("the image is empty (0 bytes); copy it again or leave it out.", code="image-empty")
    mode = "RGB" if color else "L"
    try:
        with _open_image(data) as opened:
            refuse_many_pixels(*opened.size)
            if size is not None:
                # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size; twice the target keeps the scaling
                # smooth.
                opened.draft(mode, (2 * size, 2 * size))
            ImageOps.exif_transpose(opened, in_place=True)
            scaled = _eight_bits(opened).convert(mode)
            if size is not None and scaled.size != (size, size):
                scaled = ImageOps.fit(scaled, (size, size), Image.Resampling.BILINEAR)
            pixels: ByteArray = np.array(scaled, np.uint8)
    except InputError:
        raise
    except Exception as error:  # Decoders raise almost anything on damaged bytes.
        reason = brief(error)
        if type(error).__name__ == "UnidentifiedImageError":
            reason = "not in an image format that Pillow knows"
        raise InputError(
            f"the image cannot be decoded ({reason or type(error).__name__}); copy it again or leave it out.",
            code="image-undecodable",
        ) from None
    return pixels.reshape(*pixels.shape[:2], -1)


@dataclass(frozen=True)
class ImageHeader:
    """What an image says of itself before its pixels.

    Attributes:
        width, height: as its pixels are stored.
        orientation: EXIF's number from 1 to 8: how the stored pixels are turned to be upright.
        xmp: the XMP packet inside the image; empty if there is none.
    """

    width: int
    height: int
    orientation: int = 1
    xmp: bytes = b""

    @property
    def upright(self) -> tuple[int, int]:
        """(width, height) as `decode` gives the image."""
        lies = self.orientation in _ON_ITS_SIDE
        return (self.height, self.width) if lies else (self.width, self.height)


def read_header(image: bytes | str) -> ImageHeader | None:
    """Read the header of an encoded image or image file; None if it is unreadable."""
    try:
        if isinstance(image, bytes):
            return _header(io.BytesIO(image))
        regular_size(image)
        with open(image, "rb") as stream:
            return _header(stream)
    except Exception:  # Decoders raise almost anything on damaged bytes.
        return None


def _header(stream: IO[bytes]) -> ImageHeader:
    start = stream.read(_HEIF_BOXES)
    stream.seek(0)
    with _open_stream(stream, start) as opened:
        width, height = opened.size
        orientation = opened.getexif().get(_ORIENTATION)
        if b"irot" in start and "original_orientation" in opened.info:
            # HEIC is turned by its own note when it is read; the EXIF note says the same, and then says 1.
            orientation = opened.info["original_orientation"]
            if orientation in _ON_ITS_SIDE:
                width, height = height, width
        if not isinstance(orientation, int) or not 1 <= orientation <= 8:
            orientation = 1
        xmp = opened.info.get("xmp", b"")
        return ImageHeader(width, height, orientation, xmp if isinstance(xmp, bytes) else str(xmp).encode())


def image_size(data: bytes) -> tuple[int, int] | None:
    """Read (height, width) from the header, upright as EXIF says; None if unreadable."""
    header = read_header(data)
    return None if header is None else (header.upright[1], header.upright[0])


def _open_image(data: bytes) -> Image.Image:
    """Return the image as its header describes it; no pixel is decoded yet."""
    return _open_stream(io.BytesIO(data), data[:12])


def _open_stream(stream: IO[bytes], start: bytes) -> Image.Image:
    """Return the same of a stream that starts with these bytes.

    Pillow warns of many pixels, and at twice as many gives up, by a number that the whole process shares. It
    is out of force only while this header is read.
    """
    from PIL import Image

    if start[4:8] == b"ftyp" and start[8:12] in _HEIF_BRANDS:
        _register_heif()
    with _opening:
        most, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(stream)
        finally:
            Image.MAX_IMAGE_PIXELS = most


def _register_heif() -> None:
    """Make Pillow read HEIC; doing it again does nothing."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        # One image of many, so no MissingExtraError: the others can be read.
        raise InputError(
            f"HEIC images need pillow-heif, which is not installed; run {install_command('heic')}.",
            code="image-needs-heic",
            extra="heic",
        ) from None
    register_heif_opener(thumbnails=False)


def _renew_lock() -> None:
    """Replace a lock that a thread of the parent may have held at the moment of the fork."""
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _eight_bits(image: Image.Image) -> Any:
    """Deeper gray images scaled to 8 bits; Pillow's own conversion would clip them at 255."""
    from PIL import Image

    if image.mode == "F":
        raise InputError(
            "the image holds floating-point pixels; convert it to 8 or 16 bits.", code="image-floating-point"
        )
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image)
    if image.mode == "I" and int(values.max(initial=0)) <= 255:
        return Image.fromarray(values.clip(0).astype(np.uint8))
    return Image.fromarray((values.astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8))

"""Every image decoded once, into one uint8 array: in memory where it fits, else memory-mapped from disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.lib.format import open_memmap

from cdp.blocks import spans
from cdp.data.images import ImageReader, open_images, read_header
from cdp.errors import InputError
from cdp.nets.recipe import Recipe
from cdp.runtime.daemon_threads import DaemonPool
from cdp.runtime.memory import parse_bytes
from cdp.runtime.parallel import count_threads
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import check_room, replacing
from cdp.storage.hashes import hash_values
from cdp.types.arrays import ByteArray
from cdp.types.manifest import Manifest

Result = TypeVar("Result")
_ROWS_PER_BLOCK = 64


@dataclass(frozen=True)
class PixelFormat:
    """What form the images take.

    Attributes:
        size: pixels a side of the square that an image is brought to; smaller ones are enlarged.
        color: three channels, else one of gray.
        middle: height and width of the part that is cut out of the middle of the square; None = all of it.
    """

    size: int
    color: bool = True
    middle: tuple[int, int] | None = None

    @classmethod
    def of(cls, recipe: Recipe) -> PixelFormat:
        """Return the form that a recipe stores images in."""
        return cls(recipe.stored_size, recipe.color)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return (3 if self.color else 1), *(self.middle or (self.size, self.size))

    def cut(self, pixels: ByteArray) -> ByteArray:
        """Take the middle of a square image (size, size, channels)."""
        _, height, width = self.shape
        top, left = (self.size - height) // 2, (self.size - width) // 2
        return pixels[top : top + height, left : left + width]


def decode_pixels(
    manifest: Manifest,
    pixel_format: PixelFormat,
    *,
    folder: Path | None = None,
    memory_budget: int | float | str = "2GB",
    threads: int = 0,
    progress: Progress = no_progress,
) -> ByteArray:
    """Return all images of a manifest, uint8 (n, channels, size, size), row = manifest row.

    Args:
        folder: where to keep the array if it exceeds the budget, or always if the budget is 0.
        memory_budget: most bytes to hold in memory.
    """
    shape = (len(manifest), *pixel_format.shape)
    n_bytes = int(np.prod(shape))

    def fill(pixels: ByteArray) -> None:
        blocks = spans(len(manifest), _ROWS_PER_BLOCK)
        with closing(stream_pixels(manifest, pixel_format, blocks, threads)) as stream:
            for start, block in stream:
                pixels[start : start + len(block)] = block
                progress("decode images", start + len(block), len(manifest))

    if folder is None or n_bytes <= (parse_bytes(memory_budget) if memory_budget else 0):
        try:
            pixels = np.empty(shape, np.uint8)
        except MemoryError:
            raise InputError(
                f"{len(manifest):,} images need {n_bytes / 1e9:.1f} GB; lower --memory-budget to keep them "
                "on disk.",
                code="pixels-exceed-memory",
                images=len(manifest),
                expected=n_bytes,
            ) from None
        fill(pixels)
        return pixels
    file = folder / f"pixels-{hash_values(manifest.digest, str(manifest.root), pixel_format)}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        check_room(folder, n_bytes, "the decoded images", " or raise --memory-budget")
        with replacing(file) as partial:
            on_disk = open_memmap(partial, "w+", np.uint8, shape)
            fill(on_disk)
            on_disk.flush()
    opened: ByteArray = np.load(file, mmap_mode="r", allow_pickle=False)
    return opened


def check_headers(manifest: Manifest, progress: Progress = no_progress) -> None:
    """Refuse the first image that is missing or has no readable header, before any image is decoded.

    Archive entries are read in full. Damage after the header is found when the image is decoded.
    """
    reader = open_images(manifest)
    every = 1000
    for row, location in enumerate(manifest.locations):
        file = os.path.join(manifest.root, location)
        if (read_header(file if os.path.isfile(file) else reader.read(row))) is None:
            reader.image(row)  # which says what is wrong
        if (row + 1) % every == 0 or row + 1 == len(manifest):
            progress("check images", row + 1, len(manifest))


def stream_pixels(
    manifest: Manifest, pixel_format: PixelFormat, blocks: Sequence[tuple[int, int]], threads: int = 0
) -> Generator[tuple[int, ByteArray], None, None]:
    """Yield (start, images) for every (start, stop) block, in order, decoded on threads ahead."""
    reader = open_images(manifest)
    return stream_blocks(
        blocks, lambda start, stop: decode_rows(reader, pixel_format, start, stop)[0], threads
    )


def stream_blocks(
    blocks: Sequence[tuple[int, int]],
    compute: Callable[[int, int], Result],
    threads: int = 0,
    stop_computing: Callable[[], bool] = lambda: False,
) -> Generator[tuple[int, Result], None, None]:
    """Yield (start, compute(start, stop)) for every block, in order, computed on threads ahead.

    Where that ends early, `stop_computing` ends what is under way, and says whether that may take too long.
    """
    n_threads = count_threads(threads)
    waiting: list[tuple[int, Future[Result]]] = []
    pool = DaemonPool(n_threads)
    try:
        for start, stop in blocks:
            waiting.append((start, pool.submit(compute, start, stop)))
            if len(waiting) > 2 * n_threads:
                first, future = waiting.pop(0)
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()
    finally:
        for _, future in waiting:
            future.cancel()
        pool.close(stop_computing)


def decode_rows(
    reader: ImageReader, pixel_format: PixelFormat, start: int, stop: int, *, skip_unreadable: bool = False
) -> tuple[ByteArray, dict[int, str]]:
    """Decode rows to uint8 (stop - start, channels, height, width), and row -> reason of failures.

    Unless these are to be skipped, the first one is an error. A skipped one is black here, for the caller to
    leave out.
    """
    block = np.zeros((stop - start, *pixel_format.shape), np.uint8)
    reasons = {}
    for row in range(start, stop):
        try:
            pixels = reader.image(row, color=pixel_format.color, size=pixel_format.size)
        except InputError as error:
            if not skip_unreadable:
                raise
            reasons[row] = str(error).removeprefix(f"{reader.manifest.describe(row)}: ")
        else:
            block[row - start] = pixel_format.cut(pixels).transpose(2, 0, 1)
    return block, reasons

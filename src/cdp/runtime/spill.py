"""Large arrays: in memory while there is room, else in temporary files that are mapped into memory."""

from __future__ import annotations

import math
import os
import shutil
import threading
import weakref
from itertools import count
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.storage.files import disk_errors, partial_beside, sweep

AnyArray = npt.NDArray[Any]

# Not worth a file, nor to be counted.
_SMALL = 2**16
# Sending this much in every step takes longer than to write it to a file once.
_LARGE = 2**22
_ZEROS = bytes(2**20)
_NAME = "cdp-spill"


class SpillFiles:
    """Storage of arrays that grow with the number of images; results do not depend on it.

    Files are removed when their array is no longer used, and all of them with this object. What a killed
    process left is removed by the next one that works in the same folder.

    Attributes:
        limit: total bytes of arrays in memory; None = unlimited.
        folder: of the files; None = the system's for temporary files. On Ray, one that all nodes see.
        is_shared: whether other processes will read the files.
    """

    def __init__(
        self, limit: int | None = None, folder: Path | None = None, *, is_shared: bool = False
    ) -> None:
        self.limit = limit
        self.folder = folder
        self.is_shared = is_shared
        self._reserved: list[int] = []
        self._home: Path | None = None
        self._numbers = count()
        self._lock = threading.Lock()

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
        """Return a new array to be filled."""
        sizes = (shape,) if isinstance(shape, int) else shape
        n_bytes = math.prod(sizes) * np.dtype(dtype).itemsize
        if n_bytes > _SMALL and not self.fits(n_bytes):
            return self._in_file(sizes, np.dtype(dtype), n_bytes)
        array = np.empty(sizes, dtype)
        self.reserve(array)
        return array

    def fits(self, n_bytes: int) -> bool:
        """Return whether `n_bytes` more fit in memory; large shared arrays are always in files."""
        if self.is_shared and n_bytes > _LARGE:
            return False
        return self.limit is None or sum(self._reserved) + n_bytes <= self.limit

    def reserve(self, array: AnyArray) -> None:
        """Count an array that is held in memory, as long as it is."""
        if self.limit is not None and array.nbytes > _SMALL:
            self._reserved.append(array.nbytes)
            weakref.finalize(array, self._reserved.remove, array.nbytes)

    def full(self, shape: int | tuple[int, ...], value: float, dtype: npt.DTypeLike) -> AnyArray:
        """Return a new array that holds one value everywhere."""
        array = self.empty(shape, dtype)
        array[...] = value
        return array

    def copy(self, array: AnyArray) -> AnyArray:
        """Return a copy to be changed."""
        made = self.empty(array.shape, array.dtype)
        made[...] = array
        return made

    def done(self, array: AnyArray) -> AnyArray:
        """Return the final array; other processes get a file by name."""
        owner = array.base
        if (
            not self.is_shared
            or not isinstance(owner, np.memmap)
            or array.size != owner.size
            or owner.filename is None
        ):
            return array
        owner.flush()
        mapped = np.memmap(owner.filename, owner.dtype, "r", shape=owner.shape)
        # The file must outlive both maps.
        weakref.finalize(mapped, _forget, owner)
        return mapped.view(np.ndarray)

    def new_path(self) -> Path:
        """Return a path for a new file or folder; it is removed with the other spill files."""
        with self._lock:
            return (self._home or self._make_home()) / str(next(self._numbers))

    def _make_home(self) -> Path:
        place = Path(gettempdir()) if self.folder is None else self.folder
        with disk_errors(place):
            place.mkdir(parents=True, exist_ok=True)
            sweep(place, _NAME)
            self._home = partial_beside(place / _NAME)
            self._home.mkdir()
        weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        return self._home

    def new_file(self, n_bytes: int) -> Path:
        """Return a new file of a size, to be written by other processes and opened with `open_file`."""
        file = self.new_path().absolute()
        with disk_errors(file.parent.parent), file.open("xb") as handle:
            # Room on the disk first: where there is none, writing through the map would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle.fileno(), 0, n_bytes)
            else:
                for start in range(0, n_bytes, len(_ZEROS)):
                    handle.write(_ZEROS[: n_bytes - start])
        return file

    def open_file(self, file: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
        """Map a file that is final, for reading; it is removed with its array."""
        mapped = np.memmap(file, dtype, "r", shape=shape)
        weakref.finalize(mapped, file.unlink, missing_ok=True)
        return mapped.view(np.ndarray)

    def _in_file(self, shape: tuple[int, ...], dtype: np.dtype[Any], n_bytes: int) -> AnyArray:
        file = self.new_file(n_bytes)
        mapped = np.memmap(file, dtype, "r+", shape=shape)
        weakref.finalize(mapped, file.unlink, missing_ok=True)
        return mapped.view(np.ndarray)


def _forget(_: AnyArray) -> None:
    """Nothing: to hold on to its argument until it is called is what it is for."""

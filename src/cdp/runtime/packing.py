"""Pack objects for another process: large arrays apart from the rest, memory-mapped files by name."""

from __future__ import annotations

import io
import mmap
import pickle
import socket
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError

_ENDS = 4096
# An array apart from the rest costs some tens of microseconds, one among it a copy.
_SMALL = 1 << 16


@dataclass(frozen=True)
class Packed:
    """An object as bytes, and the buffers of its large arrays.

    The bytes are a pickle that this program wrote and only its own workers read; files of users never are.
    """

    content: npt.NDArray[np.uint8]
    buffers: list[npt.NDArray[np.uint8]]

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self.content.nbytes + sum(buffer.nbytes for buffer in self.buffers)


def pack(value: Any) -> Packed:
    """Return an object to send; of arrays that are files mapped for reading, only the file's name is sent."""
    content, buffers = io.BytesIO(), []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _SMALL:
            return True
        buffers.append(np.frombuffer(raw, np.uint8))
        return False

    _Packer(content, protocol=5, buffer_callback=stays).dump(value)
    return Packed(np.frombuffer(content.getbuffer(), np.uint8), buffers)


def unpack(packed: Packed, *, copy: bool = False) -> Any:
    """Rebuild the object; without a copy its large arrays are read-only views of the buffers."""
    views = [buffer.data for buffer in packed.buffers]
    return pickle.loads(
        packed.content.data, buffers=[bytearray(view) if copy else view.toreadonly() for view in views]
    )


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Test whether an array is a file mapped for reading, which is sent by name."""
    return _find_mapped(array) is not None


class _Packer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        mapped = _find_mapped(value) if isinstance(value, np.ndarray) else None
        return NotImplemented if mapped is None else (_open_mapped, mapped)


def _find_mapped(array: npt.NDArray[Any]) -> tuple[Any, ...] | None:
    """File and offset of an array; None if it is in no file, or in a writable one."""
    owner: Any = array
    while owner is not None and not (isinstance(owner, np.memmap) and owner.filename):
        owner = getattr(owner, "base", None)
    if owner is None or owner.mode != "r" or array.size == 0 or min(array.strides, default=1) <= 0:
        return None
    # The map begins at a whole page before the offset that was asked for; a slice still names the offset of
    # the whole.
    page = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY
    offset = page + _address(array) - _address(np.frombuffer(vars(owner)["_mmap"], np.uint8))
    file = Path(str(owner.filename)).absolute()
    return str(file), offset, array.dtype, array.shape, array.strides, _checksum(array)


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _checksum(array: npt.NDArray[Any]) -> int:
    """Hash an array's ends, enough to notice another file of the same name."""
    rows = array.reshape(1) if array.ndim == 0 else array
    n_rows = max(1, _ENDS // max(1, rows[:1].nbytes))
    return zlib.crc32(rows[-n_rows:].tobytes(), zlib.crc32(rows[:n_rows].tobytes()))


def _open_mapped(
    file: str,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    checksum: int,
) -> npt.NDArray[Any]:
    """Return the array that is stored in a file, or some of its columns, mapped for reading."""
    n_bytes = sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) + dtype.itemsize
    try:
        source = np.memmap(file, np.uint8, "r", offset, (n_bytes,))
        mapped: npt.NDArray[Any] = np.ndarray(shape, dtype, source, strides=strides)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{_unseen(file)} ({reason}); {_WAY_OUT}", code="packed-file-unseen", file=file
        ) from None
    if _checksum(mapped) != checksum:
        raise InputError(
            f"{_unseen(file)}, but another file of that name; {_WAY_OUT}",
            code="packed-file-changed",
            file=file,
        )
    return mapped


def _unseen(file: str) -> str:
    return f"{file}: the node {socket.gethostname()} does not see this file"


_WAY_OUT = "keep embeddings, --cache and --out on storage that all nodes see under the same path."

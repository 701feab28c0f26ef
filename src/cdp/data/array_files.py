"""Opening .npy, .npz, Parquet and text files: mapped where possible, never unpickled, damage in one sentence."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from cdp.errors import InputError
from cdp.types.arrays import AnyArray

_AS_FLOATS = "np.save(file, np.stack(list(array)).astype('float32'))"
_DAMAGED_HEADER = (ValueError, EOFError, SyntaxError, tokenize.TokenError)
_DAMAGED_ZIP = (ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turns what the operating system says about a file into an InputError that names it."""
    try:
        yield
    except PermissionError as error:
        raise InputError(f"{error.filename or file}: may not be read; change its permissions.") from None
    except MemoryError:
        raise InputError(f"{file}: does not fit into memory; save it as a folder of .npy files.") from None
    except OSError as error:
        raise InputError(f"{error.filename or file}: cannot be read ({error.strerror or error}).") from None


@contextmanager
def naming(source: object) -> Iterator[None]:
    """Puts the file or row that it is about in front of the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def open_npy(file: Path, convert: str = _AS_FLOATS, *, may_be_empty: bool = False) -> AnyArray:
    """The array in a .npy file, memory-mapped and read-only; never unpickled.

    Args:
        file: the .npy file.
        convert: what to type to make a readable file of a pickled one, for the error message.
        may_be_empty: whether an array without elements is all right.
    """
    size = file_size(file)
    with file.open("rb") as stream:
        try:
            first_format = npy.read_magic(stream) == (1, 0)
            read_header = npy.read_array_header_1_0 if first_format else npy.read_array_header_2_0
            shape, fortran_order, dtype = read_header(stream)
        except _DAMAGED_HEADER:
            raise InputError(f"{file}: not a .npy file, or its header is damaged; write it again.") from None
        offset = stream.tell()
    if dtype.hasobject:
        raise InputError(_pickled(str(file), convert))
    needed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size - offset < needed:
        raise InputError(f"{file}: cut short, {size - offset:,} of {needed:,} bytes; copy or write it again.")
    if needed == 0 and may_be_empty:
        return np.empty(shape, dtype)
    if needed == 0:
        raise InputError(f"{file}: empty, its array has shape {shape}; embed the images again.")
    order = "F" if fortran_order else "C"
    return np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload,no-any-return]


def read_npz(file: Path, convert: str = _AS_FLOATS) -> dict[str, AnyArray]:
    """All arrays of an .npz file in the order of the file; never unpickled."""
    file_size(file)
    arrays: dict[str, AnyArray] = {}
    name = ""
    try:
        # Opened here, because np.load leaves a file that it cannot read open.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            for name in archive.files:
                arrays[name] = archive[name]
    except _DAMAGED_ZIP as error:
        if name and str(error).startswith("Object arrays"):
            raise InputError(_pickled(f"{file}, array {name!r}", convert)) from None
        raise InputError(f"{file}: cut short or not an .npz file; copy or write it again.") from None
    except TypeError:  # np.load gave an array, which is no context manager
        raise InputError(f"{file}: holds one bare array, not an .npz archive; rename it to .npy.") from None
    if not arrays:
        raise InputError(f"{file}: empty, it holds no arrays; write it again with np.savez(file, base=...).")
    return arrays


def _pickled(what: str, convert: str) -> str:
    return (
        f"{what}: holds pickled Python objects, which are never opened because they can run code; "
        f"load it where you trust it and save it again with {convert}."
    )


@contextmanager
def open_parquet(file: Path) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`; damage found while it is read is an InputError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file_size(file)
    try:
        with pq.ParquetFile(file) as table:
            yield table
    except PermissionError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError):  # how Arrow reports damaged bytes
        raise InputError(f"{file}: cut short or not a Parquet file; copy or write it again.") from None


def read_text(file: Path) -> str:
    """The contents of a UTF-8 text file."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file}: not UTF-8 text; save it again as UTF-8.") from None


def read_lines(file: Path) -> list[str]:
    """The lines of a UTF-8 text file without their ends; blank ones at the end are left out."""
    with reading(file):
        # Not splitlines(): that also cuts at rare characters that may stand in a path.
        lines = [line.removesuffix("\r") for line in read_text(file).split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{file}: empty; copy or write it again.")
    return lines


def file_size(file: Path) -> int:
    """Bytes in a file that must not be empty."""
    size = file.stat().st_size
    if size == 0:
        raise InputError(f"{file}: empty (0 bytes); copy or write it again.")
    return size

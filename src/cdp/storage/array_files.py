"""Reading .npy, .npz, Parquet and text: mapped where possible, never unpickled.

Damage is reported in one sentence.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import math
import os
import stat
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from cdp.errors import CdpError, InputError, rows_not_utf8
from cdp.types.arrays import AnyArray

_AS_FLOATS = "np.save(file, np.stack(list(array)).astype('float32'))"
_MOST_DIMENSIONS = 32


@contextmanager
def reading(file: str | Path) -> Iterator[None]:
    """Turn whatever goes wrong while a user's file is read into an InputError that names it.

    Readers say what they can foresee in their own words. What nobody foresaw is caught here and nowhere else;
    the exception stays as the cause, so that it can be shown to whoever wants to mend the reader.
    """
    if rows_not_utf8([str(file)]):
        raise InputError(
            f"{file}: a path that is not UTF-8, which no table or card can hold; rename it.",
            code="path-not-utf8",
            file=file,
        )
    try:
        yield
    except CdpError:
        raise
    except PermissionError as error:
        raise InputError(
            f"{error.filename or file}: permission denied; change its permissions.",
            code="file-not-permitted",
            file=error.filename or file,
        ) from None
    except MemoryError:
        raise InputError(
            f"{file}: does not fit into memory; save it as a folder of .npy files.",
            code="file-exceeds-memory",
            file=file,
        ) from None
    except OSError as error:
        raise InputError(
            f"{error.filename or file}: cannot be read ({error.strerror or brief(error)}).",
            code="file-unreadable",
            file=error.filename or file,
        ) from None
    except Exception as error:
        raise InputError(
            f"{file}: cannot be read ({type(error).__name__}: {brief(error)}); it is damaged or has an "
            "unexpected format; write it again.",
            code="file-damaged",
            file=file,
        ) from error


def brief(error: object, most: int = 200) -> str:
    """Shorten an exception of another library for the middle of a sentence."""
    words = " ".join(str(error).split()).rstrip(".")
    return words if len(words) <= most else f"{words[: most - 1]}…"


@contextmanager
def naming(source: object, **fields: object) -> Iterator[None]:
    """Put the file or row that it is about in front of the message of an InputError, and into its fields."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}", **error.details(**fields)) from None


def open_npy(file: Path, convert: str = _AS_FLOATS, *, may_be_empty: bool = False) -> AnyArray:
    """Open the array in a .npy file, memory-mapped and read-only; never unpickled.

    Args:
        convert: what to type to make a readable file of a pickled one, for the error message.
        may_be_empty: whether an array without elements is all right.
    """
    size = file_size(file)
    with file.open("rb") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that Python 2 wrote, and about what is refused here
        try:
            first_format = npy.read_magic(stream) == (1, 0)
            read_header = npy.read_array_header_1_0 if first_format else npy.read_array_header_2_0
            shape, fortran_order, dtype = read_header(stream)
            if len(shape) > _MOST_DIMENSIONS or not all(_is_side(side) for side in shape):
                raise ValueError("no shape of an array")
        except Exception:  # the header is evaluated as Python, which may raise anything
            raise InputError(
                f"{file}: not a .npy file, or its header is damaged; write it again.",
                code="npy-header-damaged",
                file=file,
            ) from None
        offset = stream.tell()
    if dtype.hasobject:
        raise InputError(_pickled(str(file), convert), code="array-pickled", file=file)
    needed = math.prod(shape) * dtype.itemsize
    if size - offset < needed:
        raise InputError(
            f"{file}: cut short, {size - offset:,} of {needed:,} bytes; copy or write it again.",
            code="npy-cut-short",
            file=file,
            expected=needed,
            found=size - offset,
        )
    if needed == 0 and may_be_empty:
        return np.empty(shape, dtype)
    if needed == 0:
        raise InputError(
            f"{file}: empty, its array has shape {shape}; embed the images again.",
            code="npy-empty",
            file=file,
            shape=shape,
        )
    order = "F" if fortran_order else "C"
    return np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload,no-any-return]


def _is_side(side: object) -> bool:
    return type(side) is int and 0 <= side <= sys.maxsize


def read_npz(file: Path, convert: str = _AS_FLOATS) -> dict[str, AnyArray]:
    """Read all arrays of an .npz file in the order of the file; never unpickled."""
    file_size(file)
    arrays: dict[str, AnyArray] = {}
    name = ""
    # Opened here, because np.load leaves a file that it cannot read open.
    with file.open("rb") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise InputError(
                f"{file}: holds one bare array, not an .npz archive; rename it to .npy.",
                code="npz-is-npy",
                file=file,
            )
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as archive:
                refuse_repeats(file, archive.files, "arrays")
                for name in archive.files:
                    arrays[name] = archive[name]
        except (MemoryError, InputError):
            raise
        except Exception as error:  # each array's header is evaluated as Python, which may raise anything
            raise _damaged_npz(file, name, error, convert) from None
    if not arrays:
        raise InputError(
            f"{file}: empty, it holds no arrays; write it again with np.savez(file, base=...).",
            code="npz-empty",
            file=file,
        )
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(
                f"{file}: its entry {name!r} is not an array; take it out.",
                code="npz-entry-not-an-array",
                file=file,
                entry=name,
            )
    return arrays


def _damaged_npz(file: Path, name: str, error: Exception, convert: str) -> InputError:
    if name and str(error).startswith("Object arrays"):
        return InputError(
            _pickled(f"{file}, array {name!r}", convert), code="array-pickled", file=file, entry=name
        )
    if isinstance(error, NotImplementedError):
        return InputError(
            f"{file}: its compression is not supported ({brief(error)}); write it again with np.savez.",
            code="archive-packing-unknown",
            file=file,
        )
    if name:
        return InputError(
            f"{file}: array {name!r} is cut short or damaged ({brief(error)}); copy or write the file again.",
            code="npz-entry-damaged",
            file=file,
            entry=name,
        )
    return InputError(
        f"{file}: cut short or not an .npz file; copy or write it again.", code="npz-damaged", file=file
    )


def refuse_repeats(file: Path, names: Iterable[str], what: str = "columns") -> None:
    """Refuse a file with repeated names, of which only one would be read."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(
                f"{file}: two {what} are called {name!r}; rename one.",
                code="file-name-repeated",
                file=file,
                name=name,
                what=what,
            )


def _pickled(what: str, convert: str) -> str:
    return (
        f"{what}: holds pickled Python objects, which are never opened because they can run code; "
        f"load it where you trust it and save it again with {convert}."
    )


@contextmanager
def open_parquet(file: Path) -> Iterator[Any]:
    """Open a Parquet file without repeated columns; damage found later is an InputError too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file_size(file)
    try:
        table = pq.ParquetFile(file)
        names = list(table.schema_arrow.names)
    except (PermissionError, MemoryError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(
            f"{file}: cut short or not a Parquet file; copy or write it again.",
            code="parquet-damaged",
            file=file,
        ) from None
    with table:
        refuse_repeats(file, names)
        try:
            yield table
        except (OSError, UnicodeDecodeError) as error:  # how Arrow reports damaged bytes
            raise InputError(
                f"{file}: damaged ({brief(error)}); copy or write it again.",
                code="parquet-contents-damaged",
                file=file,
            ) from None


def refuse_nested(file: Path, column: Any) -> None:
    """Refuse a Parquet column that holds lists, tables or bytes where a number or text per row is needed."""
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_nested(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
        raise InputError(
            f"{file}: column {column.name!r} holds {kind} where one number or text per row is needed; write "
            "it again.",
            code="column-nested",
            file=file,
            column=column.name,
            found=str(kind),
        )


def read_text(file: Path) -> str:
    """Read a UTF-8 text file."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            f"{file}: not UTF-8 text; save it again as UTF-8.", code="text-not-utf8", file=file
        ) from None


def read_lines(file: Path) -> list[str]:
    """Read the lines of a UTF-8 text file without their ends; blank ones at the end are left out."""
    with reading(file):
        # Not splitlines(): that also cuts at rare characters that may stand in a path.
        lines = [line.removesuffix("\r") for line in read_text(file).split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{file}: empty; copy or write it again.", code="text-empty", file=file)
    return lines


def read_csv_rows(file: Path) -> list[list[str]]:
    """Read the rows of a small CSV file, the header first."""
    try:
        return list(csv.reader(read_lines(file)))
    except csv.Error as error:
        raise InputError(
            f"{file}: not CSV ({error}); copy or write it again.", code="csv-syntax-wrong", file=file
        ) from None


def read_bytes(file: Path) -> bytes:
    """Read a regular file."""
    regular_size(file)
    return file.read_bytes()


def hash_contents(file: str | Path) -> str:
    """SHA-256 of the bytes of a regular file."""
    if not os.path.exists(file):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(file))
    with reading(file):
        regular_size(file)
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def file_size(file: Path) -> int:
    """Return the size of a regular file in bytes; refuse an empty one."""
    size = regular_size(file)
    if size == 0:
        raise InputError(f"{file}: empty (0 bytes); copy or write it again.", code="file-empty", file=file)
    return size


def regular_size(file: str | Path) -> int:
    """Return the size of a regular file; refuse devices and pipes, which may never end."""
    state = os.stat(file)
    if not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):  # of a folder, open() says it well
        raise InputError(
            f"{file}: a device, pipe or socket, not a file; copy what it gives into a file.",
            code="file-not-regular",
            file=file,
        )
    return state.st_size

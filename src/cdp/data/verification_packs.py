"""InsightFace's verification packs (`lfw.bin`, `cfp_fp.bin`, ...): pickles, read without trusting them."""

from __future__ import annotations

import io
import pickle
import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.data.images import decode
from cdp.data.lfw_pairs import N_FOLDS, contiguous_folds
from cdp.errors import InputError
from cdp.storage.array_files import naming, read_bytes, reading
from cdp.types.arrays import BoolArray, ByteArray, LongArray, read_only


@dataclass(frozen=True, eq=False)
class VerificationPack:
    """2m encoded images and m flags: images 2i and 2i+1 are pair i.

    Attributes:
        images: JPEG or PNG files as bytes.
        same: bool (m,).
    """

    images: tuple[bytes, ...]
    same: BoolArray
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "same", read_only(self.same))

    @property
    def ends(self) -> LongArray:
        """Rows of the pairs in embeddings of all images in the pack's order, int64 (m, 2)."""
        return np.arange(2 * len(self.same)).reshape(-1, 2)

    def folds(self, n_folds: int = N_FOLDS) -> LongArray:
        """Fold of every pair: the pack cut into equal parts in its own order."""
        return contiguous_folds(len(self.same), n_folds)

    def decode(self, row: int) -> ByteArray:
        """Image `row` as uint8 (height, width, 3)."""
        with naming(f"{self.source}: image {row} (counted from 0)", file=self.source, row=row):
            return decode(self.images[row])


def read_verification_pack(file: str | Path) -> VerificationPack:
    """Return a pack through an unpickler that knows byte arrays, numbers and nothing else.

    An ordinary unpickler runs whatever a file asks it to run. This one knows the few names needed for bytes
    and NumPy arrays and refuses every other, so a hostile file ends in an error before anything is called.
    """
    file = Path(file)
    with reading(file):
        return _as_pack(file, _restricted_load(file, read_bytes(file)))


def _as_pack(file: Path, content: Any) -> VerificationPack:
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise InputError(
            f"{file}: not a verification pack; it must hold (images, flags).",
            code="pack-not-images-and-flags",
            file=file,
        )
    images, flags = (part.values if isinstance(part, _Array) else part for part in content)
    if not isinstance(images, list | tuple) or not isinstance(flags, list | tuple | np.ndarray):
        raise InputError(
            f"{file}: not a verification pack; it must hold a list of images and a list of flags.",
            code="pack-not-lists",
            file=file,
        )
    same = np.array([_as_flag(file, number, flag) for number, flag in enumerate(flags)], bool)
    if not len(same) or len(images) != 2 * len(same):
        raise InputError(
            f"{file}: {len(images):,} images for {len(same):,} pairs; two images per pair are needed.",
            code="pack-images-differ",
            file=file,
            images=len(images),
            pairs=len(same),
        )
    return VerificationPack(
        tuple(_as_bytes(file, row, image) for row, image in enumerate(images)), same, str(file)
    )


def _as_flag(file: Path, number: int, flag: Any) -> bool:
    if isinstance(flag, bool | int | np.bool_ | np.integer) and flag in (0, 1):
        return bool(flag)
    raise InputError(
        f"{file}: flag {number} (counted from 0) is neither true nor false.",
        code="pack-flag-wrong",
        file=file,
        row=number,
    )


def _as_bytes(file: Path, row: int, image: Any) -> bytes:
    if isinstance(image, _Array):
        image = image.values
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return image.tobytes()
    raise InputError(
        f"{file}: image {row} (counted from 0) is neither bytes nor a uint8 array.",
        code="pack-image-not-bytes",
        file=file,
        row=row,
    )


class _RefusedError(pickle.UnpicklingError):
    """The file asks for something a verification pack does not need."""


class _Number:
    """Stands for a NumPy number type: a pickle cannot change this one, as it could NumPy's own."""

    __slots__ = ("dtype",)

    def __init__(self, kind: Any, *_flags: Any) -> None:
        name = kind.decode("latin1") if isinstance(kind, bytes) else kind
        if name not in ("u1", "b1", "i1", "i4", "i8"):
            raise _RefusedError(f"arrays of {name!r}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        known = isinstance(state, tuple) and state[1:2] and state[1] in ("<", "|", "=", b"<", b"|", b"=")
        if not known:
            raise _RefusedError("numbers in an unknown form")


class _Array:
    """Stands for a NumPy array until its contents are known and checked."""

    __slots__ = ("values",)

    def __init__(self, *_ignored: Any) -> None:
        self.values: Any = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _RefusedError("an array in an unknown form")
        _, shape, number, in_columns, content = state
        self.values = _from_buffer(content, number, shape, "F" if in_columns else "C")


def _from_buffer(content: Any, number: Any, shape: Any, order: Any = "C") -> Any:
    if not (isinstance(content, bytes | bytearray) and isinstance(number, _Number) and order in ("C", "F")):
        raise _RefusedError("an array in an unknown form")
    return np.frombuffer(content, number.dtype).reshape(shape, order=order)


def _scalar(number: Any, content: Any) -> Any:
    if not isinstance(number, _Number) or not isinstance(content, bytes):
        raise _RefusedError("a number in an unknown form")
    return np.frombuffer(content, number.dtype, 1)[0]


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Return how old protocols spell bytes; any other codec than latin1 is refused."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _RefusedError("an encoding other than latin1")
    return text.encode("latin1")


class _Maker:
    """What the unpickler gets instead of a class: it can be called, and not changed."""

    __slots__ = ("_make",)
    _make: Callable[..., Any]

    def __init__(self, make: Callable[..., Any]) -> None:
        object.__setattr__(self, "_make", make)

    def __call__(self, *given: Any) -> Any:
        return self._make(*given)

    def __setattr__(self, name: str, value: Any) -> None:
        raise _RefusedError(f"a change of {name}")

    def __setstate__(self, state: Any) -> None:
        raise _RefusedError("a change of a class")


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _Number,
    ("numpy", "ndarray"): _Array,
}
for _core in ("numpy.core", "numpy._core"):
    _KNOWN[(f"{_core}.multiarray", "_reconstruct")] = _Array
    _KNOWN[(f"{_core}.multiarray", "scalar")] = _scalar
    _KNOWN[(f"{_core}.numeric", "_frombuffer")] = _from_buffer


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise _RefusedError(f"{module}.{name}")
        return _Maker(known)

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002
        raise _RefusedError("a reference to something outside the file")


def _check_memo(data: bytes) -> None:
    """Refuse a pickle that numbers what it remembers higher than it has bytes.

    Whoever writes pickles counts from 0. The unpickler makes room up to the highest number, so that nine
    bytes could take gigabytes.
    """
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(data):
            raise _RefusedError("a memo larger than the file")


def _restricted_load(file: Path, data: bytes) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about texts with odd escapes, which no pack has
            _check_memo(data)
            return _RestrictedUnpickler(io.BytesIO(data), encoding="bytes").load()
    except _RefusedError as error:
        raise InputError(
            f"{file}: refused, this pickle asks for {error}; a verification pack holds bytes and flags only.",
            code="pack-refused",
            file=file,
        ) from None
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError,
        ImportError, MemoryError,
        OverflowError, RecursionError,
    ):  # fmt: skip
        raise InputError(
            f"{file}: cut short or not a verification pack; copy it again.", code="pack-damaged", file=file
        ) from None

"""InsightFace's verification packs (`lfw.bin`, `cfp_fp.bin`, ...): pickles, read without trusting them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.data.array_files import reading
from cdp.data.lfw_pairs import N_FOLDS, contiguous_folds
from cdp.errors import InputError, MissingExtraError
from cdp.types.arrays import BoolArray, ByteArray, LongArray, read_only


@dataclass(frozen=True, eq=False)
class VerificationPack:
    """2m encoded images and m flags: images 2i and 2i+1 are pair i.

    Attributes:
        images: JPEG or PNG files as bytes.
        same: bool (m,).
        source: the file, for error messages.
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
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError:
            raise MissingExtraError(
                "Decoding images needs Pillow; install it with pip install 'cdp[pictures]'."
            ) from None
        try:
            with Image.open(io.BytesIO(self.images[row])) as image:
                return np.asarray(image.convert("RGB"))
        except (UnidentifiedImageError, OSError):
            raise InputError(
                f"{self.source}: image {row} (counted from 0) is damaged or not an image."
            ) from None


def read_verification_pack(file: str | Path) -> VerificationPack:
    """A pack through an unpickler that knows byte arrays, numbers and nothing else.

    An ordinary unpickler runs whatever a file asks it to run. This one knows the few names needed for bytes and
    NumPy arrays and refuses every other, so a hostile file ends in an error before anything is called.
    """
    place = Path(file)
    with reading(place), place.open("rb") as stream:
        content = _restricted_load(place, stream)
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise InputError(f"{place}: not a verification pack; it must hold (images, flags).")
    images, flags = content
    if not isinstance(images, list | tuple) or not isinstance(flags, list | tuple | np.ndarray):
        raise InputError(
            f"{place}: not a verification pack; it must hold a list of images and a list of flags."
        )
    same = np.array([_as_flag(place, number, flag) for number, flag in enumerate(flags)], bool)
    if not len(same) or len(images) != 2 * len(same):
        raise InputError(
            f"{place}: {len(images):,} images for {len(same):,} pairs; two images per pair are needed."
        )
    return VerificationPack(
        tuple(_as_bytes(place, row, image) for row, image in enumerate(images)), same, str(place)
    )


def _as_flag(file: Path, number: int, flag: Any) -> bool:
    if isinstance(flag, bool | int | np.bool_ | np.integer) and flag in (0, 1):
        return bool(flag)
    raise InputError(f"{file}: flag {number} (counted from 0) is neither true nor false.")


def _as_bytes(file: Path, row: int, image: Any) -> bytes:
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return image.tobytes()
    raise InputError(f"{file}: image {row} (counted from 0) is neither bytes nor a uint8 array.")


class _RefusedError(pickle.UnpicklingError):
    """The file asks for something a verification pack does not need."""


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How old protocols spell bytes; any other codec than latin1 is refused."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _RefusedError("an encoding other than latin1")
    return text.encode("latin1")


def _dtype(kind: Any, *flags: Any) -> np.dtype[Any]:
    """Plain number types only; records and Python objects are refused."""
    if kind not in ("u1", "b1", "i1", "i4", "i8", b"u1", b"b1", b"i1", b"i4", b"i8") or len(flags) > 2:
        raise _RefusedError(f"arrays of {kind!r}")
    return np.dtype(kind.decode() if isinstance(kind, bytes) else kind)


class _PlainArray(np.ndarray[Any, Any]):
    """The only array a pack can make; its state is checked before NumPy sees it."""

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], np.dtype)):
            raise _RefusedError("an array in an unknown form")
        if state[2].hasobject or not isinstance(state[4], bytes):
            raise _RefusedError("an array of Python objects")
        super().__setstate__(state)


def _reconstruct(*_ignored: Any) -> _PlainArray:
    return _PlainArray((0,), np.uint8)


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any = "C") -> Any:
    if (
        not isinstance(content, bytes | bytearray)
        or not isinstance(kind, np.dtype)
        or order not in ("C", "F")
    ):
        raise _RefusedError("an array in an unknown form")
    return np.frombuffer(content, kind).reshape(shape, order=order)


def _scalar(kind: Any, content: Any) -> Any:
    if not isinstance(kind, np.dtype) or kind.hasobject or not isinstance(content, bytes):
        raise _RefusedError("a number in an unknown form")
    return np.frombuffer(content, kind, 1)[0]


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): _PlainArray,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _KNOWN[(_module, "_reconstruct")] = _reconstruct
    _KNOWN[(_module, "scalar")] = _scalar
for _module in ("numpy.core.numeric", "numpy._core.numeric"):
    _KNOWN[(_module, "_frombuffer")] = _from_buffer


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise _RefusedError(f"{module}.{name}")
        return known

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002
        raise _RefusedError("a reference to something outside the file")


def _restricted_load(file: Path, stream: io.BufferedReader) -> Any:
    try:
        return _RestrictedUnpickler(stream, encoding="bytes").load()
    except _RefusedError as error:
        raise InputError(
            f"{file}: refused, this pickle asks for {error}; a verification pack holds bytes and flags only."
        ) from None
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError, ImportError, MemoryError,
        OverflowError, RecursionError,
    ):  # fmt: skip
        raise InputError(f"{file}: cut short or not a verification pack; copy it again.") from None

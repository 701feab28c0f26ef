"""Array type names, array validation, and data classes stored on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]


def read_only(array: AnyArray, dtype: npt.DTypeLike | None = None) -> AnyArray:
    """Return a read-only view of an array, or a copy if the dtype differs; the caller's is unchanged."""
    view = np.asarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


class Artifact:
    """A data class that is kept as an artifact folder."""

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write it as an artifact folder, without pickle."""
        from cdp.storage.artifacts import save

        save(self, path, force=force)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From an artifact folder."""
        from cdp.storage.artifacts import load

        return load(path, cls)

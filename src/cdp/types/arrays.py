"""Names for array types, and the one way an array becomes part of a data class."""

from __future__ import annotations

from typing import Any

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
    """A read-only view (or, where the dtype differs, a copy) of an array; the caller's stays as it is."""
    view = np.asarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view

"""Compilation of loops: on first use, cached on disk, without the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a loop that runs on one thread.

    Callers hand blocks to `cdp.runtime.parallel`, so results do not depend on the number of threads.
    """
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def sum_kernel(function: Function) -> Function:
    """Like `kernel`, for loops that add floats: partial sums may be formed, always in the same way."""
    return cast(Function, numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})(function))


def pixel_kernel(function: Function) -> Function:
    """Like `sum_kernel`, for loops over pixels: a division by zero gives infinity instead of an error."""
    compiled = numba.njit(
        cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"}
    )
    return cast(Function, compiled(function))

"""Memory budgets: how many rows fit."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from contextlib import suppress

from cdp.errors import CdpError, InputError

_RAN_OUT = re.compile(
    "failed to map segment|[Cc]an(no|')t allocate memory|out of memory|can't start new thread|load shared "
    "object file"
)
_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}

_MOST = 2.0**63
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Measured: what NumPy, SciPy, Numba, scikit-learn and Arrow map together, and what two OpenBLAS take per
# thread.
_LIBRARIES = 640 * 10**6
_LIBRARIES_PER_THREAD = 82 * 10**6


def parse_bytes(budget: int | float | str) -> int:
    """Parse bytes from `"2GB"`, `"500 MiB"` or a plain number."""
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", budget)
        unit = match and _UNITS.get(match[2].upper())
        if not match or not unit:
            raise InputError(
                f"memory_budget: {budget!r} is not a size; write for example '2GB' or '500MB'.",
                code="memory-budget-not-a-size",
                value=budget,
            )
        amount = float(match[1]) * unit
    else:
        amount = float(budget)
    if not 1 <= amount <= _MOST:
        raise InputError(
            f"memory_budget: {budget!r} is not a size; write for example '2GB' or '500MB'.",
            code="memory-budget-not-a-size",
            value=budget,
        )
    return int(amount)


def check_address_space() -> None:
    """Refuse a limited address space (`ulimit -v`) that the libraries alone would fill.

    OpenBLAS, loaded where there is no room for its buffers, asks for them again and again without end.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    asked = os.environ.get("OPENBLAS_NUM_THREADS", "")
    threads = int(asked) if asked.isdecimal() else os.cpu_count() or 1
    needed = _LIBRARIES + _LIBRARIES_PER_THREAD * threads
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise CdpError(
            f"The address space is limited to {limit / 1e6:,.0f} MB (ulimit -v), but the libraries "
            f"need {needed / 1e6:,.0f} MB; raise the limit, or set OPENBLAS_NUM_THREADS=1.",
            code="address-space-too-small",
            expected=needed,
            found=limit,
        )


def return_freed_memory() -> None:
    """Let the allocator give blocks of a megabyte back as soon as they are freed, where it is glibc's.

    Left to itself it keeps up to 64 MB per thread for later, which a small memory budget has no room for.
    """
    with suppress(OSError, AttributeError, TypeError):  # another system, or another C library
        adjust = ctypes.CDLL(None).mallopt
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            adjust(parameter, 2**20)


def is_memory_error(error: BaseException) -> bool:
    """Test for exhausted memory or address space in Python, torch, threads or the library loader."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError | OSError | ImportError) and bool(_RAN_OUT.search(str(error)))


def rows_within(budget: int | float | str, bytes_per_row: int, at_least: int = 1024) -> int:
    """Return how many rows of a block fit the budget; never so few that the overhead per block would rule."""
    return max(at_least, parse_bytes(budget) // max(1, bytes_per_row))


def give_back() -> None:
    """Return free memory held by the C library to the system, where possible."""
    with suppress(OSError, AttributeError, TypeError):  # another C library, or none
        ctypes.CDLL(None).malloc_trim(0)

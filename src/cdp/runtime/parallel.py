"""Blocks of work on threads or other workers; results do not depend on their number."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar, cast

from threadpoolctl import ThreadpoolController

from cdp.errors import InputError

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


def count_threads(threads: int = 0) -> int:
    """Return the number of threads to use; with 0, all cores that this process may use."""
    if threads == 0:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else (os.cpu_count() or 1)
    if threads < 0:
        raise InputError(
            f"threads={threads}: give a number of threads, or 0 for all cores.",
            code="threads-negative",
            value=threads,
        )
    return threads


def on_one_thread(kind: str) -> AbstractContextManager[Any]:
    """Limit libraries to one thread in a `with` block: BLAS (`blas`) or OpenMP (`openmp`)."""
    limit = _find_libraries(len(sys.modules)).limit(limits=1, user_api=kind)
    return cast(AbstractContextManager[Any], limit)


@lru_cache(maxsize=1)
def _find_libraries(n_modules: int) -> ThreadpoolController:  # noqa: ARG001
    """Find the loaded thread-pool libraries; searched again after new imports."""
    return ThreadpoolController()


def map_blocks(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = 0
) -> Iterator[Result]:
    """function(item) for every item, in order, on threads.

    Matrix products inside run on one thread each: their rounding then depends on the block alone. At most two
    items per thread are under way, so memory stays bounded however many there are.
    """
    n_threads = count_threads(threads)
    waiting = iter(items)
    with on_one_thread("blas"), ThreadPoolExecutor(n_threads) as pool:
        running: list[Future[Result]] = [
            pool.submit(function, item) for item in islice(waiting, 2 * n_threads)
        ]
        try:
            while running:
                yield running.pop(0).result()
                running.extend(pool.submit(function, item) for item in islice(waiting, 1))
        finally:
            for future in running:
                future.cancel()

"""Blocks on threads. Blocks do not depend on the number of threads, so neither do results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from threadpoolctl import threadpool_limits

from cdp.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def count_threads(threads: int = 0) -> int:
    """Number of threads to use: so many, or with 0 as many as this process may run on."""
    if threads == 0:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else (os.cpu_count() or 1)
    if threads < 0:
        raise InputError(f"threads={threads}: give a number of threads, or 0 for all cores.")
    return threads


def map_blocks(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = 0
) -> Iterator[Result]:
    """function(item) for every item, in order, on threads.

    Matrix products inside run on one thread each: their rounding then depends on the block alone. At most two
    items per thread are under way, so memory stays bounded however many there are.
    """
    n_threads = count_threads(threads)
    waiting = iter(items)
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
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


def spans(n_rows: int, rows_per_block: int) -> list[tuple[int, int]]:
    """0..n_rows cut into (start, stop) blocks."""
    return [(start, min(start + rows_per_block, n_rows)) for start in range(0, n_rows, rows_per_block)]

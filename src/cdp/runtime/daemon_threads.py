"""Threads that are given up where they do not end: nothing interrupts a model in the middle of a node."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")
PATIENCE = 2.0
"""Seconds that an interrupted computation gets to end."""
_POLL = 0.05
_given_up: list[Thread] = []


def is_given_up() -> bool:
    """Check whether threads still compute that nobody waits for.

    Python must not tear itself down around them; the process ends by `os._exit`.
    """
    return any(one.is_alive() for one in _given_up)


class DaemonPool:
    """A pool of threads that the end of the process does not wait for."""

    def __init__(self, n_threads: int) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(n_threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., Result], *values: Any) -> Future[Result]:
        """Compute function(*values) on one of the threads."""
        future: Future[Result] = Future()

        def compute() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*values))
                except BaseException as error:
                    future.set_exception(error)

        self._jobs.put(compute)
        return future

    def close(self, stop: Callable[[], bool]) -> None:
        """Wait for the threads, or give them up.

        Args:
            stop: asks what is under way to end; whether there is something that may not obey. It is called
                again and again, because a thread may begin another computation meanwhile.
        """
        for _ in self._threads:
            self._jobs.put(None)
        patience = time.monotonic() + PATIENCE
        try:
            while running := [one for one in self._threads if one.is_alive()]:
                if stop() and time.monotonic() > patience:
                    break
                running[0].join(_POLL)
        finally:
            _given_up.extend(one for one in self._threads if one.is_alive())

    def _work(self) -> None:
        # No name holds a job while the next one is waited for, so that its arrays are freed.
        while _do(self._jobs.get()):
            pass


def _do(job: Callable[[], None] | None) -> bool:
    if job is None:
        return False
    job()
    return True


def compute_aside(function: Callable[..., Result], *values: Any, stop: Callable[[], bool]) -> Result:
    """Compute function(*values) on another thread: the main thread gets signals while it waits.

    Args:
        stop: see `DaemonPool.close`.
    """
    pool = DaemonPool(1)
    try:
        return pool.submit(function, *values).result()
    finally:
        pool.close(stop)

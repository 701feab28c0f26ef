"""A pool whose threads are given up where they do not end."""

import gc
import threading
import weakref

import numpy as np
import pytest

from cdp.runtime import daemon_threads
from cdp.runtime.daemon_threads import DaemonPool, compute_aside, is_given_up


def test_results_and_errors_in_any_order():
    pool = DaemonPool(2)
    squares = [pool.submit(pow, number, 2) for number in range(20)]
    failed = pool.submit(divmod, 1, 0)
    assert [one.result() for one in squares] == [number**2 for number in range(20)]
    with pytest.raises(ZeroDivisionError):
        failed.result()
    pool.close(lambda: False)
    assert not is_given_up()


def test_what_is_done_is_not_kept_alive():
    pool = DaemonPool(1)
    future = pool.submit(np.zeros, 5)
    kept = weakref.ref(future.result())
    pool.submit(int).result()
    del future
    gc.collect()
    assert kept() is None
    pool.close(lambda: False)


def test_what_obeys_is_waited_for():
    asked = threading.Event()
    pool = DaemonPool(1)
    future = pool.submit(asked.wait, 30)
    pool.close(lambda: asked.set() or True)
    assert future.result() is True
    assert not is_given_up()


def test_what_does_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(daemon_threads, "PATIENCE", 0.1)
    begun, goes_on = threading.Event(), threading.Event()

    def compute():
        begun.set()
        goes_on.wait(30)

    pool = DaemonPool(1)
    future = pool.submit(compute)
    assert begun.wait(30)
    pool.close(lambda: True)
    assert is_given_up()
    goes_on.set()
    future.result()
    daemon_threads._given_up[-1].join()
    assert not is_given_up()


def test_aside():
    assert compute_aside(threading.current_thread, stop=lambda: False) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        compute_aside(divmod, 1, 0, stop=lambda: False)

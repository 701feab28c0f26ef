"""Ctrl-C and SIGTERM: one sentence that says what is kept, and 130 or 143 as the exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from cdp.errors import NO_WINDOWS

_WORDS = {signal.SIGINT: "Interrupted", signal.SIGTERM: "Terminated"}
_received: list[int] = []
_begun = False


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end; the message says what is kept."""


def prepare_process() -> None:
    """Refuse what cdp does not run on, and let threads of OpenMP sleep while they wait.

    By default they spin, and so take the core that another process, or the thread they wait for, needs:
    training on two threads is ten to twenty times slower while something else uses a core. It must be said
    before PyTorch is loaded; what the user has said counts.
    """
    if sys.platform == "win32":
        sys.exit(f"Error: {NO_WINDOWS}")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not (threads.isascii() and threads.isdecimal() and 0 < len(threads) < 6 and int(threads)):
        sys.exit(
            f"Error: NUMBA_NUM_THREADS={threads!r}: a number of threads is needed, 1 to 99,999; unset it."
        )


def answer_at_once() -> None:
    """End the process with a sentence on a signal, until a command has begun.

    Not by an exception, because that would come out of whatever module is being imported.
    """
    _answer(_leave)


@contextmanager
def raised_signals() -> Iterator[None]:
    """Turn signals into exceptions while a command works, so that half-written files are removed."""
    global _begun
    _begun = True
    before = {number: signal.getsignal(number) for number in _WORDS}
    _received.clear()
    _answer(_raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            if threading.current_thread() is threading.main_thread() and handler is not None:
                signal.signal(number, handler)


@contextmanager
def resumable() -> Iterator[None]:
    """Tell the user on a signal that the same command continues."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped("what is done is kept, type the same command again to go on") from None


def stop_sentence(error: BaseException) -> tuple[str, int] | None:
    """Return what to say and the exit code, if a signal is why something was raised; else None.

    A library that is interrupted while it loads may raise another error instead.
    """
    if not _received and not isinstance(error, KeyboardInterrupt):
        return None
    number = _received[0] if _received else signal.SIGINT
    kept = str(error) if isinstance(error, Stopped) else "no output was changed"
    return _sentence(number, kept), 128 + number


def _sentence(number: int, kept: str) -> str:
    return f"{_WORDS[signal.Signals(number)]}; {kept}."


def _answer(handler: signal._HANDLER) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _WORDS:
        # A shell starts background jobs with the interrupt ignored, and nohup means it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    sys.stderr.write(_sentence(number, "what was written is whole" if _begun else "nothing was begun") + "\n")
    sys.stderr.flush()
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    is_first = not _received
    _received.append(number)
    # Raised in the import machinery an exception may be swallowed; so ask again in a moment.
    if frame is None or not frame.f_code.co_filename.startswith("<frozen importlib"):
        raise KeyboardInterrupt
    if is_first:
        later = threading.Timer(0.05, _ask_again, (number,))
        later.daemon = True
        later.start()


def _ask_again(number: int) -> None:
    _received.clear()
    os.kill(os.getpid(), number)

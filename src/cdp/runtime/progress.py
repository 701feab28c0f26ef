"""Progress of long steps: a callback that does nothing, or bars for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


class Progress(Protocol):
    """Called as work goes on: the step's name, how much is done, of how much (0 = not known yet)."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Take note."""


def no_progress(step: str, done: int, total: int) -> None:
    """Ignore progress."""


def make_bars(*, transient: bool = False) -> Bars:
    """Bars with the time left, on standard error; `transient` ones vanish when they are done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=transient,
    )


@contextmanager
def progress_bars(enabled: bool = True) -> Iterator[Progress]:
    """Provide a callback that draws one bar per step with the time left, on standard error.

    An error that leaves the block gets a note of the step that was under way.
    """
    tasks: dict[str, TaskID] = {}
    at = ""

    def progress(step: str, done: int, total: int) -> None:
        nonlocal at
        at = f"after {step}" if done == total else step
        if bars is None:
            return
        if step not in tasks:
            tasks[step] = bars.add_task(step, total=total or None)
        bars.update(tasks[step], completed=done, total=total or None)

    with make_bars() if enabled else nullcontext() as bars:
        try:
            yield progress
        except Exception as error:
            if at:
                error.add_note(at)
            raise

"""Who watches a long step: nobody, or a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Called as work goes on: the step's name, how much is done, of how much (0 = nobody knows yet)."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Take note."""


def no_progress(step: str, done: int, total: int) -> None:
    """The silent watch."""


@contextmanager
def progress_bars(enabled: bool = True) -> Iterator[Progress]:
    """A watch that draws one bar per step with the time left, on standard error."""
    if not enabled:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, object] = {}

        def progress(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total or None)
            bars.update(tasks[step], completed=done, total=total or None)  # type: ignore[arg-type]

        yield progress

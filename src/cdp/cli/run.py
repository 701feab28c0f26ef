"""`cdp run` and `cdp demo`: a recipe from images to the report, told on the terminal or as JSON lines."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from cdp.cli.app import InterruptedRunError
from cdp.config.sections import RunRecipe
from cdp.run.go import Outcome, plan_recipe, run_recipe
from cdp.run.runner import Listener, NullListener
from cdp.run.stages import Record, Stage


@dataclass(frozen=True)
class RunSettings:
    """What `cdp run` is told beside the recipe."""

    out: Path
    command: str
    quiet: bool = False
    as_json: bool = False


def run(recipe: RunRecipe, settings: RunSettings) -> None:
    """Run a recipe and say how it went."""
    with _listening(settings) as listener, warnings_as_lines(as_json=settings.as_json):
        try:
            outcome = run_recipe(recipe, settings.out, command=settings.command, listener=listener)
        except KeyboardInterrupt:
            raise InterruptedRunError("Interrupted; type the same command again to go on.") from None
    if settings.as_json:
        say_line("run", {"folder": str(settings.out), "report": str(outcome.report), **_summary(outcome)})
    elif not settings.quiet:
        say_outcome(outcome)


def show_plan(recipe: RunRecipe, settings: RunSettings) -> None:
    """Say what would run, and why."""
    planned = plan_recipe(recipe, settings.out)
    if settings.as_json:
        for one in planned:
            say_line("plan", {"stage": one.stage.name, "state": one.state, "why": one.why})
        return
    table = Table(title=f"What cdp run would do in {settings.out}", title_justify="left")
    for name in ("stage", "", "why"):
        table.add_column(name)
    words = {"fresh": "[green]kept[/]", "run": "[bold]runs[/]", "perhaps": "[yellow]runs if changed[/]"}
    for one in planned:
        table.add_row(one.stage.name, words[one.state], one.why)
    console = Console()
    console.print(table)
    n_runs = sum(one.state == "run" for one in planned)
    n_perhaps = sum(one.state == "perhaps" for one in planned)
    console.print(
        f"{n_runs} of {len(planned)} stages run, {n_perhaps} more if what they are made from changes.",
        highlight=False,
    )


def say_outcome(outcome: Outcome) -> None:
    """The closing table, in words too."""
    headline = outcome.record["results"]["headline"]
    labels = outcome.record["results"]["labels"]
    console = Console()
    table = Table(title=f"{headline['network']} on people it never saw", title_justify="left")
    table.add_column("trained on")
    table.add_column("images", justify="right")
    table.add_column("rank-1", justify="right")
    for figure in headline["models"][0]["tpr"]:
        table.add_column(f"TPR at FPR {figure['fpr']:g}", justify="right")
    for model in headline["models"]:
        cells = [_figure(model["rank1"]), *(_figure(one) for one in model["tpr"])]
        table.add_row(model["title"], f"{model['images']:,}", *cells)
    gap = headline["gap_closed"]
    if gap is not None:
        table.add_section()
        table.add_row(
            "share of the gap closed", "", _percent(gap["rank1"]), *(_percent(one) for one in gap["tpr"])
        )
    console.print(table)
    n_images = outcome.record["parts"]["unlabeled"]["images"]
    said = (
        f"{labels['identities_found']:,} pseudo-identities for {100 * labels['coverage']:.0f} % of "
        f"{n_images:,} unlabeled images"
    )
    if labels["true"] is not None and labels["true"]["discards_kept"]["pairwise"]["f"] is not None:
        pairwise = labels["true"]["discards_kept"]["pairwise"]
        said += f"; pairwise F {pairwise['f']:.3f}, precision {pairwise['precision'] or 0:.3f}"
    console.print(f"{said}.\nOpen {outcome.report} in a browser.", highlight=False, soft_wrap=True)


def _figure(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return "–"
    band = "" if figure["low"] is None else f" ({figure['low']:.3f}–{figure['high']:.3f})"
    return f"{figure['value']:.3f}{band}"


def _percent(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return "–"
    band = "" if figure["low"] is None else f" ({100 * figure['low']:.0f}–{100 * figure['high']:.0f})"
    return f"{100 * figure['value']:.0f} %{band}"


def _summary(outcome: Outcome) -> dict[str, Any]:
    headline = outcome.record["results"]["headline"]
    return {
        "seconds": round(outcome.record["seconds"], 1),
        "rank1": {model["key"]: model["rank1"]["value"] for model in headline["models"]},
        "gap_closed": None if headline["gap_closed"] is None else headline["gap_closed"]["rank1"]["value"],
    }


@contextmanager
def _listening(settings: RunSettings) -> Iterator[Listener]:
    if settings.as_json:
        yield JsonLines()
    elif settings.quiet:
        yield NullListener()
    else:
        with bars() as drawn:
            yield Terminal(drawn)


def bars() -> Progress:
    """Bars on standard error that vanish when they are done."""
    return Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


@dataclass
class Terminal:
    """A line per stage, and a bar for what goes on."""

    bars: Progress
    tasks: dict[str, TaskID] = field(default_factory=dict)

    def started(self, stage: Stage, why: str, at: int, n_stages: int) -> None:
        """A bar that says why the stage runs."""
        self.tasks["stage"] = self.bars.add_task(f"{at}/{n_stages} {stage.name}: {why}", total=None)

    def progress(self, step: str, done: int, total: int) -> None:
        """Move the bar of this step."""
        if "stage" in self.tasks:
            self.bars.remove_task(self.tasks.pop("stage"))
        if step not in self.tasks:
            self.tasks[step] = self.bars.add_task(
                step, total=total or None, completed=0 if done == total else done
            )
        self.bars.update(self.tasks[step], completed=done, total=total or None)

    def finished(self, stage: Stage, record: Record, *, fresh: bool, at: int, n_stages: int) -> None:
        """The stage's line."""
        self.clear()
        mark, told = ("[dim]=[/]", "[dim]kept[/]") if fresh else ("[green]✓[/]", f"{record.seconds:7.1f} s")
        self.bars.console.print(f"{mark} {at:2d}/{n_stages}  {stage.name:<34} {told}", highlight=False)

    def clear(self) -> None:
        """Take all bars away."""
        for task in self.tasks.values():
            self.bars.remove_task(task)
        self.tasks.clear()


class JsonLines:
    """One JSON object per line on standard output."""

    def __init__(self) -> None:
        self._last = 0.0

    def started(self, stage: Stage, why: str, at: int, n_stages: int) -> None:
        """A stage begins."""
        say_line("started", {"stage": stage.name, "why": why, "at": at, "of": n_stages})

    def progress(self, step: str, done: int, total: int) -> None:
        """At most one line a second, and the last one."""
        now = time.monotonic()
        if now - self._last >= 1 or done == total:
            self._last = now
            say_line("progress", {"step": step, "done": done, "total": total})

    def finished(self, stage: Stage, record: Record, *, fresh: bool, at: int, n_stages: int) -> None:
        """A stage is done."""
        told = {
            "stage": stage.name,
            "fresh": fresh,
            "seconds": round(record.seconds, 3),
            "peak_memory": record.peak_memory,
            "at": at,
            "of": n_stages,
        }
        say_line("finished", told)


def say_line(event: str, told: dict[str, Any]) -> None:
    """One JSON object on a line of standard output."""
    sys.stdout.write(json.dumps({"event": event, **told}) + "\n")
    sys.stdout.flush()


@contextmanager
def warnings_as_lines(*, as_json: bool) -> Iterator[None]:
    """Warnings told as everything else is."""

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        if as_json:
            say_line("warning", {"text": str(message)})
        else:
            Console(stderr=True).print(f"Warning: {message}", soft_wrap=True, highlight=False)

    with warnings.catch_warnings():
        warnings.showwarning = say
        yield


def typed_command(arguments: Sequence[str]) -> str:
    """The command as it was typed, for the record."""
    import shlex

    return shlex.join(["cdp", *arguments])

"""What people read in a terminal: tables of figures, a line per stage, JSON lines."""

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

import numpy as np
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import TaskID
from rich.table import Table

from cdp.evaluate.label_figures import LabelFigures
from cdp.lab.synthetic import SyntheticSplit
from cdp.labeling.pipeline import Labeling
from cdp.progress import make_bars
from cdp.run.runner import Listener
from cdp.run.stages import Record, Stage
from cdp.types import Fate
from cdp.types.run_record import Figure, GroupScores, Headline, Results, RunRecord, Score, TrueFigures


def percent(value: float | None) -> str:
    """`93.7 %`, or `undefined` where nothing could be counted."""
    return "undefined" if value is None else f"{100 * value:.1f} %"


def decimals(value: float | None) -> str:
    """`0.937`, or `undefined` where nothing could be counted."""
    return "undefined" if value is None else f"{value:.3f}"


def say(console: Console, text: str) -> None:
    """A line as it is, however long."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def print_labeling(labeling: Labeling, results: Results, out: Path) -> None:
    """The closing tables of `cdp label`."""
    console = Console()
    labels, settings = labeling.labels, labeling.settings
    table = Table(title="Labels", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    table.add_row("images", f"{labels.n_images:,}")
    table.add_row("identities found", f"{labels.n_identities:,}")
    table.add_row("accepted pairs", f"{len(labeling.accepted):,}")
    for kind in Fate:
        count = results.labels.fates[kind.name.lower()]
        if count or kind is Fate.LABELED:
            table.add_row(kind.sentence, f"{count:,}  ({percent(count / labels.n_images)})")
    if labels.n_identities:
        sizes = f"{np.median(labels.sizes):g} / {labels.sizes.max()}"
        table.add_row("images per identity, median / largest", sizes)
        low, middle = np.quantile(labels.confidence[labels.labels >= 0], [0.05, 0.5])
        table.add_row("confidence, 5 % / median", f"{low:.3f} / {middle:.3f}")
    how = "tuned" if labeling.tuning is not None else "given"
    table.add_row(f"{settings.bar_key}, {how}", f"{settings.bar:g}")
    recalls = [graph.recall for graph in labeling.graphs.values() if graph.recall is not None]
    if recalls:
        table.add_row("recall of the approximate graphs", f"{min(recalls):.3f} to {max(recalls):.3f}")
    table.add_row("seconds", f"{sum(labeling.seconds.values()):.1f}")
    console.print(table)
    for note in labeling.notes:
        say(console, note)
    if results.labels.true is not None:
        print_true_figures(results.labels.true, console)
    say(console, f"Written to {out}. Next: cdp show {out}")


def print_true_figures(true: TrueFigures, console: Console | None = None) -> None:
    """Figures against true identities."""
    console = console or Console()
    table = Table(title="Against the true identities", title_justify="left")
    for name in ("", "precision", "recall", "F", "NMI"):
        table.add_column(name, justify="left" if not name else "right")
    if true.pairs is not None:
        table.add_row(
            "accepted pairs, among candidates",
            decimals(true.pairs.precision),
            decimals(true.pairs.recall),
            "",
            "",
        )
    for name, group in (
        ("discards as groups of one", true.discards_kept),
        ("discards removed", true.discards_removed),
    ):
        _add_scores(table, name, group)
    console.print(table)
    say(
        console,
        f"{percent(true.coverage)} of {true.images:,} images labeled; {true.identities_found:,} identities "
        f"found, {true.identities_true:,} true ones ({true.identities_true_shared:,} with two images or more).",
    )
    _print_sizes(true, console)


def _print_sizes(true: TrueFigures, console: Console) -> None:
    """How many identities have how many images, in bins of doubling width."""
    table = Table(title="Images per identity", title_justify="left")
    table.add_column("")
    found, known = np.array(true.sizes_found, np.int64), np.array(true.sizes, np.int64)
    rows: dict[str, list[str]] = {"found": [], "true": []}
    low = high = 1
    while low <= max(found.max(initial=1), known.max(initial=1)):
        table.add_column(str(low) if low == high else f"{low}-{high}", justify="right")
        for name, sizes in (("found", found), ("true", known)):
            rows[name].append(f"{int(((sizes >= low) & (sizes <= high)).sum()):,}")
        low, high = high + 1, 2 * high
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)


def _add_scores(table: Table, name: str, group: GroupScores) -> None:
    def row(kind: str, score: Score, nmi: str) -> None:
        values = (decimals(score.precision), decimals(score.recall), decimals(score.f))
        table.add_row(f"{kind}, {name}", *values, nmi)

    row("pairwise", group.pairwise, "")
    row("BCubed", group.bcubed, decimals(group.nmi))


def print_example(split: SyntheticSplit, rows: Sequence[tuple[str, LabelFigures]], out: Path) -> None:
    """The closing table of `cdp example`."""
    console = Console()
    say(console, f"Labeled part:   {split.labeled}")
    say(console, f"Unlabeled part: {split.unlabeled}")
    table = Table(
        title="Pseudo-labels: pairwise figures, BCubed F, share of images labeled", title_justify="left"
    )
    for name in ("", "precision", "recall", "F", "BCubed", "labeled", "found"):
        table.add_column(name, justify="left" if not name else "right")
    for name, figures in rows:
        pairwise, bcubed = figures.discards_kept.pairwise, figures.discards_kept.bcubed
        scores = [decimals(value) for value in (pairwise.precision, pairwise.recall, pairwise.f, bcubed.f)]
        table.add_row(name, *scores, percent(figures.coverage), f"{figures.identities_found:,}")
    console.print(table)
    say(
        console,
        f"{rows[0][1].identities_true_shared:,} people have two images or more and could be found. "
        "Discarded images count as groups of one.\n"
        f"The last way's labels are in {out / 'labels'}. The same by hand:\n"
        f"  cdp label {out / 'views/unlabeled'} --labeled {out / 'views/labeled'} --out mylabels\n"
        f"  cdp show {out / 'labels'}",
    )


def print_run(record: RunRecord, report: Path) -> None:
    """The closing table of `cdp run`, in words too."""
    console = Console()
    labels = record.results.labels
    if record.results.headline is not None:
        console.print(_headline_table(record.results.headline))
    for note in record.notes:
        say(console, note)
    n_images = record.parts["unlabeled"].images
    text = (
        f"{labels.identities_found:,} pseudo-identities for {100 * labels.coverage:.0f} % of {n_images:,} "
        "unlabeled images"
    )
    pairwise = None if labels.true is None else labels.true.discards_kept.pairwise
    if pairwise is not None and pairwise.f is not None:
        text += f"; pairwise F {pairwise.f:.3f}, precision {pairwise.precision or 0:.3f}"
    say(console, f"{text}; labels/labels.csv in the run's folder names them.\nOpen {report} in a browser.")


def _headline_table(headline: Headline) -> Table:
    table = Table(title=f"{headline.network} on people it never saw", title_justify="left")
    table.add_column("trained on")
    table.add_column("images", justify="right")
    table.add_column("rank-1", justify="right")
    for rate in headline.models[0].tpr:
        table.add_column(f"TPR at FPR {rate.fpr:g}", justify="right")
    for model in headline.models:
        cells = [_figure(model.rank1, 1, 3), *(_figure(rate, 1, 3) for rate in model.tpr)]
        table.add_row(model.title, f"{model.images:,}", *cells)
    gap = headline.gap_closed
    if gap is not None:
        table.add_section()
        shares = [_figure(gap.rank1, 100, 0), *(_figure(rate, 100, 0) for rate in gap.tpr)]
        table.add_row("share of the gap closed", "", *shares)
    return table


def _figure(figure: Figure, factor: int, digits: int) -> str:
    """`0.890 (0.868–0.911)` or `84 % (71–96)`."""
    if figure.value is None:
        return "–"
    unit = " %" if factor == 100 else ""
    band = ""
    if figure.low is not None and figure.high is not None:
        band = f" ({factor * figure.low:.{digits}f}–{factor * figure.high:.{digits}f})"
    return f"{factor * figure.value:.{digits}f}{unit}{band}"


@contextmanager
def listening(*, as_json: bool, quiet: bool) -> Iterator[Listener]:
    """Who is told how a run goes: JSON lines, nobody, or a person at a terminal; warnings are told the same way."""
    with warnings_as_lines(as_json=as_json):
        if as_json:
            yield JsonLines()
        elif quiet:
            yield Listener()
        else:
            with make_bars(transient=True) as bars:
                yield Terminal(bars)


@dataclass
class Terminal:
    """A line per stage, and a bar for what goes on."""

    bars: Bars
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
        mark, words = ("[dim]=[/]", "[dim]kept[/]") if fresh else ("[green]✓[/]", f"{record.seconds:7.1f} s")
        self.bars.console.print(f"{mark} {at:2d}/{n_stages}  {stage.name:<34} {words}", highlight=False)

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
        about = {
            "stage": stage.name,
            "fresh": fresh,
            "seconds": round(record.seconds, 3),
            "at": at,
            "of": n_stages,
        }
        say_line("finished", {**about, "peak_memory": record.peak_memory})


def say_line(event: str, about: dict[str, Any]) -> None:
    """One JSON object on a line of standard output."""
    sys.stdout.write(json.dumps({"event": event, **about}) + "\n")
    sys.stdout.flush()


@contextmanager
def warnings_as_lines(*, as_json: bool) -> Iterator[None]:
    """Warnings told as everything else is."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        if as_json:
            say_line("warning", {"text": str(message)})
        else:
            say(Console(stderr=True), f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield

"""What people read in a terminal: tables of figures, a line per stage, JSON lines."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bars
from rich.progress import TaskID
from rich.table import Table
from rich.tree import Tree

from cdp.cli.app import print_table
from cdp.collection.collection import Collection
from cdp.collection.corrections import read_journal
from cdp.collection.numbering import Changes
from cdp.run.forecast import shown_time
from cdp.run.runner import Listener
from cdp.run.stages import Record, Stage
from cdp.runtime.progress import make_bars
from cdp.storage.artifacts import Card, read_json
from cdp.types import Status
from cdp.types.run_record import Figure, Headline, Results, RunRecord, Score, TrueFigures
from cdp.web import words
from cdp.web.words import counted, decimals, percent, share_with_interval

if TYPE_CHECKING:
    from cdp_lab.synthetic import SyntheticSplit

AnyListener = TypeVar("AnyListener", bound=Listener)


def with_interval(figure: Figure) -> str:
    """`0.937 (0.921–0.950)`."""
    return share_with_interval(figure.value, figure.low, figure.high)


def say(console: Console, text: str) -> None:
    """Print a line unchanged, however long."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def print_collection(collection: Collection, out: Path) -> None:
    """Print the counts, expected quality and next commands of a collection."""
    from cdp.collection.outputs import METRICS

    console = Console()
    labels, settings = collection.labels, collection.settings
    results: Results = read_json(collection.folder / METRICS, Results)
    table = Table(title="Labels", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    table.add_row("images", f"{labels.n_images:,}")
    table.add_row("identities found", f"{labels.n_identities:,}")
    if collection.names:
        table.add_row("  with a name", f"{len(collection.names):,}")
    for kind in Status:
        count = results.labels.statuses[kind.name.lower()]
        if count or kind is Status.LABELED:
            table.add_row(kind.sentence, f"{count:,}  ({percent(count / labels.n_images)})")
    if labels.n_identities:
        sizes = f"{np.median(labels.sizes):g} / {labels.sizes.max()}"
        table.add_row("images per identity, median / largest", sizes)
        low, middle = np.quantile(labels.confidence[labels.labels >= 0], [0.05, 0.5])
        table.add_row("confidence, 5 % / median", f"{low:.3f} / {middle:.3f}")
    if settings.threshold is not None:
        how = "given"
    elif results.unsupervised is not None:
        how = "estimated without labels"
    else:
        how = "the default" if results.tuning is None else "chosen on labeled identities"
    table.add_row(f"threshold ({settings.threshold_kind}), {how}", f"{collection.state.threshold:g}")
    _add_estimates(table, results)
    waiting = len(collection.corrections) and sum(
        one.id >= collection.n_applied for one in read_journal(collection.folder)
    )
    if waiting:
        table.add_row("corrections to be applied (cdp regroup)", f"{waiting:,}")
    console.print(table)
    for note in collection.state.notes:
        say(console, note)
    if results.labels.true is not None:
        print_true_figures(results.labels.true, console)
    say(
        console,
        f"{out / 'labels.csv'} lists the images, {out / 'report.html'} shows the groups.\n"
        f"Next: cdp review {out}, cdp add {out} INPUT, cdp export {out} --out FOLDER",
    )


def _add_estimates(table: Table, results: Results) -> None:
    """Add the expected quality of the labels, from labeled images or estimated without labels."""
    found = results.unsupervised
    if found is not None:
        if share := found.share_above:
            table.add_row("pairs of images that are as similar", f"1 of {round(1 / share):,}")
        if found.precision is not None:
            table.add_row("expected precision, estimated", f"{found.precision:.3f}")
    if results.expected is not None:
        for name in ("precision", "recall", "coverage"):
            table.add_row(f"expected {name}", with_interval(getattr(results.expected, name)))
    members = [] if results.committee is None else results.committee.members
    recalls = [one.graph_recall for one in members if one.graph_recall is not None]
    if recalls:
        table.add_row("recall of the approximate graphs", f"{min(recalls):.3f} to {max(recalls):.3f}")
    same = [one.same_identity_recall for one in members if one.same_identity_recall is not None]
    if same:
        table.add_row("  among neighbors of the same identity", f"{min(same):.3f} to {max(same):.3f}")


def print_changes(collection: Collection, changes: Changes, out: Path) -> None:
    """Print what a step did to the identities of a collection."""
    words = {"merged": "merged into", "split": "lost images to the new", "moved": "gave images to"}
    print(collection)
    for event in changes.events:
        if event.kind in words:
            images = counted(event.images, "image")
            print(f"  {event.identity} {words[event.kind]} {event.other} ({images}): {event.why}")
    print(changes_in_words(changes))
    print(f"{out / 'labels.csv'} and {out / 'report.html'} are up to date.")


def changes_in_words(changes: Changes) -> str:
    """`29 images joined identities, 80 identities are new, …`."""
    return (
        f"{counted(changes.joined, 'image')} joined identities, "
        f"{counted(changes.founded, 'new identity', 'new identities')}, {counted(changes.left, 'image')} "
        f"left theirs; {100 * changes.kept:.1f} % of the identities kept their number."
    )


def print_card(folder: Path, card: Card) -> None:
    """Print the card of a folder that is no collection."""
    # Whatever stands in a card is shown as it is: brackets in it are no markup.
    tree = Tree(
        f"[bold]{escape(str(folder))}[/bold]: {escape(card.kind)} (written by cdp {escape(card.cdp)})",
        highlight=True,
    )
    if card.summary:
        tree.add(escape(card.summary))
    files = tree.add("files")
    for name, array in card.arrays.items():
        shape = " x ".join(f"{side:,}" for side in array.shape)
        files.add(escape(f"{name}.npy  {array.dtype}  {shape}  sha256 {array.sha256[:12]}"))
    if card.settings:
        _add_settings(tree.add("settings"), card.settings)
    if card.made_from:
        sources = tree.add("made from")
        for name, digest in card.made_from.items():
            sources.add(escape(f"{name}  sha256 {digest[:12]}"))
    for inner in sorted(file.parent for file in folder.glob("*/card.json")):
        tree.add(escape(f"also here: cdp show {inner}"))
    Console().print(tree, soft_wrap=True)


def _add_settings(branch: Tree, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if isinstance(value, dict):
            _add_settings(branch.add(escape(name)), value)
        elif value is not None and value != []:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            branch.add(escape(f"{name} = {text if len(text) <= 80 else text[:77] + '...'}"))


def print_true_figures(true: TrueFigures, console: Console | None = None) -> None:
    """Figures against true identities."""
    console = console or Console()
    rows = []
    if true.pairs is not None:
        pairs = (decimals(true.pairs.precision, 3), decimals(true.pairs.recall, 3))
        rows.append(("accepted pairs, among candidates", *pairs, "", ""))
    groups = {"discards as groups of one": true.discards_kept, "discards removed": true.discards_removed}
    for name, group in groups.items():
        rows.append((f"pairwise, {name}", *_scores(group.pairwise), ""))
        rows.append((f"BCubed, {name}", *_scores(group.bcubed), decimals(group.nmi, 3)))
    print_table("Against the true identities", ("", ">precision", ">recall", ">F", ">NMI"), rows)
    say(
        console,
        f"{percent(true.coverage)} of {true.images:,} images labeled; {true.identities_found:,} identities "
        f"found, {true.identities_true:,} true ones ({true.identities_true_shared:,} with two images or "
        "more).",
    )
    _print_sizes(true)


def _print_sizes(true: TrueFigures) -> None:
    """Print how many identities have how many images, in bins of doubling width."""
    columns, found, known = [""], ["found"], ["true"]
    low = high = 1
    while low <= max([1, *true.sizes_found, *true.sizes]):
        columns.append(f">{low}" if low == high else f">{low}-{high}")
        for cells, sizes in ((found, true.sizes_found), (known, true.sizes)):
            cells.append(f"{sum(low <= size <= high for size in sizes):,}")
        low, high = high + 1, 2 * high
    print_table("Images per identity", columns, [found, known])


def _scores(score: Score) -> tuple[str, str, str]:
    return decimals(score.precision, 3), decimals(score.recall, 3), decimals(score.f, 3)


def print_example(split: SyntheticSplit, rows: Sequence[tuple[str, TrueFigures]], out: Path) -> None:
    """Print the closing table of `cdp demo --embeddings`."""
    console = Console()
    say(console, f"Labeled part:   {split.labeled}")
    say(console, f"Unlabeled part: {split.unlabeled}")
    cells = []
    for name, figures in rows:
        pairwise, bcubed = figures.discards_kept.pairwise, figures.discards_kept.bcubed
        scores = [decimals(value, 3) for value in (pairwise.precision, pairwise.recall, pairwise.f, bcubed.f)]
        cells.append((name, *scores, percent(figures.coverage), f"{figures.identities_found:,}"))
    title = "Pseudo-labels: pairwise figures, BCubed F, share of images labeled"
    print_table(title, ("", ">precision", ">recall", ">F", ">BCubed", ">labeled", ">found"), cells)
    say(
        console,
        f"{rows[0][1].identities_true_shared:,} people have two images or more and could be found. "
        "Discarded images count as groups of one.\n"
        f"The labels of the last row are in {out / 'faces'}. To repeat them:\n"
        f"  cdp label {out / 'unlabeled'} --labeled {out / 'labeled'} --out faces\n"
        f"  cdp show {out / 'faces'}",
    )


def print_run(record: RunRecord, out: Path) -> None:
    """Print the closing table of `cdp run`, and what was left out."""
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
    say(
        console,
        f"{text}; {out / 'labels.csv'} lists them.\nOpen {out / 'report.html'} in a browser. Next: cdp "
        f"review {out}",
    )


def _headline_table(headline: Headline) -> Table:
    table = Table(title=escape(f"{headline.network} on people it never saw"), title_justify="left")
    table.add_column("trained on", no_wrap=True)
    table.add_column("images", justify="right")
    table.add_column("rank-1", justify="right")
    for rate in headline.models[0].tpr:
        table.add_column(f"TPR at FPR {rate.fpr:g}", justify="right")
    for rate in headline.models[0].templates:
        table.add_column(f"of templates at {rate.fpr:g}", justify="right")
    for model in headline.models:
        cells = [
            with_interval(model.rank1),
            *(with_interval(rate) for rate in (*model.tpr, *model.templates)),
        ]
        table.add_row(escape(model.title), f"{model.images:,}", *cells)
    gap = headline.gap_closed
    if gap is not None:
        table.add_section()
        shares = [_in_percent(gap.rank1), *(_in_percent(rate) for rate in (*gap.tpr, *gap.templates))]
        table.add_row("share of the gap closed", "", *shares)
    return table


def _in_percent(figure: Figure) -> str:
    """`84 % (71–96 %)`."""
    return words.with_interval(figure.value, figure.low, figure.high, digits=0)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as one line each, without the place in the code that they come from."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(Console(stderr=True), f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def listening(
    silent: Callable[[], AnyListener],
    lines: Callable[[], AnyListener],
    terminal: Callable[[Bars], AnyListener],
    *,
    as_json: bool,
    quiet: bool,
) -> Iterator[AnyListener]:
    """Return the progress listener of a command: JSON Lines, silent, or bars; it also shows warnings."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if as_json:
            say_line("warning", {"text": str(message)})
        else:
            say(Console(stderr=True), f"Warning: {message}")

    with (
        warnings.catch_warnings(),
        make_bars(transient=True) if not (as_json or quiet) else nullcontext() as bars,
    ):
        warnings.showwarning = show
        if bars is not None:
            yield terminal(bars)
        else:
            yield lines() if as_json else silent()


@dataclass
class Terminal(Listener):
    """A line per stage, and a bar for what goes on."""

    bars: Bars
    tasks: dict[str, TaskID] = field(default_factory=dict)

    def started(self, stage: Stage, why: str, at: int, n_stages: int) -> None:
        """Show a bar that says why the stage runs."""
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

    def finished(
        self, stage: Stage, record: Record, *, fresh: bool, at: int, n_stages: int, left: float | None = None
    ) -> None:
        """Print the stage's line."""
        self.clear()
        mark, words = ("[dim]=[/]", "[dim]kept[/]") if fresh else ("[green]✓[/]", f"{record.seconds:7.1f} s")
        words += f"  [dim]about {shown_time(left)} left[/]" if left and left >= 60 else ""
        self.bars.console.print(
            f"{mark} {at:2d}/{n_stages}  {escape(f'{stage.name:<34}')} {words}", highlight=False
        )

    def message(self, stage: Stage, sentence: str) -> None:  # noqa: ARG002
        """Print the sentence under the stage's line."""
        say(self.bars.console, f"         {sentence}")

    def note(self, sentence: str) -> None:
        """Print the sentence on a line of its own."""
        self.clear()
        say(self.bars.console, sentence)

    def clear(self) -> None:
        """Take all bars away."""
        for task in self.tasks.values():
            self.bars.remove_task(task)
        self.tasks.clear()


class JsonLines(Listener):
    """One JSON object per line on standard output."""

    def __init__(self) -> None:
        self._last = 0.0

    def started(self, stage: Stage, why: str, at: int, n_stages: int) -> None:
        """Write that a stage begins."""
        say_line("started", {"stage": stage.name, "why": why, "at": at, "of": n_stages})

    def progress(self, step: str, done: int, total: int) -> None:
        """Write at most one line a second, and the last one."""
        now = time.monotonic()
        if now - self._last >= 1 or done == total:
            self._last = now
            say_line("progress", {"step": step, "done": done, "total": total})

    def finished(
        self, stage: Stage, record: Record, *, fresh: bool, at: int, n_stages: int, left: float | None = None
    ) -> None:
        """Write that a stage is done."""
        cost = {"seconds": round(record.seconds, 3), "peak_memory": record.peak_memory}
        about = {"left": None if left is None else round(left), **cost}
        say_line("finished", {"stage": stage.name, "fresh": fresh, "at": at, "of": n_stages, **about})

    def message(self, stage: Stage, sentence: str) -> None:
        """Write a sentence of a finished stage."""
        say_line("message", {"stage": stage.name, "sentence": sentence})

    def note(self, sentence: str) -> None:
        """Write a sentence about the whole run."""
        say_line("note", {"sentence": sentence})


def say_line(event: str, about: dict[str, Any]) -> None:
    """Print one JSON object on a line of standard output."""
    sys.stdout.write(json.dumps({"event": event, **about}) + "\n")
    sys.stdout.flush()

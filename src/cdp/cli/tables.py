"""Tables for people: what came out, in a form that fits a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from cdp.evaluate.label_figures import GroupFigures, LabelFigures
from cdp.evaluate.pair_figures import PairFigures
from cdp.types import Fate

if TYPE_CHECKING:
    from cdp.cli.label import LabelRun


def percent(value: float | None) -> str:
    """`93.7 %`, or `undefined` where nothing could be counted."""
    return "undefined" if value is None else f"{100 * value:.1f} %"


def decimals(value: float | None) -> str:
    """`0.937`, or `undefined` where nothing could be counted."""
    return "undefined" if value is None else f"{value:.3f}"


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns whose name starts with > are aligned to the right."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_label_report(run: LabelRun, out: Path) -> None:
    """The closing table of `cdp label`."""
    console = Console()
    labels = run.labels
    table = Table(title="Labels", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    table.add_row("images", f"{labels.n_images:,}")
    table.add_row("identities found", f"{labels.n_identities:,}")
    table.add_row("accepted pairs", f"{len(run.graph):,}")
    counts = np.bincount(labels.fate, minlength=len(Fate))
    for kind in Fate:
        if counts[kind] or kind is Fate.LABELED:
            table.add_row(kind.sentence, f"{counts[kind]:,}  ({percent(counts[kind] / labels.n_images)})")
    if labels.n_identities:
        table.add_row(
            "images per identity, median / largest", f"{np.median(labels.sizes):g} / {labels.sizes.max()}"
        )
        confidence = labels.confidence[labels.labels >= 0]
        table.add_row(
            "confidence, 5 % / median", " / ".join(f"{q:.3f}" for q in np.quantile(confidence, [0.05, 0.5]))
        )
    recalls = [graph.recall for graph in run.graphs if graph.recall is not None]
    if recalls:
        table.add_row("recall of the approximate graphs", f"{min(recalls):.3f} to {max(recalls):.3f}")
    table.add_row("seconds", f"{sum(run.seconds.values()):.1f}")
    console.print(table)
    if run.label_figures is not None:
        print_label_figures(run.label_figures, run.pair_figures, console)
    console.print(f"Written to {out}. Next: cdp show {out}", soft_wrap=True, highlight=False)


def print_label_figures(
    figures: LabelFigures, pairs: PairFigures | None = None, console: Console | None = None
) -> None:
    """Figures against true identities."""
    console = console or Console()
    table = Table(title="Against the true identities", title_justify="left")
    for name in ("", "precision", "recall", "F", "NMI"):
        table.add_column(name, justify="left" if not name else "right")
    if pairs is not None:
        table.add_row(
            "accepted pairs, among candidates", decimals(pairs.precision), decimals(pairs.recall), "", ""
        )
    for name, group in (
        ("discards as groups of one", figures.discards_kept),
        ("discards removed", figures.discards_removed),
    ):
        _add_scores(table, name, group)
    console.print(table)
    console.print(
        f"{percent(figures.coverage)} of {figures.images:,} images labeled; {figures.identities_found:,} identities "
        f"found, {figures.identities_true:,} true ones ({figures.identities_true_shared:,} with two images or more).",
        soft_wrap=True,
        highlight=False,
    )
    sizes = Table(title="Images per identity", title_justify="left")
    sizes.add_column("")
    for name in figures.sizes:
        sizes.add_column(name, justify="right")
    sizes.add_row("found", *(f"{found:,}" for found, _ in figures.sizes.values()))
    sizes.add_row("true", *(f"{true:,}" for _, true in figures.sizes.values()))
    console.print(sizes)


def _add_scores(table: Table, name: str, group: GroupFigures) -> None:
    for kind, score, nmi in (("pairwise", group.pairwise, ""), ("BCubed", group.bcubed, decimals(group.nmi))):
        table.add_row(
            f"{kind}, {name}", decimals(score.precision), decimals(score.recall), decimals(score.f), nmi
        )

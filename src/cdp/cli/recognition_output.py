"""How recognition figures leave: tables for people, JSON for programs, a picture for both."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cdp.evaluate.bootstrap import Comparison, Interval
from cdp.evaluate.identification import Identification
from cdp.evaluate.verification import Verification, name_fpr


@dataclass(frozen=True)
class Output:
    """How results leave: as a table or JSON on standard output, and as a picture."""

    as_json: bool = False
    picture: Path | None = None
    force: bool = False
    quiet: bool = False

    @property
    def watched(self) -> bool:
        """Whether somebody looks at progress bars."""
        return not (self.quiet or self.as_json)


def check_output(output: Output) -> None:
    """Find out before the work starts that the picture cannot be written."""
    if output.picture is not None:
        from cdp.evaluate.pictures import check_picture

        check_picture(output.picture, force=output.force)


def tell(
    measured: Sequence[tuple[str, Any]],
    found: Sequence[Comparison],
    output: Output,
    print_table: Callable[[Any, str], None],
) -> None:
    """Print one network's figures, or two networks' and their comparison."""
    if output.as_json:
        figures: dict[str, Any] = measured[0][1].as_dict()
        if len(measured) > 1:
            figures["against"] = measured[1][1].as_dict()
            figures["comparison"] = [asdict(line) for line in found]
        print(json.dumps(figures, indent=2, allow_nan=False))
    elif not output.quiet:
        for title, result in measured:
            print_table(result, title)
        if found:
            print_comparison(found)


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _band(interval: Interval | None) -> str:
    return "" if interval is None else f"{100 * interval.low:.2f} to {100 * interval.high:.2f}"


def print_verification(result: Verification, title: str) -> None:
    """The closing table of `cdp eval verification`."""
    table = Table(title=title, title_justify="left")
    for name, side in (("", "left"), ("", "right"), ("95 % interval", "right"), ("rests on", "left")):
        table.add_column(name, justify="right" if side == "right" else "left")
    if result.accuracy is not None:
        table.add_row(
            f"accuracy, {len(result.accuracy.folds)} folds",
            f"{_percent(result.accuracy.mean)} ± {100 * result.accuracy.sd:.2f}",
            _band(result.accuracy.interval),
            f"{result.pairs:,} pairs",
        )
    table.add_row(
        "best accuracy, all pairs", _percent(result.best_accuracy), "", "a threshold chosen on the same pairs"
    )
    table.add_row("equal error rate", _percent(result.eer), _band(result.eer_interval), "")
    for figure in result.tpr:
        name = f"TPR at FPR {name_fpr(figure.fpr)}"
        if figure.tpr is None:
            table.add_row(name, "not given", "", figure.reason or "")
            continue
        spread = "" if figure.sd is None else f" ± {100 * figure.sd:.2f}"
        each = " per split at least" if result.splits > 1 else ""
        table.add_row(
            name,
            f"{_percent(figure.tpr)}{spread}",
            _band(figure.interval),
            f"{figure.false_accepts:,} false accepts{each}",
        )
    console = Console()
    console.print(table)
    splits = f" in {result.splits} splits" if result.splits > 1 else ""
    console.print(
        f"{result.pairs:,} pairs{splits}, {result.impostors:,} of them different people; intervals from resampling "
        f"{result.identities:,} identities.",
        soft_wrap=True,
        highlight=False,
    )


def print_identification(result: Identification, title: str) -> None:
    """The closing table of `cdp eval identification`."""
    table = Table(title=title, title_justify="left")
    for name in ("distractors", "rank", "rate", "95 % interval"):
        table.add_column(name, justify="right")
    for figure in result.figures:
        table.add_row(
            f"{figure.distractors:,}", f"{figure.rank:,}", _percent(figure.rate), _band(figure.interval)
        )
    console = Console()
    console.print(table)
    left_out = ", ".join(f"{count:,} {what}" for what, count in result.left_out.items())
    console.print(
        f"{result.pairs.n_probes:,} probes of {result.pairs.n_identities:,} identities, {len(result.pairs):,} "
        f"ordered pairs; left out: {left_out or 'nothing'}.",
        soft_wrap=True,
        highlight=False,
    )


def print_comparison(found: Sequence[Comparison]) -> None:
    """Which of two networks is better, figure by figure."""
    table = Table(title="Against the other network, in points", title_justify="left")
    table.add_column("")
    for name in ("this", "other", "difference", "95 % interval"):
        table.add_column(name, justify="right")
    table.add_column("")
    for line in found:
        table.add_row(
            line.name,
            _percent(line.figure),
            _percent(line.against),
            f"{100 * line.difference:+.2f}",
            ""
            if line.interval is None
            else f"{100 * line.interval.low:+.2f} to {100 * line.interval.high:+.2f}",
            line.verdict or "",
        )
    Console().print(table)

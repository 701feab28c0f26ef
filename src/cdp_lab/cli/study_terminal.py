"""How a study goes on, on the terminal or as JSON lines."""

from __future__ import annotations

from collections.abc import Sequence

from cdp.cli.terminal import JsonLines, Terminal, say_line
from cdp.run.runner import Ran
from cdp.run.stages import Record, Stage
from cdp.web.words import counted, seconds
from cdp_lab.study.design import Variant
from cdp_lab.study.execute import Left, StudyListener


class StudyTerminal(Terminal, StudyListener):
    """A line per run; bars for what goes on."""

    def finished(
        self, stage: Stage, record: Record, *, fresh: bool, at: int, n_stages: int, left: float | None = None
    ) -> None:
        """Stages of a study go without lines."""
        del stage, record, fresh, at, n_stages, left
        self.clear()

    def run_finished(
        self, variant: Variant, seed: int, ran: Sequence[Ran], at: int, n_runs: int, left: Left
    ) -> None:
        """Start the run's line."""
        fresh = sum(one.fresh for one in ran)
        took = seconds(sum(one.record.seconds for one in ran if not one.fresh))
        self.bars.console.print(
            f"[green]✓[/] {at:3d}/{n_runs}  {variant.slug:<24} seed {seed}  {took:>10}, {fresh} of "
            f"{len(ran)} stages kept; {left_in_words(left)}",
            highlight=False,
            soft_wrap=True,
        )


class StudyLines(JsonLines, StudyListener):
    """One JSON object per line on standard output."""

    def run_started(self, variant: Variant, seed: int, at: int, n_runs: int, left: Left) -> None:
        """Note that a run begins."""
        say_line("run started", {"variant": variant.slug, "seed": seed, "at": at, "of": n_runs, **vars(left)})

    def run_finished(
        self, variant: Variant, seed: int, ran: Sequence[Ran], at: int, n_runs: int, left: Left
    ) -> None:
        """Note that a run is done."""
        about = {"variant": variant.slug, "seed": seed, "at": at, "of": n_runs}
        kept = sum(one.fresh for one in ran)
        say_line("run finished", {**about, "stages": len(ran), "kept": kept, "left": vars(left)})


def left_in_words(left: Left) -> str:
    """`4 runs with 12 new stages left, about 8 min 20 s`."""
    if not left.runs:
        return "all done"
    about = "time not known yet" if left.seconds is None else f"about {seconds(left.seconds)}"
    return f"{counted(left.runs, 'run')} with {counted(left.stages, 'new stage')} left, {about}"

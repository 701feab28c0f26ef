"""`cdp study`: run a study or say what it would do, told on the terminal or as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cdp.cli.app import InterruptedRunError
from cdp.cli.run import JsonLines, Terminal, bars, say_line, warnings_as_lines
from cdp.config.sections import RunRecipe
from cdp.errors import InputError, OutputExistsError
from cdp.files import write_text
from cdp.lab.study.catalog import find_study
from cdp.lab.study.design import Options, Variant
from cdp.lab.study.execute import (
    Job,
    Left,
    NullStudyListener,
    StudyListener,
    make_jobs,
    plan_study,
    run_study,
)
from cdp.lab.study.result_tables import table_of
from cdp.lab.study.study_page import comparison_page, read_chapters, read_remarks, write_text
from cdp.report.words import counted, seconds
from cdp.run.runner import Ran
from cdp.run.stages import Record, Stage


@dataclass(frozen=True)
class StudySettings:
    """What `cdp study` is told beside the recipe."""

    name: str
    out: Path
    command: str = ""
    n_seeds: int = 3
    variants: tuple[str, ...] | None = None
    sizes: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    pool: Path | None = None
    plan: bool = False
    quiet: bool = False
    as_json: bool = False


def run_or_plan(recipe: RunRecipe, settings: StudySettings) -> None:
    """Run a study, or say what it would do."""
    study = find_study(settings.name)
    jobs = make_jobs(
        study,
        recipe,
        settings.out,
        n_seeds=settings.n_seeds,
        variants=settings.variants,
        options=_options(settings),
    )
    if settings.plan:
        _show_plan(jobs, settings)
        return
    with _listening(settings) as listener, warnings_as_lines(as_json=settings.as_json):
        try:
            results = run_study(
                study,
                recipe,
                settings.out,
                jobs,
                pool=settings.pool,
                command=settings.command,
                listener=listener,
            )
        except KeyboardInterrupt:
            raise InterruptedRunError("Interrupted; type the same command again to go on.") from None
    if settings.as_json:
        told = {"study": study.name, "folder": str(settings.out), "rows": results["rows"]}
        say_line("study", {**told, "seconds": round(results["seconds"], 1)})
    elif not settings.quiet:
        header, rows = table_of(results)
        table = Table(title=study.title, title_justify="left")
        for at, name in enumerate(header):
            table.add_column(name, justify="left" if at < len(study.heads) else "right")
        for row in rows:
            table.add_row(*row)
        console = Console()
        console.print(table)
        place = settings.out / "study.html"
        console.print(f"Open {place} in a browser.", highlight=False, soft_wrap=True)


def _options(settings: StudySettings) -> Options:
    options = Options(methods=settings.methods)
    if settings.sizes is None:
        return options
    sizes = []
    for word in settings.sizes:
        if not word.isdigit() or int(word) < 100:
            raise InputError(f"--sizes {word}: a number of images, 100 or more, is needed.")
        sizes.append(int(word))
    return Options(tuple(sizes), settings.methods)


def write_comparison(folders: Sequence[Path], out: Path, *, force: bool = False) -> None:
    """Write one Markdown page of several studies; `remarks.md` beside it, if there is one, opens it."""
    if out.exists() and not force:
        raise OutputExistsError(f"{out} is there already; choose another name or replace it with --force.")
    write_text(out, comparison_page(read_chapters(folders, out), read_remarks(out.parent)))


def _show_plan(jobs: Sequence[Job], settings: StudySettings) -> None:
    planned = plan_study(jobs)
    if settings.as_json:
        for one in planned:
            told = {"variant": one.job.variant.slug, "seed": one.job.seed, "kept": one.n_kept}
            say_line("plan", {**told, "shared": one.n_shared, "runs": list(one.runs)})
        return
    table = Table(title=f"What cdp study {settings.name} would do in {settings.out}", title_justify="left")
    for name in ("variant", "seed", "kept", "shared", "runs", "what runs"):
        table.add_column(name, justify="right" if name in ("seed", "kept", "shared", "runs") else "left")
    for one in planned:
        first = ", ".join(one.runs[:3]) + (" …" if len(one.runs) > 3 else "")
        counts = (str(one.n_kept), str(one.n_shared), str(len(one.runs)))
        table.add_row(one.job.variant.slug, str(one.job.seed), *counts, first)
    console = Console()
    console.print(table)
    n_runs = sum(len(one.runs) for one in planned)
    n_shared = sum(one.n_shared for one in planned)
    console.print(
        f"{counted(n_runs, 'stage')} to run in {counted(len(planned), 'run')}; {n_shared} more are shared with an "
        "earlier variant.",
        highlight=False,
    )


@contextmanager
def _listening(settings: StudySettings) -> Iterator[StudyListener]:
    if settings.as_json:
        yield StudyLines()
    elif settings.quiet:
        yield NullStudyListener()
    else:
        with bars() as drawn:
            yield StudyTerminal(drawn)


def left_in_words(left: Left) -> str:
    """`4 runs, 12 stages, about 8 min 20 s left`."""
    if not left.runs:
        return "all done"
    about = "time not known yet" if left.seconds is None else f"about {seconds(left.seconds)}"
    return f"{counted(left.runs, 'run')} with {counted(left.stages, 'new stage')} left, {about}"


class StudyTerminal(Terminal):
    """A line per run; bars for what goes on."""

    def run_started(self, variant: Variant, seed: int, at: int, n_runs: int, left: Left) -> None:
        """Nothing; the stages have bars."""

    def finished(self, stage: Stage, record: Record, *, fresh: bool, at: int, n_stages: int) -> None:
        """Stages of a study go without lines."""
        del stage, record, fresh, at, n_stages
        self.clear()

    def run_finished(
        self, variant: Variant, seed: int, ran: Sequence[Ran], at: int, n_runs: int, left: Left
    ) -> None:
        """The run's line."""
        fresh = sum(one.fresh for one in ran)
        took = seconds(sum(one.record.seconds for one in ran if not one.fresh))
        self.bars.console.print(
            f"[green]✓[/] {at:3d}/{n_runs}  {variant.slug:<24} seed {seed}  {took:>10}, {fresh} of {len(ran)} stages "
            f"kept; {left_in_words(left)}",
            highlight=False,
            soft_wrap=True,
        )


class StudyLines(JsonLines):
    """One JSON object per line on standard output."""

    def run_started(self, variant: Variant, seed: int, at: int, n_runs: int, left: Left) -> None:
        """A run begins."""
        say_line("run started", {"variant": variant.slug, "seed": seed, "at": at, "of": n_runs, **vars(left)})

    def run_finished(
        self, variant: Variant, seed: int, ran: Sequence[Ran], at: int, n_runs: int, left: Left
    ) -> None:
        """A run is done."""
        told = {"variant": variant.slug, "seed": seed, "at": at, "of": n_runs}
        kept = sum(one.fresh for one in ran)
        say_line("run finished", {**told, "stages": len(ran), "kept": kept, "left": vars(left)})

"""`cdp run`, `cdp demo` and `cdp report`: from images or embeddings to the report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import (
    OVERRIDABLE,
    ForceOption,
    LinesOption,
    PlanOption,
    QuietOption,
    app,
    plain_errors,
    print_table,
)
from cdp.cli.signals import resumable
from cdp.errors import InputError

if TYPE_CHECKING:
    from cdp.config.sections import RunRecipe
    from cdp.run.runner import Planned


@app.command(context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
@plain_errors()
def run(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option("--out", help="The run's folder; an interrupted run goes on in it.", show_default=False),
    ],
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe (TOML); without one, --images, --embeddings or --labeled and --unlabeled."
        ),
    ] = None,
    plan: PlanOption = False,
    quiet: QuietOption = False,
    as_json: LinesOption = False,
) -> None:
    """The whole paper on your images or embeddings: split, train, label, train again, measure, report.

    cdp run --images photos --out work, or cdp run --labeled A --unlabeled B --out work: images (a folder per person, or
    any other layout), or embeddings, which are labeled without training. Any key of a recipe can be given as an option:
    --consensus.k 10, or --k 10 where one section only has it. What is up to date is kept: run the same command again
    after an interruption or a change.
    """
    from cdp.config.reading import read_recipe, recipe_from_options

    words = list(context.args)
    if recipe is not None and recipe.startswith("-"):
        # Options before any recipe: Typer takes the first unknown one for the argument.
        words, recipe = [recipe, *words], None
        named = [word for word in words if word.endswith(".toml")]
        if named:
            raise InputError(f"{words[0]}: name the recipe first: cdp run {named[0]} {words[0]} …")
    if recipe is not None and Path(recipe).is_dir():
        raise InputError(
            f"{recipe} is a folder, not a recipe: cdp run --images {recipe} … or --embeddings {recipe} …"
        )
    settings = recipe_from_options(words) if recipe is None else read_recipe(recipe, words)
    run_or_plan(settings, out, plan=plan, quiet=quiet, as_json=as_json)


@app.command(context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
@plain_errors()
def demo(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", help="The demo's folder; an interrupted demo goes on in it.")
    ] = Path("demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Two minutes instead of fifteen: fewer faces, weaker networks.")
    ] = False,
    plan: PlanOption = False,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: LinesOption = False,
) -> None:
    """The whole paper in minutes, on drawn faces, without downloads or a GPU; ends with a page to look at.

    Any key of its recipe can be given as an option, e.g. --seed 1; the recipe itself is left in the folder.
    """
    from cdp.lab.demo import demo_recipe, draw_demo_faces, plan_demo
    from cdp.progress import progress_bars
    from cdp.run.run_recipe import clear

    recipe = demo_recipe(out, quick=quick, overrides=context.args)
    if plan:
        _show_plan(plan_demo(out, recipe, quick=quick), out, as_json=as_json)
        return
    if force:
        clear(out)
    with resumable(), progress_bars(not (quiet or as_json)) as progress:
        draw_demo_faces(out, recipe, quick=quick, progress=progress)
    run_or_plan(recipe, out, plan=False, quiet=quiet, as_json=as_json)


def run_or_plan(recipe: RunRecipe, out: Path, *, plan: bool, quiet: bool, as_json: bool) -> None:
    """Run a recipe and say how it went, or say what would run."""
    from cdp.cli.terminal import JsonLines, Terminal, listening, print_run, say_line
    from cdp.run.run_recipe import plan_recipe, run_recipe
    from cdp.run.runner import Listener

    if plan:
        _show_plan(plan_recipe(recipe, out), out, as_json=as_json)
        return
    with (
        resumable(),
        listening(Listener, JsonLines, Terminal, as_json=as_json, quiet=quiet) as listener,
    ):
        outcome = run_recipe(recipe, out, command=typed_command(sys.argv[1:]), listener=listener)
    record = outcome.record
    if as_json:
        headline = record.results.headline
        gap = None if headline is None or headline.gap_closed is None else headline.gap_closed.rank1.value
        models = [] if headline is None else headline.models
        about = {"folder": str(out), "report": str(outcome.report), "seconds": round(record.seconds or 0, 1)}
        rank1 = {model.key: model.rank1.value for model in models}
        say_line("run", {**about, "rank1": rank1, "gap_closed": gap, "notes": record.notes})
    elif not quiet:
        print_run(record, outcome.report)


def _show_plan(planned: Sequence[Planned], out: Path, *, as_json: bool) -> None:
    from rich.text import Text

    from cdp.cli.terminal import say_line

    if as_json:
        for one in planned:
            say_line("plan", {"stage": one.stage.name, "state": one.state, "why": one.why})
        return
    words = {
        "fresh": Text("kept", "green"),
        "run": Text("runs", "bold"),
        "perhaps": Text("runs if changed", "yellow"),
    }
    rows = [(one.stage.name, words[one.state], one.why) for one in planned]
    print_table(f"What cdp run would do in {out}", ("stage", "", "why"), rows)
    n_runs, n_perhaps = (sum(one.state == state for one in planned) for state in ("run", "perhaps"))
    typer.echo(f"{n_runs} of {len(planned)} stages run, {n_perhaps} more if what they are made from changes.")


def typed_command(arguments: Sequence[str]) -> str:
    """The command as it was typed, for the record."""
    import shlex

    return shlex.join(["cdp", *arguments])


@app.command()
@plain_errors()
def report(
    run_folder: Annotated[Path, Argument(help="The folder that `cdp run --out` wrote.")],
    out: Annotated[Path | None, Option(help="The page to write [default: RUN_FOLDER/report.html].")] = None,
    force: Annotated[bool, Option("--force", help="Replace the file at --out if it is there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write the report of a run again: one HTML page, with everything inside it."""
    from cdp.report.write import write_report

    page = write_report(run_folder, out, force=force)
    if not quiet:
        typer.echo(f"{page}: {page.stat().st_size / 1e6:.1f} MB; open it in a browser.")

"""`cdp run`, `cdp demo`, `cdp report` and `cdp recipe`: from images or embeddings to the report, by a recipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from json import dumps
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
from cdp.errors import InputError, install_command

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
    from cdp.progress import progress_bars
    from cdp.run.run_recipe import clear
    from cdp_lab.demo import demo_recipe, draw_demo_faces, plan_demo

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
    from cdp.web.report.write import write_report

    page = write_report(run_folder, out, force=force)
    if not quiet:
        typer.echo(f"{page}: {page.stat().st_size / 1e6:.1f} MB; open it in a browser.")


recipes = typer.Typer(help="Write a recipe for cdp run, or check one.", no_args_is_help=True)
app.add_typer(recipes, name="recipe")


@recipes.command("new", context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
@plain_errors()
def new_recipe(
    context: typer.Context,
    file: Annotated[Path, Argument(help="File to write, e.g. mine.toml; - prints it.")],
    bare: Annotated[bool, Option("--bare", help="Keys only, without their help.")] = False,
    force: Annotated[bool, Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a recipe with every key and a sentence about it; keys at their defaults are comments.

    Keys can be set at once, e.g.: cdp recipe new mine.toml --data.images faces --consensus.k 30
    """
    from cdp.config.reading import recipe_from_options
    from cdp.config.writing import write_recipe
    from cdp.files import check_output, write_text
    from cdp.run.sources import source_names, source_paths

    _refuse_option(file)
    recipe = recipe_from_options(context.args)
    text = write_recipe(recipe, commented=not bare, template=not bare)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    inputs = [path for name in source_names(recipe) for path in source_paths(recipe, name)]
    check_output(file, force=force, inputs=inputs)
    write_text(file, text)
    typer.echo(f"Written to {file}. Next: fill in [data], then cdp recipe check {file}")


@recipes.command("check", context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
@plain_errors()
def check_recipe_file(
    context: typer.Context,
    file: Annotated[Path, Argument(help="The recipe, a .toml file.")],
    json: Annotated[bool, Option("--json", help="Print all keys as JSON instead.")] = False,
) -> None:
    """Check a recipe without running it: keys, values, paths, networks; show what differs from the defaults.

    Keys can be set on top, e.g.: cdp recipe check mine.toml --consensus.threshold 0.9 --train.epochs 5 --no-bound
    """
    from cdp.config.checks import check_recipe
    from cdp.config.environment import check_environment, source_kind
    from cdp.config.reading import read_recipe
    from cdp.config.writing import differences, to_toml

    _refuse_option(file)
    recipe = read_recipe(file, context.args)
    try:
        check_recipe(recipe)
        networks_known = check_environment(recipe)
        kind = source_kind(recipe)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if json:
        typer.echo(dumps({"recipe": recipe.as_dict(), "networks_checked": networks_known}, indent=2))
        return
    typer.echo(f"{file}: this recipe can be run.")
    if not networks_known and kind == "images":
        typer.echo(f"The networks' names were not checked; that needs {install_command('nets')}.")
    changed = differences(recipe)
    typer.echo("Not at its default:" if changed else "All keys are at their defaults.")
    width = max((len(one.key) for one in changed), default=0)
    for one in changed:
        typer.echo(f"  {one.key:{width}} = {to_toml(one.value)}  (default {to_toml(one.default)})")


def _refuse_option(file: Path) -> None:
    """Unknown options are keys, so an option before the file looks like the file."""
    if str(file).startswith("-") and str(file) != "-":
        raise InputError(f"{file}: the recipe's file comes first, then the keys to set.")

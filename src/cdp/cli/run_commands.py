"""`cdp run` and `cdp demo`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import OVERRIDABLE, ForceOption, QuietOption, app, plain_errors

RunOut = Annotated[
    Path,
    typer.Option("--out", help="The run's folder; an interrupted run goes on in it.", show_default=False),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Say what would run and why, and stop.")]
LinesOption = Annotated[
    bool, typer.Option("--json", help="Tell everything as JSON lines on standard output.")
]


@app.command(context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
def run(
    context: typer.Context,
    recipe: Annotated[
        str, typer.Argument(help="A recipe (TOML); `cdp recipe new` writes one to start from.")
    ],
    out: RunOut,
    plan: PlanOption = False,
    quiet: QuietOption = False,
    as_json: LinesOption = False,
) -> None:
    """The whole paper on your images: split, train, label, train again, measure, report.

    Any key of the recipe can be given as an option: --consensus.k 10, or --k 10 where one section only has it.
    What is up to date is kept: run the same command again after an interruption or a change.
    """
    with plain_errors():
        if recipe.startswith("-"):
            from cdp.errors import InputError

            raise InputError(
                f"{recipe}: name the recipe first, then its keys: cdp run RECIPE {recipe} … --out DIR"
            )
        from cdp.cli.run import RunSettings, show_plan, typed_command
        from cdp.cli.run import run as run_it
        from cdp.config.reading import read_recipe

        settings = RunSettings(out, typed_command(sys.argv[1:]), quiet, as_json)
        chosen = read_recipe(recipe, context.args)
        if plan:
            show_plan(chosen, settings)
        else:
            run_it(chosen, settings)


@app.command(context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
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
    with plain_errors():
        from cdp.cli.run import RunSettings, show_plan, typed_command
        from cdp.cli.run import run as run_it
        from cdp.config.examples import demo_recipe

        settings = RunSettings(out, typed_command(sys.argv[1:]), quiet, as_json)
        chosen = demo_recipe(quick=quick, overrides=context.args)
        if plan:
            show_plan(chosen, settings)
            return
        if force:
            from cdp.run.go import clear

            clear(out)
        run_it(chosen, settings)

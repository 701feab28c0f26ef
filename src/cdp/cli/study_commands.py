"""`cdp study`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import OVERRIDABLE, ForceOption, QuietOption, app, plain_errors
from cdp.cli.run_commands import LinesOption, PlanOption
from cdp.lab.study.catalog import SENTENCES

study = typer.Typer(
    help="The paper's tables and figures: variants of a recipe over several seeds, what they share made once.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(study, name="study")

StudyOut = Annotated[
    Path,
    typer.Option("--out", help="The study's folder; an interrupted study goes on in it.", show_default=False),
]


@study.command("list")
def list_studies() -> None:
    """Name all studies with a sentence."""
    for name, sentence in SENTENCES.items():
        typer.echo(f"{name:<18}{sentence}")


@study.command()
def page(
    folders: Annotated[list[Path], typer.Argument(help="What `cdp study --out` wrote, one or several.")],
    out: Annotated[Path, typer.Option("--out", help="Markdown file to write.", show_default=False)],
    force: ForceOption = False,
) -> None:
    """One Markdown page of several studies, each table below the paper's.

    A file remarks.md in a study's folder is set below its table; one beside the page opens it.
    """
    with plain_errors():
        from cdp.cli.study import write_comparison

        write_comparison(folders, out, force=force)


def _command(name: str) -> Callable[..., None]:
    def command(
        context: typer.Context,
        recipe: Annotated[str, typer.Argument(help="A recipe of `cdp run` that all variants start from.")],
        out: StudyOut,
        seeds: Annotated[int, typer.Option(help="How many seeds, from the recipe's on.")] = 3,
        variants: Annotated[
            str | None, typer.Option(help="Only these variants, by commas; --plan names all.")
        ] = None,
        sizes: Annotated[
            str | None,
            typer.Option(help="Numbers of images, by commas; for runtime."),
        ] = None,
        methods: Annotated[
            str | None,
            typer.Option(help="Which methods, by commas; for baselines."),
        ] = None,
        pool: Annotated[
            Path | None,
            typer.Option(
                help="Folder of finished stages: studies given the same one train the same networks once "
                "[default: pool in --out]."
            ),
        ] = None,
        plan: PlanOption = False,
        quiet: QuietOption = False,
        as_json: LinesOption = False,
    ) -> None:
        with plain_errors():
            from cdp.cli.run import typed_command
            from cdp.cli.study import StudySettings, run_or_plan
            from cdp.config.reading import read_recipe
            from cdp.errors import InputError

            if recipe.startswith("-"):
                raise InputError(
                    f"{recipe}: name the recipe first: cdp study {name} RECIPE {recipe} … --out DIR"
                )
            settings = StudySettings(
                name,
                out,
                typed_command(sys.argv[1:]),
                seeds,
                _listed(variants),
                _listed(sizes),
                _listed(methods),
                pool,
                plan,
                quiet,
                as_json,
            )
            run_or_plan(read_recipe(recipe, context.args), settings)

    return command


def _listed(words: str | None) -> tuple[str, ...] | None:
    return None if words is None else tuple(word.strip() for word in words.split(",") if word.strip())


for _name, _sentence in SENTENCES.items():
    study.command(
        _name, help=_sentence, context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]..."
    )(_command(_name))

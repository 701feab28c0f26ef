"""`cdp recipe new` and `cdp recipe check`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import OVERRIDABLE, app, plain_errors

recipes = typer.Typer(help="Write a recipe for cdp run, or check one.", no_args_is_help=True)
app.add_typer(recipes, name="recipe")


@recipes.command("new", context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
def new_recipe(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File to write, e.g. mine.toml; - prints it.")],
    bare: Annotated[bool, typer.Option("--bare", help="Keys only, without their help.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a recipe with every key, its default and a sentence about it.

    Keys can be set at once, e.g.: cdp recipe new mine.toml --data.images faces --consensus.k 30
    """
    with plain_errors():
        from cdp.cli.recipes import write_new_recipe

        write_new_recipe(file, context.args, commented=not bare, force=force)


@recipes.command("check", context_settings=OVERRIDABLE, options_metavar="[OPTIONS] [--KEY VALUE]...")
def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The recipe, a .toml file.")],
    json: Annotated[bool, typer.Option("--json", help="Print all keys as JSON instead.")] = False,
) -> None:
    """Check a recipe without running it: keys, values, paths, networks; show what differs from the defaults.

    Keys can be set on top, e.g.: cdp recipe check mine.toml --consensus.threshold 0.9 --train.epochs 5 --no-bound
    """
    with plain_errors():
        from cdp.cli.recipes import check_recipe_file

        check_recipe_file(file, context.args, as_json=json)

"""`cdp recipe new` and `cdp recipe check`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import OVERRIDABLE, app, plain_errors
from cdp.errors import InputError, install_command

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

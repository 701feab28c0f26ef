"""What `cdp recipe` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from cdp.config.checks import check_recipe
from cdp.config.environment import check_networks, check_paths
from cdp.config.overrides import parse_overrides
from cdp.config.reading import read_recipe, recipe_from
from cdp.config.sections import RunRecipe
from cdp.config.writing import differences, to_toml, write_recipe
from cdp.errors import InputError, OutputExistsError, install_command
from cdp.files import write_text


def write_new_recipe(file: Path, args: Sequence[str], *, commented: bool, force: bool) -> None:
    """Write a recipe with all keys to a file, or print it for `-`."""
    _refuse_option(file)
    text = write_recipe(recipe_from({}, parse_overrides(args)), commented)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    if file.exists() and not force:
        raise OutputExistsError(f"{file} is there already; choose another name or add --force.")
    write_text(file, text)
    typer.echo(f"Written to {file}. Next: fill in [data], then cdp recipe check {file}")


def check_recipe_file(file: Path, args: Sequence[str], *, as_json: bool) -> None:
    """Check all that can be known before a run, and print what is not at its default."""
    _refuse_option(file)
    recipe = read_recipe(file, args)
    try:
        check_recipe(recipe)
        check_paths(recipe)
        networks_known = check_networks(recipe)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if as_json:
        typer.echo(json.dumps({"recipe": recipe.as_dict(), "networks_checked": networks_known}, indent=2))
        return
    typer.echo(f"{file}: this recipe can be run.")
    if not networks_known:
        typer.echo(f"The networks' names were not checked; that needs {install_command('nets')}.")
    _print_differences(recipe)


def _print_differences(recipe: RunRecipe) -> None:
    found = differences(recipe)
    typer.echo("Not at its default:" if found else "All keys are at their defaults.")
    width = max((len(one.key) for one in found), default=0)
    for one in found:
        typer.echo(f"  {one.key:{width}} = {to_toml(one.value)}  (default {to_toml(one.default)})")


def _refuse_option(file: Path) -> None:
    """Unknown options are keys, so an option before the file looks like the file."""
    if str(file).startswith("-") and str(file) != "-":
        raise InputError(f"{file}: the recipe's file comes first, then the keys to set.")

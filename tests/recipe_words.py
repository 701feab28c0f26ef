"""What a command with the keys of a recipe is given, from the words that are typed."""

from typing import Any

import typer
from typer.testing import CliRunner

from cdp.cli.derived_options import Given
from cdp.cli.help_pages import Command
from cdp.cli.recipe_options import with_recipe


class RefusedError(Exception):
    """What the command printed instead."""


def overrides_of(words: list[str]) -> dict[str, Any]:
    """Values by `section.key`; words that mean nothing raise `RefusedError` with what is printed."""
    app, found = typer.Typer(rich_markup_mode=None), {}

    @app.command(cls=Command)
    @with_recipe
    def command(overrides: Given) -> None:
        found.update(overrides)

    result = CliRunner().invoke(app, words)
    if result.exit_code:
        raise RefusedError(result.output) from None
    return found

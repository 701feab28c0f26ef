"""The command line's frame: the app, what all commands share, and how errors become sentences."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.main import get_current_context  # type: ignore[attr-defined]  # of the Click inside Typer

from cdp import __version__
from cdp.errors import CdpError

if TYPE_CHECKING:
    from rich.text import Text

app = typer.Typer(
    help="Consensus-Driven Propagation: identities you can trust for a mass of unlabeled images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
evaluation = typer.Typer(help="Measure results against true identities.", no_args_is_help=True)
app.add_typer(evaluation, name="eval")


class InterruptedRunError(CdpError):
    """The user stopped a run that can go on."""

    exit_code = 130


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors become one sentence and an exit code: 2 wrong input, 1 failure, 130 interrupted."""
    try:
        yield
    except CdpError as error:
        _trace(error)
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted; no output folder was changed.", err=True)
        raise typer.Exit(130) from None
    except MemoryError:
        typer.echo("Error: out of memory; lower --memory-budget or --k, or use a larger machine.", err=True)
        raise typer.Exit(1) from None
    except BrokenPipeError:
        # The reader of a pipe has gone (`cdp show x | head`); that is not our failure.
        sys.stderr.close()
        raise typer.Exit(0) from None


def _trace(error: BaseException) -> None:
    """Print where an error came from, after `cdp --debug`."""
    context = get_current_context(silent=True)
    if context is not None and context.find_root().params.get("debug"):
        traceback.print_exception(error)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cdp {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and stop."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print where an error came from, too.")] = False,
) -> None:
    """Consensus-Driven Propagation: identities you can trust for a mass of unlabeled images."""


OutOption = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist unless --force.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output folder if it is there.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress bars, no table.")]
SeedOption = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]
PlanOption = Annotated[bool, typer.Option("--plan", help="Say what would run and why, and stop.")]
LinesOption = Annotated[
    bool, typer.Option("--json", help="Tell everything as JSON lines on standard output.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")]

OVERRIDABLE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of a command whose unknown options are keys of a recipe; they arrive in `context.args`."""


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """A table on standard output; columns whose name starts with > are aligned to the right; brackets are no markup."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    for column in columns:
        table.add_column(
            escape(column.removeprefix(">")), justify="right" if column.startswith(">") else "left"
        )
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    Console().print(table)

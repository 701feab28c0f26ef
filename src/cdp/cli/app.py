"""The command line's frame: the app, what all commands share, and how errors become sentences."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_current_context  # type: ignore[attr-defined]  # of the Click inside Typer

from cdp import __version__
from cdp.cli.help_pages import Group
from cdp.cli.signals import raised_signals, stop_sentence
from cdp.errors import CdpError
from cdp.runtime.daemon_threads import is_given_up
from cdp.runtime.memory import check_address_space, is_memory_error
from cdp.runtime.settings import MOST_THREADS
from cdp.settings import listed

if TYPE_CHECKING:
    from rich.text import Text

GUIDE = """\
cdp groups images by identity, and trains better recognition networks from the groups.

  Try it          cdp demo                                          the whole paper on drawn faces
  Photos          cdp label photos --models models --out album      who is on which photo
  Embeddings      cdp label unlabeled --labeled labeled --out faces
  Look, correct   cdp show faces, cdp review faces
  More images     cdp add faces new
  Use             cdp export faces --out people
  Train           cdp run --labeled A --unlabeled B --out work      a better network, and its labels

cdp --help lists all commands, cdp COMMAND --help explains one.
"""


class _Guide(Group):
    """The commands; without any, a short guide."""

    panels: ClassVar[Mapping[str, Sequence[str]]] = {
        "Find identities": ("label", "add", "review", "regroup", "forget", "export", "show"),
        "Train a network": ("run", "train", "embed"),
        "Measure, prepare": ("eval", "data", "demo"),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; none ask for the guide."""
        if not args:
            typer.echo(GUIDE, nl=False)
            ctx.exit()
        return super().parse_args(ctx, args)


def make_app(about: str, cls: type[TyperGroup] = Group, **more: Any) -> typer.Typer:
    """Return an app, or a group of commands in one."""
    return typer.Typer(
        help=about,
        no_args_is_help=cls is Group,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=cls,
        **more,
    )


app = make_app("Identities you can trust for photos, face crops and embeddings.", _Guide, add_completion=True)
evaluation = make_app("Measure labels and networks against true identities.", add_completion=False)
data = make_app("Prepare images: split, check, align faces, write recipes.", add_completion=False)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors into one sentence and an exit code.

    2 = wrong input, 1 = failure, 130 = interrupted, 143 = terminated.
    """
    try:
        with raised_signals(), warnings.catch_warnings():
            warnings.showwarning = _say_warning
            check_address_space()
            yield
    except typer.Exit:
        raise
    except (BrokenPipeError, SystemExit) as error:
        # The reader of a pipe has gone (`cdp show x | head`); that is not our failure, though Rich says so.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        sys.stderr.close()
        raise typer.Exit(0) from None
    except BaseException as error:
        explained = _explain(error)
        if explained is None:
            raise
        _trace(error)
        sentence, code = explained
        typer.echo(sentence, err=True)
        raise typer.Exit(code) from None


def run_app(app: typer.Typer) -> None:
    """Run an app; what fails outside its commands, such as help that cannot be written, is a sentence too."""
    try:
        # Libraries that are imported later fail in their own words where the current folder is gone.
        os.getcwd()
        app()
    except SystemExit as ended:
        if is_given_up():
            _end_at_once(ended.code)
        raise
    except OSError as error:
        explained = _disk_sentence(error)
        if explained is None:
            raise
        sys.stderr.write(f"{explained[0]}\n")
        # What is left to write would fail again when Python ends.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        raise SystemExit(explained[1]) from None


def _end_at_once(code: str | int | None) -> None:
    """End the process without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without its place in the code."""
    typer.echo(f"Warning: {message}", err=True)


def _explain(error: BaseException) -> tuple[str, int] | None:
    """Describe an error and give its exit code; None for a defect, which gets a traceback."""
    stopped = stop_sentence(error)
    if stopped is not None:
        return stopped
    if isinstance(error, CdpError):
        code = getattr(error, "code", "")
        return f"Error: {error}" + (f" [{code}]" if code else ""), error.exit_code
    if is_memory_error(error):
        return f"Error: {_memory_sentence(error)}", 1
    if isinstance(error, OSError):
        return _disk_sentence(error)
    return None


def _disk_sentence(error: OSError) -> tuple[str, int] | None:
    """Describe a disk error that no reader or writer has turned into its own sentence."""
    given = error.filename
    name = os.fsdecode(given) if isinstance(given, str | bytes) else given
    where = "" if name is None else f"{name}: "
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"Error: {where}the disk is full; free space and run the same command again. [disk-full]",
            1,
        )
    if name is not None:
        return f"Error: {name}: {error.strerror}; give another path, or change its permissions.", 1
    if isinstance(error, FileNotFoundError) and _is_folder_gone():
        return "Error: The current folder has been removed; change to another one. [folder-removed]", 2
    return None


def _is_folder_gone() -> bool:
    """Check whether the folder that the command was started in has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _memory_sentence(error: BaseException) -> str:
    """Return which step ran out of memory, and which options of this command would help."""
    context = get_current_context(silent=True)
    where = [context.command_path] if context is not None else []
    where += getattr(error, "__notes__", [])
    known = () if context is None else context.params
    smaller = [
        option
        for name, option in {"memory_budget": "--memory-budget", "k": "--k", "batch": "--batch"}.items()
        if any(one.rpartition("__")[2] == name for one in known)
    ]
    way_out = f"lower {listed(smaller, 'or')}, or use" if smaller else "use"
    reason = f" ({str(error).splitlines()[0][:200]})" if str(error) else ""
    return f"{', '.join(where)}: out of memory{reason}; {way_out} a machine with more of it."


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
def main_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and stop."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print where an error came from, too.")] = False,
) -> None:
    """Identities you can trust for photos, face crops and embeddings."""


OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder to write; must not exist unless --force.",
        rich_help_panel="Result",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace the output if it exists.", rich_help_panel="Result")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", help="No progress bars, no table.", rich_help_panel="Machine")
]
SeedOption = Annotated[
    int, typer.Option(help="Random seed.", min=0, max=2**32 - 1, rich_help_panel="Machine")
]
ThreadsOption = Annotated[
    int, typer.Option(help="Threads; 0 = all cores.", min=0, max=MOST_THREADS, rich_help_panel="Machine")
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Dry run: show which stages would run and why.")]
LinesOption = Annotated[
    bool, typer.Option("--json", help="Write progress and results to stdout as JSON Lines.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")]


def by_commas(text: str | None) -> tuple[str, ...] | None:
    """Split `a, b` into a and b; None stays None."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a table to stdout; columns whose name starts with `>` are right-aligned.

    Brackets are printed as they are, not read as markup.
    """
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

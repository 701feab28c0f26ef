"""Layout of `--help`: usage, examples, and the main options in titled panels.

`--help-all` shows every option.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from cdp.errors import InputError

ALL = "--help-all"
_WIDEST, _NAMES = 110, 30
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class HelpPage:
    """What the short help of a command shows.

    Attributes:
        examples: whole commands.
        panels: title -> names of parameters, the most important first.
    """

    examples: tuple[str, ...] = ()
    panels: Mapping[str, Sequence[str]] = field(default_factory=dict)


def help_page(*examples: str, **panels: str) -> Callable[[Function], Function]:
    """Decorate a command with examples and the parameters of each help panel, separated by blanks."""

    def mark(function: Function) -> Function:
        named = {title.replace("_", " "): names.split() for title, names in panels.items()}
        function.help_page = HelpPage(examples, named)  # type: ignore[attr-defined]
        return function

    return mark


class Command(TyperCommand):
    """A command with panels, `--help-all`, and suggestions for options that do not exist."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; the name of an unknown option is answered with those that it may stand for."""
        if ALL in args:
            typer.echo(self._text(ctx, everything=True))
            ctx.exit()
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            name = getattr(error, "option_name", None)
            if type(error).__name__ != "NoSuchOption" or not name:
                raise
            near = self._near(ctx, name)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            error.message = f"No such option: {name}.{hint} {ctx.command_path} {ALL} lists all."  # type: ignore[attr-defined]
            error.possibilities = None  # type: ignore[attr-defined]
            raise

    def get_usage(self, ctx: Any) -> str:
        """Return the first line of the help, also above what Click says of mistakes."""
        return _usage(ctx.command_path, self.get_params(ctx))

    def _near(self, ctx: Any, name: str) -> list[str]:
        known = [
            one for parameter in self.get_params(ctx) for one in (*parameter.opts, *parameter.secondary_opts)
        ]
        wanted = name.removeprefix("--").replace("_", "-")
        same = [one for one in known if one.rpartition(".")[2].removeprefix("--") == wanted]
        return same or get_close_matches(f"--{wanted}", known, 3, 0.7)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the short help."""
        formatter.write(self._text(ctx, everything=False))

    def _text(self, ctx: Any, *, everything: bool) -> str:
        page = getattr(self.callback, "help_page", HelpPage())
        parameters = {one.name: one for one in self.get_params(ctx) if not getattr(one, "hidden", False)}
        lines = [_usage(ctx.command_path, parameters.values()), ""]
        lines += _paragraphs(self.help or "")
        if page.examples:
            lines += ["Examples:", *(f"  {one}" for one in page.examples), ""]
        panels = {
            title: [parameters.pop(name) for name in names if name in parameters]
            for title, names in page.panels.items()
        }
        parameters.pop("help", None)
        rest: dict[str, list[Any]] = {}
        for one in parameters.values():
            rest.setdefault(getattr(one, "rich_help_panel", None) or "Other", []).append(one)
        shown = panels | {title: [*panels.get(title, ()), *more] for title, more in rest.items()}
        for title, members in (shown if everything or not page.panels else panels).items():
            lines += [f"{title}:", *_rows(members), ""]
        if page.panels and not everything and parameters:
            lines.append(f"{len(parameters)} more options: {ctx.command_path} {ALL}")
        return "\n".join(lines).rstrip() + "\n"


class Group(TyperGroup):
    """A group of commands in titled panels; a mistyped name is answered with suggestions."""

    panels: ClassVar[Mapping[str, Sequence[str]]] = {}

    def get_usage(self, ctx: Any) -> str:
        """Return the first line of the help, also above what Click says of mistakes."""
        return f"Usage: {ctx.command_path} COMMAND [OPTIONS]"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, commands with a sentence each, and options."""
        lines = [self.get_usage(ctx), "", *_paragraphs(self.help or "")]
        panels = self.panels or {"Commands": self.list_commands(ctx)}
        wide = max(len(name) for names in panels.values() for name in names) + 4
        for title, names in panels.items():
            lines.append(f"{title}:")
            for name in names:
                command = self.get_command(ctx, name)
                sentence = " ".join((getattr(command, "help", None) or "").split("\n\n")[0].split())
                first, *more = _wrap(sentence, _width() - wide) or [""]
                lines += [f"  {name}".ljust(wide) + first, *(" " * wide + line for line in more)]
            lines.append("")
        options = [one for one in self.get_params(ctx) if one.name != "help"]
        lines += ["Options:", *_rows(options), ""] if options else []
        lines += _wrap(
            f"{ctx.command_path} COMMAND --help explains a command, --help-all shows all of its options.",
            _width(),
        )
        formatter.write("\n".join(lines) + "\n")


def _width() -> int:
    return min(_WIDEST, max(60, shutil.get_terminal_size().columns)) - 2


def _usage(path: str, parameters: Any) -> str:
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    words = [path, *(_metavar(one) if one.required else f"[{_metavar(one)}]" for one in arguments)]
    required = [one for one in parameters if one.param_type_name == "option" and one.required]
    words += [f"{one.opts[0]} {_metavar(one)}" for one in required]
    return "\n".join(_wrap(f"Usage: {' '.join(words)} [OPTIONS]", _width(), " " * 7))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        yield from _wrap(" ".join(paragraph.split()), _width())
        yield ""


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _rows(parameters: Sequence[Any]) -> Iterator[str]:
    """Yield a row per parameter: its names, and its help next to them or below."""
    rows = [(_names(one), _help(one)) for one in parameters]
    wide = min(_NAMES, max((len(names) for names, _ in rows), default=0)) + 4
    for names, text in rows:
        lines = _wrap(text, _width() - wide) or [""]
        if len(names) + 2 > wide - 1:
            yield f"  {names}"
            names = ""
        yield f"  {names}".ljust(wide) + lines[0]
        yield from (" " * wide + line for line in lines[1:])


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _metavar(parameter)
    names = [*parameter.opts, *parameter.secondary_opts]
    shown = max(
        (one for one in names if not one.startswith("--no-")), key=lambda one: ("." not in one, len(one))
    )
    denied = " / " + parameter.secondary_opts[0] if parameter.secondary_opts else ""
    if parameter.secondary_opts:
        same = [one for one in parameter.secondary_opts if one.count(".") == shown.count(".")]
        denied = f" / {same[0]}" if same else ""
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return f"{shown}{denied}{value}"


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper() + ("..." if parameter.nargs == -1 else "")
    return _kind(parameter)


def _kind(parameter: Any) -> str:
    """`N`, `X`, `PATH` or `TEXT`, by the type of the parameter."""
    described = repr(getattr(getattr(parameter, "type_descriptor", None), "annotation", ""))
    words = {"Path": "PATH", "int": "N", "float": "X"}
    return next((word for name, word in words.items() if name in described), "TEXT")


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    facts = []
    default = getattr(parameter, "default", None)
    if parameter.param_type_name == "option" and parameter.required:
        facts.append("required")
    elif default not in (None, False, (), "") and not callable(default) and "[default" not in text:
        facts.append(f"default: {default}")
    if getattr(parameter, "multiple", False):
        facts.append("may be repeated")
    return f"{text} [{'; '.join(facts)}]" if facts else text


def refuse_option_as_file(file: Any) -> None:
    """Refuse an option before the file, which would be taken for the file."""
    if str(file).startswith("-") and str(file) != "-":
        raise InputError(
            f"{file}: the file comes first, then the options.", code="option-before-file", option=str(file)
        )

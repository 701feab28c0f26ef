"""Command options from recipe keys: `--consensus.k 10`, or `--k 10` if only one section has it.

A key that both trainings have is set for both by its short name: `--epochs 5`; `--joint.epochs 3` besides
wins for its section.

    @app.command()
    @with_recipe
    def run(out: OutOption, overrides: Given) -> None:
        recipe = recipe_from({}, overrides)

`overrides` holds what the user typed and nothing else, by `section.key`.
"""

from __future__ import annotations

import inspect
from collections import Counter
from functools import wraps
from typing import Annotated, Any

import typer

from cdp.cli.app import plain_errors
from cdp.cli.derived_options import Command, described, value_name
from cdp.config.keys import known_keys, option_of, parse_value
from cdp.settings import Setting

_PANELS = {
    "": "Result",
    "data": "Input",
    "split": "Split",
    "base": "Networks",
    "committee": "Networks",
    "train": "Training on labels",
    "joint": "Training on pseudo-labels",
    "both": "Both trainings",
    "consensus": "Labeling",
    "evaluation": "Measuring",
    "engine": "Machine",
}


_TRAININGS = ("train", "joint")
"""Sections with the same keys, which a short name sets together."""


def with_recipe(command: Command) -> Command:
    """Decorate a command: one option per key of a recipe replaces its parameter `overrides`."""
    known = known_keys()

    @wraps(command)
    def run(**values: Any) -> None:
        typed = {key: values.pop(_parameter(key)) for key in known}
        for name in _shared(known):
            both = values.pop(_parameter(f"both.{name}"))
            for section in _TRAININGS:
                key = f"{section}.{name}"
                typed[key] = both if typed[key] is None else typed[key]
        with plain_errors():
            overrides = {
                key: _convert(known[key], value, key) for key, value in typed.items() if value is not None
            }
        command(**values, overrides=overrides)

    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        if own.name == "overrides":
            parameters += _options(known)
        else:
            parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    return run


def _convert(one: Setting, value: Any, key: str) -> Any:
    return value if one.kind is bool and not one.many else parse_value(one, value, option_of(key))


def _parameter(key: str) -> str:
    return key.replace(".", "__")


def _shared(known: dict[str, Setting]) -> list[str]:
    """Keys of both trainings that no other section has."""
    homes: dict[str, list[str]] = {}
    for key in known:
        section, _, name = key.rpartition(".")
        homes.setdefault(name, []).append(section)
    return [name for name, sections in homes.items() if tuple(sections) == _TRAININGS]


def _options(known: dict[str, Setting]) -> list[inspect.Parameter]:
    """Make one parameter per key.

    The short name goes to the only section with it, to [data], or to both trainings.
    """
    counts = Counter(key.rpartition(".")[2] for key in known)
    made = []
    for key, one in known.items():
        section, _, name = key.rpartition(".")
        is_short = bool(section) and (counts[name] == 1 or section == "data")
        names = [option_of(key), *([option_of(name)] if is_short and name not in known else [])]
        made.append(
            _option(_parameter(key), names, one, described(one), _PANELS.get(section, section.capitalize()))
        )
    for name in _shared(known):
        one = known[f"{_TRAININGS[0]}.{name}"]
        made.append(_option(_parameter(f"both.{name}"), [option_of(name)], one, one.help, _PANELS["both"]))
    return made


def _option(parameter: str, names: list[str], one: Setting, text: str, panel: str) -> inspect.Parameter:
    kind: Any = bool if one.kind is bool and not one.many else str
    if kind is bool:
        names = ["/".join((option, option.replace("--", "--no-", 1))) for option in names]
    metavar = None if kind is bool else value_name(one)
    option = typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel)
    return inspect.Parameter(
        parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )

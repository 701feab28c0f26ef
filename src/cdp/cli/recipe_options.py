"""Options of a command from the keys of a recipe: `--consensus.k 10`, and `--k 10` where only one section has it.

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
    "consensus": "Labeling",
    "evaluation": "Measuring",
    "engine": "Machine",
}


def with_recipe(command: Command) -> Command:
    """A decorator: one option per key of a recipe takes the place of the command's parameter `overrides`."""
    known = known_keys()

    @wraps(command)
    def run(**values: Any) -> None:
        typed = {key: values.pop(_parameter(key)) for key in known}
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


def _options(known: dict[str, Setting]) -> list[inspect.Parameter]:
    """A parameter per key; the short name goes to the only section that has it, or to [data]."""
    counts = Counter(key.rpartition(".")[2] for key in known)
    made = []
    for key, one in known.items():
        section, _, name = key.rpartition(".")
        is_short = bool(section) and (counts[name] == 1 or section == "data")
        names = [option_of(key), *([option_of(name)] if is_short and name not in known else [])]
        kind: Any = bool if one.kind is bool and not one.many else str
        if kind is bool:
            names = ["/".join((option, option.replace("--", "--no-", 1))) for option in names]
        metavar = None if kind is bool else value_name(one)
        panel = _PANELS.get(section, section.capitalize())
        option = typer.Option(*names, help=described(one), metavar=metavar, rich_help_panel=panel)
        made.append(
            inspect.Parameter(
                _parameter(key),
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[kind | None, option],
            )
        )
    return made

"""Options of a command from the fields of settings classes, so that no list of options is typed by hand.

    @app.command()
    @with_settings(TrainingSettings)
    def train(manifest: ManifestArgument, given: Given, force: ForceOption = False) -> None:
        settings = TrainingSettings(**given)

`given` holds what the user typed and nothing else, so that presets and files can supply what is left.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from cdp.cli.app import plain_errors
from cdp.settings import Setting, settings_of

Given: TypeAlias = dict[str, Any]
"""Values by the names of their settings, checked one by one; a setting that was not typed is absent."""

PANELS = {
    "SearchSettings": "Neighbor search",
    "ScoringSettings": "Pair scoring",
    "GroupingSettings": "Grouping",
    "ThresholdSettings": "Threshold",
    "SoftLabelSettings": "Soft labels",
    "ConsensusSettings": "Result",
    "GrowthSettings": "Stable identities",
    "AlignSettings": "Faces",
    "TrainingSettings": "Training",
    "Recipe": "Training",
    "JointLoss": "Pseudo-labels",
    "RuntimeSettings": "Machine",
}
"""The title that the settings of a class have in the help."""

Owner = TypeVar("Owner")
Command: TypeAlias = Callable[..., None]


def with_settings(
    *owners: type,
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    flags: Mapping[str, str] | None = None,
    defaults: bool = True,
) -> Callable[[Command], Command]:
    """Decorate a command: one option per setting of the owners replaces its parameter `given`.

    `max_cluster_size` becomes `--max-cluster-size`; a truth becomes `--disjoint/--no-disjoint`; a list is
    written with commas. The help ends with range, choices and default. A wrong value is an error that names
    the option.

    Args:
        only: names of the settings to use; empty = all.
        without: names to leave out, for a command that has an option of its own for them.
        flags: other spellings, name -> text for Typer, e.g. `{"color": "--color/--grey"}`.
        defaults: whether the help says defaults; not where what is left out stays as it is.
    """
    wanted, left_out = set(only), set(without)
    known: dict[str, Setting] = {}
    panels: dict[str, str] = {}
    for owner in owners:
        for name, one in settings_of(owner).items():
            if name not in left_out and (not wanted or name in wanted):
                if name in known:
                    raise TypeError(f"two settings are called {name}; leave one out with `without`")
                known[name] = one
                panels[name] = _panel(owner, name)

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> None:
            typed = {name: values.pop(name) for name in known}
            with plain_errors():
                given = {
                    name: _convert(known[name], value) for name, value in typed.items() if value is not None
                }
            command(**values, given=given)

        run.__signature__ = _signature(command, known, panels, flags or {}, defaults=defaults)  # type: ignore[attr-defined]
        return run

    return decorate


def settings_from(owner: type[Owner], given: Given, make: Callable[..., Owner] | None = None) -> Owner:
    """Make an owner of those given values that are its settings; the others belong to other owners."""
    return (make or owner)(**{name: given[name] for name in settings_of(owner) if name in given})


def option_name(name: str) -> str:
    """`--max-cluster-size` for `max_cluster_size`."""
    return f"--{name.replace('_', '-')}"


def _convert(one: Setting, value: Any) -> Any:
    from cdp.config.keys import parse_value

    option = option_name(one.name)
    return parse_value(one, value, option) if isinstance(value, str) else one.convert(value, option)


def _signature(
    command: Command,
    known: Mapping[str, Setting],
    panels: Mapping[str, str],
    flags: Mapping[str, str],
    *,
    defaults: bool,
) -> inspect.Signature:
    """Return the command's signature with an option for each setting in place of `given`."""
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        if own.name != "given":
            parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for name, one in known.items():
            is_flag = one.kind is bool and not one.many
            kind: Any = str if one.many or (one.none and not is_flag) else one.kind
            names = [flags[name]] if name in flags else []
            text = described(one) if defaults else one.help
            metavar = None if is_flag else value_name(one)
            option = typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panels[name])
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=Annotated[kind | None, option],
                )
            )
    return inspect.Signature(parameters, return_annotation=None)


def _panel(owner: type, name: str) -> str:
    """Return the title of the panel that a setting is shown in: that of the class that defines it."""
    homes = [one for one in owner.__mro__ if name in vars(one).get("__annotations__", {})]
    return next((PANELS[home.__name__] for home in homes if home.__name__ in PANELS), "Other")


def value_name(one: Setting) -> str:
    """Return what stands for the value of an option in the help."""
    return "X,Y" if one.many else {int: "N", float: "X"}.get(one.kind, "TEXT")


def described(one: Setting) -> str:
    """`Neighbors of each image. [1 or more; default: 20]`."""
    return f"{one.help} [{one.facts}]" if one.facts else one.help

"""A recipe as TOML that reads back equal, and the tables of all keys and settings, made from the fields."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cdp.config.sections import SECTIONS, RunRecipe, TrainSection
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import PRESETS, ConsensusSettings, default_of, with_preset
from cdp.settings import Setting, settings_of

_WIDTH = 100


class Difference(NamedTuple):
    """A key whose value is not its default, both as a recipe spells them."""

    key: str
    value: Any
    default: Any


def write_recipe(recipe: RunRecipe, *, commented: bool = True, template: bool = False) -> str:
    """TOML with every key of the recipe; reading it back gives an equal recipe.

    Args:
        commented: put its sentence of help above each key.
        template: keys at their defaults are written as comments, so that a preset or a later default can move
            them.
    """
    lines = []
    if commented:
        hint = "Keys behind # have their defaults; remove the # to set one. " if template else ""
        lines += [f"# A recipe of `cdp run`. {hint}Relative paths start from the folder of this file.", ""]
    for section, owner in _parts(recipe):
        if section:
            lines.append("")
            if commented:
                lines += _comment(about_section(section))
            lines.append(f"[{section}]")
        for name, one in settings_of(type(owner)).items():
            if commented:
                lines += _comment(f"{one.help}{_limits(one)}")
            value = getattr(owner, name)
            default = _default(recipe, section, name, one)
            # -0.0 equals 0.0, but is not written so.
            is_default = value == default and str(value)[:1] == str(default)[:1]
            text = to_toml(one.none if value is None else value)
            lines.append(f"{'#' if template and is_default else ''}{name} = {text}")
    return "\n".join(lines) + "\n"


def _default(recipe: RunRecipe, section: str, name: str, one: Setting) -> Any:
    """Return what a key is if it is not given; the preset has a say in it."""
    if section == "consensus" and name == "threshold":
        # That of a preset depends on what the threshold is compared with.
        given = {key: getattr(recipe.consensus, key) for key in ("preset", "mediator", "grouping")}
        return with_preset(given).get(name, one.default)
    if section == "consensus" and name != "preset":
        return default_of(name, recipe.consensus.preset)
    return one.default


def differences(recipe: RunRecipe) -> list[Difference]:
    """Return the keys that differ from the defaults or the preset, in the order of the recipe."""
    return [
        Difference(
            f"{section}.{name}" if section else name,
            *(one.none if value is None else value for value in (getattr(owner, name), default)),
        )
        for section, owner in _parts(recipe)
        for name, one in settings_of(type(owner)).items()
        if getattr(owner, name) != (default := _default(recipe, section, name, one))
    ]


def reference_table() -> str:
    """Markdown: one table per section with every key, its default, what it may be and its help.

    Keys that are the same in `[train]` and `[joint]`, or stand in `settings_table`, are not repeated.
    """
    settings = ("Its other keys are in the [table of settings](settings.md#every-setting).", _tabled())
    elsewhere = {
        "joint": (
            "Its other keys are those of [train] except folds, with the same defaults.",
            settings_of(TrainSection),
        ),
        "consensus": settings,
        "engine": settings,
    }
    blocks = []
    for section, owner in _parts(RunRecipe()):
        note, known = elsewhere.get(section, ("", {}))
        about = f"{about_section(section)} {note}".strip() if section else ""
        title = f"### [{section}]\n\n{about}" if section else "### Outside the sections"
        rows = [
            (f"`{name}`", f"`{_neat(one.default, one)}`", _what(one), one.help)
            for name, one in settings_of(type(owner)).items()
            if known.get(name) != one
        ]
        blocks.append(f"{title}\n\n{markdown_table(('key', 'default', 'may be', 'what it is'), rows, 4)}")
    return "\n\n".join(blocks) + "\n"


def settings_table() -> str:
    """Markdown: every setting of `CDP` and `cdp label` as each preset has it, what it may be and its help."""
    rows = []
    for name, one in _tabled().items():
        papers = PRESETS["paper"].get(name, one.default)
        other = "" if papers == one.default else f"`{_neat(papers, one)}`"
        rows.append((f"`{name}`", f"`{_neat(one.default, one)}`", other, _what(one), one.help))
    header = ("setting", "`best`", "`paper`, where it differs", "may be", "what it is")
    return markdown_table(header, rows, len(header)) + "\n"


def _tabled() -> dict[str, Setting]:
    known = {**settings_of(ConsensusSettings), **settings_of(RuntimeSettings)}
    del known["preset"]
    return known


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Return the first `words` columns to the left, the others to the right."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (header, *rows)]
    rule = "".join("---|" if number < words else "---:|" for number in range(len(header)))
    return "\n".join([lines[0], f"|{rule}", *lines[1:]])


def about_section(section: str) -> str:
    """Return the sentence about a section."""
    return " ".join((SECTIONS[section].__doc__ or "").split())


def to_toml(value: Any) -> str:
    """Return a plain value in TOML's spelling, which is that of JSON except for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parts(recipe: RunRecipe) -> Iterator[tuple[str, Any]]:
    yield "", recipe
    for section in SECTIONS:
        yield section, getattr(recipe, section)


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH - 2, break_on_hyphens=False)]


def _limits(one: Setting) -> str:
    if one.choices:
        return f" ({'any of' if one.many else 'one of'} {', '.join(one.choices)})"
    return f" ({one.limits})" if one.range else ""


def _what(one: Setting) -> str:
    if one.choices:
        return f"{'any of ' if one.many else ''}{', '.join(f'`{choice}`' for choice in one.choices)}"
    if one.range:
        return f"{one.wanted}, {one.limits}"
    return f"{one.wanted.replace(' or ', ', ')} or {one.none}" if one.none else one.wanted


def _neat(value: Any, one: Setting) -> str:
    if value is None:
        return one.none
    return f"{value:.6g}" if isinstance(value, float) else to_toml(value)

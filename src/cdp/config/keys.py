"""Keys of a recipe by name, and their values from text; imports nothing heavy, so help stays fast."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from cdp.config.sections import SECTIONS, RunRecipe
from cdp.errors import InputError
from cdp.settings import Setting, settings_of, shown

_YES_NO = {"true": True, "yes": True, "false": False, "no": False}


def option_of(key: str) -> str:
    """`--consensus.max-cluster-size` for `consensus.max_cluster_size`."""
    return f"--{key.replace('_', '-')}"


def known_keys() -> dict[str, Setting]:
    """Return every key of a recipe, as `section.key`; `seed` is in no section."""
    known = dict(settings_of(RunRecipe))
    for section, kind in SECTIONS.items():
        known |= {f"{section}.{name}": one for name, one in settings_of(kind).items()}
    return known


def parse_value(one: Setting, text: str, option: str) -> Any:
    """Return a setting's value from text; lists are separated by commas, shares may be written `1/11`."""
    if one.none and text.strip() == one.none:
        return None
    # A comma inside braces belongs to a pattern of files, part-{a,b}.tar.
    parts = [part.strip() for part in re.split(r",(?![^{}]*\})", text)] if one.many else [text]
    try:
        values = [_parse_one(one.kind, part) for part in parts if part or not one.many]
    except (KeyError, ValueError, ZeroDivisionError):
        how = ", separated by commas" if one.many else ""
        other = f" or {one.none}" if one.none else ""
        raise InputError(
            f"{option} = {shown(text)}: {one.wanted}{other} is needed{how}.",
            code="recipe-option-value-wrong",
            option=option,
            value=text,
        ) from None
    return one.convert(values if one.many else values[0], option)


def _parse_one(kind: type, text: str) -> Any:
    if kind is bool:
        return _YES_NO[text.strip().lower()]
    if kind is float and "/" in text:
        return float(Fraction(text.strip()))
    return kind(text)

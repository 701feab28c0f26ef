"""Keys of a recipe as options of the command line: `--consensus.max-size 600`, or `--max-size 600`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cdp.config.sections import SECTIONS, RunRecipe
from cdp.errors import InputError
from cdp.settings import Setting, did_you_mean, listed, settings_of, shown

_YES_NO = {"true": True, "yes": True, "false": False, "no": False}


def parse_overrides(args: Sequence[str]) -> dict[str, Any]:
    """What the arguments set, by `section.key` (and `seed`); a key given twice has its last value.

    A key is written `--section.key`, or `--key` where one section only, or [data], has it; `-` and `_` are the same. The
    value follows after a blank or `=`. Truths are also written `--key` and `--no-key`; lists are separated by
    commas; shares may be written `1/11`.
    """
    known = _known_keys()
    overrides: dict[str, Any] = {}
    rest = list(args)
    while rest:
        option, equals, text = rest.pop(0).partition("=")
        if not option.startswith("--") or option == "--":
            raise InputError(
                f"{option}{equals}{text}: not expected here; a key of the recipe is set by --SECTION.KEY VALUE, "
                "e.g. --consensus.k 30."
            )
        key, is_denied = _find_key(option, known)
        one = known[key]
        if is_denied:
            if equals:
                raise InputError(f"{option}={text}: takes no value; write {option} alone.")
            overrides[key] = False
            continue
        if not equals:
            if one.kind is bool:
                text = rest.pop(0) if rest and rest[0].lower() in _YES_NO else "true"
            elif not rest or rest[0].startswith("--"):
                raise InputError(f"{option}: a value is missing; {one.wanted} is needed.")
            else:
                text = rest.pop(0)
        overrides[key] = parse_value(one, text, option)
    return overrides


def option_of(key: str) -> str:
    """`--consensus.max-size` for `consensus.max_size`."""
    return f"--{key.replace('_', '-')}"


def _known_keys() -> dict[str, Setting]:
    known = dict(settings_of(RunRecipe))
    for section, kind in SECTIONS.items():
        known |= {f"{section}.{name}": one for name, one in settings_of(kind).items()}
    return known


def _find_key(option: str, known: dict[str, Setting]) -> tuple[str, bool]:
    """The key that an option names, and whether it is the `--no-` of a truth."""
    name = option.removeprefix("--").replace("-", "_")
    matches = _matches(name, known)
    is_denied = False
    if not matches:
        # --no-tune, --no-consensus.tune and --consensus.no-tune are all in use elsewhere.
        plain = re.sub(r"^(\w+\.)?no_", r"\1", name)
        matches = [key for key in _matches(plain, known) if plain != name and known[key].kind is bool]
        is_denied = bool(matches)
    if not matches:
        raise InputError(_unknown_option(option, name, known))
    # `--labeled A` names images; the share of the same name is written out.
    matches = [key for key in matches if key.startswith("data.")] or matches
    if len(matches) > 1:
        homes = listed([f"[{key.partition('.')[0]}]" for key in matches])
        denial = "--no-" if is_denied else "--"
        ways = listed([option_of(key).replace("--", denial, 1) for key in matches], "or")
        raise InputError(f"{option} is in {homes}; write {ways}.")
    return matches[0], is_denied


def _matches(name: str, known: dict[str, Setting]) -> list[str]:
    return [key for key in known if key == name or key.partition(".")[2] == name]


def _unknown_option(option: str, name: str, known: dict[str, Setting]) -> str:
    section, dot, _ = name.partition(".")
    if dot and section in SECTIONS:
        near = did_you_mean(name, known)
        there = f"[{section}] has {listed(settings_of(SECTIONS[section]))}."
    else:
        short = {key.rpartition(".")[2] for key in known}
        near = did_you_mean(name, known if dot else sorted(short))
        there = "`cdp recipe new -` shows all keys."
    if near:
        near = f" Did you mean {option_of(near.removeprefix(' Did you mean ').removesuffix('?'))}?"
    return f"{option} is not a key of the recipe.{near} {there}"


def parse_value(one: Setting, text: str, option: str) -> Any:
    """A setting's value from text; lists are separated by commas, shares may be written `1/11`."""
    # A comma inside braces belongs to a pattern of files, part-{a,b}.tar.
    parts = [part.strip() for part in re.split(r",(?![^{}]*\})", text)] if one.many else [text]
    try:
        values = [_parse_one(one.kind, part) for part in parts if part or not one.many]
    except (KeyError, ValueError, ZeroDivisionError):
        how = ", separated by commas" if one.many else ""
        raise InputError(f"{option} = {shown(text)}: {one.wanted} is needed{how}.") from None
    return one.convert(values if one.many else values[0], option)


def _parse_one(kind: type, text: str) -> Any:
    if kind is bool:
        return _YES_NO[text.strip().lower()]
    if kind is float and "/" in text:
        return float(Fraction(text.strip()))
    return kind(text)

"""Recipes from TOML and command-line options; errors name file, section and key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from cdp.config.checks import FROZEN, frozen_file
from cdp.config.sections import SECTIONS, DataSection, RunRecipe
from cdp.errors import InputError
from cdp.scoring.settings import with_preset
from cdp.settings import did_you_mean, listed, settings_of, shown, word_for
from cdp.storage.array_files import read_bytes, reading

PATH_KEYS = tuple(name for name, one in settings_of(DataSection).items() if one.kind is str and not one.many)
"""The keys of [data] that are one path; `unlabeled` is a list of them."""


def read_recipe(file: str | Path, overrides: Mapping[str, Any] | None = None) -> RunRecipe:
    """Return the recipe in a TOML file.

    Paths come out absolute, so that the recipe means the same wherever it is written to or read from: those
    in the file start from the file's folder, those on the command line from the working directory. A `data/…`
    that is not there is looked for in the working directory and in $CDP_DATA.

    Args:
        file: TOML; what it leaves out has its default.
        overrides: values by `section.key`, such as the options of a command; they win.
    """
    path = Path(file)
    with reading(path):
        content = _read_toml(path)
    values = _anchor(_nested(content, str(path)), Path(os.path.realpath(path)).parent)
    return _build(_merge(values, overrides or {}), str(path))


def recipe_from(values: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> RunRecipe:
    """Return the recipe from nested plain values, as `RunRecipe.as_dict` gives them.

    Args:
        values: sections of keys, and `seed`; what is left out has its default. Paths are left as they are.
        overrides: values by `section.key`; paths in them start from the working directory.
    """
    return _build(_merge(_nested(values, ""), overrides or {}), "")


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(
            f"{file}: no such file; `cdp data recipe {file}` writes a recipe to start from.",
            code="recipe-missing",
            file=file,
        ) from None
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); give a recipe file.",
            code="recipe-unreadable",
            file=file,
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            f"{file}: not UTF-8 text; save it again as UTF-8.", code="text-not-utf8", file=file
        ) from None
    try:
        # tomllib refuses a lone carriage return; files from elsewhere have them before every line feed.
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{file}: {_syntax_sentence(str(error), text)}", code="recipe-syntax-wrong", file=file
        ) from None
    except (RecursionError, ValueError):
        raise InputError(
            f"{file}: values nested hundreds deep, or a number of thousands of digits; a recipe has sections "
            "of keys.",
            code="recipe-nested-too-deep",
            file=file,
        ) from None


def _syntax_sentence(message: str, text: str) -> str:
    """`line 3 (k = ): Invalid value.`: the line is quoted, because columns alone are hard to find."""
    lines = text.rstrip().split("\n")
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message, flags=re.DOTALL)
    reason, line = (found[1], int(found[2] or len(lines))) if found else (message, len(lines))
    quoted = lines[min(line, len(lines)) - 1].strip()
    hint = ""
    if "Invalid value" in reason and re.search(r"=\s*[A-Za-z/.~]", quoted):
        hint = " Text needs quotes; true and false are written small."
    short = quoted if len(quoted) <= 60 else f"{quoted[:59]}…"
    return f"line {line} ({short}): {reason}.{hint}"


def _nested(values: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Sections of known keys; `seed` is in the section of no name."""
    start = f"{where}: " if where else ""
    nested: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        if name in settings_of(RunRecipe):
            nested[""][name] = value
        elif name not in SECTIONS:
            raise InputError(
                f"{start}{_unknown_section(name, value)}", code="recipe-section-unknown", file=where, key=name
            )
        elif not isinstance(value, Mapping):
            raise InputError(
                f"{start}{name} = {shown(value)}: a section is needed, written [{name}], not "
                f"{word_for(value)}.",
                code="recipe-section-expected",
                file=where,
                key=name,
                value=value,
            )
        else:
            for key in value:
                if key not in settings_of(SECTIONS[name]):
                    raise InputError(
                        f"{start}{_unknown_key(name, key)}",
                        code="recipe-key-unknown",
                        file=where,
                        section=name,
                        key=key,
                    )
            nested[name] = dict(value)
    return nested


def _unknown_section(name: str, value: Any) -> str:
    if not isinstance(value, Mapping):
        homes = [f"[{section}]" for section, kind in SECTIONS.items() if name in settings_of(kind)]
        if homes:
            return f"{name} stands outside the sections; it belongs into {listed(homes, 'or')}."
        near = did_you_mean(name, settings_of(RunRecipe))
        return f"{name} is not a key.{near} Outside the sections there is seed."
    return f"[{name}] is not a section.{did_you_mean(name, SECTIONS)} There are {listed(SECTIONS)}."


def _unknown_key(section: str, key: str) -> str:
    known = settings_of(SECTIONS[section])
    hint = did_you_mean(key, known)
    homes = [f"[{name}]" for name, kind in SECTIONS.items() if key in settings_of(kind)]
    if homes and not hint:
        hint = f" It is a key of {listed(homes)}."
    return f"{section}.{key} is not a key.{hint} [{section}] has {listed(known)}."


def _merge(
    values: Mapping[str, Mapping[str, Any]], overrides: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    merged = {section: dict(keys) for section, keys in values.items()}
    given: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        section, _, key = name.rpartition(".")
        given.setdefault(section, {})[key] = value
    for section, keys in _anchor(given, Path.cwd()).items():
        merged.setdefault(section, {}).update(keys)
    return merged


def _anchor(values: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the same with absolute paths; what is no text is left for the check of types to find."""
    anchored = {section: dict(keys) for section, keys in values.items()}
    data = anchored.get("data", {})
    for key in PATH_KEYS:
        value = data.get(key)
        if isinstance(value, str):
            data[key] = _absolute(value, folder)
    several = data.get("unlabeled")
    if isinstance(several, list | tuple):
        data["unlabeled"] = [_absolute(one, folder) if isinstance(one, str) else one for one in several]
    base, committee = anchored.get("base", {}), anchored.get("committee", {})
    if "network" in base:
        base["network"] = _anchor_network(base["network"], folder)
    if isinstance(weights := base.get("weights"), str) and weights != "timm":
        base["weights"] = _absolute(weights, folder)
    networks = committee.get("networks")
    if isinstance(networks, list | tuple):
        committee["networks"] = [_anchor_network(one, folder) for one in networks]
    return anchored


def _anchor_network(network: Any, folder: Path) -> Any:
    """`onnx:FILE` with an absolute path."""
    file = frozen_file(network) if isinstance(network, str) else None
    return network if not file else FROZEN + _absolute(file, folder)


def _absolute(path: str, folder: Path) -> str:
    """Resolve a path against a folder; `data/…` also against the working directory and $CDP_DATA."""
    if not path:
        return ""
    paths = [os.path.abspath(folder / os.path.expanduser(path))]
    if path.startswith("data/"):
        paths.append(os.path.abspath(path))
        if data := os.environ.get("CDP_DATA"):
            paths.append(os.path.abspath(Path(data).expanduser() / path.removeprefix("data/")))
    return next((found for found in paths if os.path.exists(found)), paths[0])


def _build(values: Mapping[str, Mapping[str, Any]], where: str) -> RunRecipe:
    try:
        given = {**values, "consensus": with_preset(values.get("consensus", {}))}
        sections = {
            field.name: SECTIONS[field.name](**given.get(field.name, {}))
            for field in fields(RunRecipe)
            if field.name in SECTIONS
        }
        return RunRecipe(**values.get("", {}), **sections)
    except InputError as error:
        raise InputError(f"{where}: {error}" if where else str(error), **error.details(file=where)) from None

"""Does docs/train.md name the options that there are, all of them, with their defaults?"""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from cdp.cli.main import app
from cdp.nets.recipe import Recipe
from cdp.settings import settings_of, shown

PAGE = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")


def command_of(name):
    command = get_command(app)
    for word in name.split():
        command = command.commands[word]
    return command


def options_of(*names):
    return {
        option
        for name in names
        for parameter in command_of(name).params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }


def test_every_option_of_training_is_on_the_page():
    named = set(re.findall(r"--[a-z][a-z-]*", PAGE))
    denials = {option for option in options_of("train") if option.startswith("--no-")}
    assert options_of("train") - denials - {"--help"} <= named


def test_every_option_on_the_page_is_there():
    of_torchrun = {"--standalone", "--nproc-per-node", "--no-python", "--help", "--help-all"}
    known = options_of("train", "embed", "label", "data split", "data check") | of_torchrun
    assert set(re.findall(r"--[a-z][a-z-]*", PAGE)) <= known


@pytest.mark.parametrize("row", [line for line in PAGE.splitlines() if line.startswith("| `--")])
def test_defaults_are_those_of_the_settings(row):
    options, defaults = (cell.strip() for cell in row.split("|")[1:3])
    names = [name.replace("-", "_") for name in re.findall(r"`--([a-z-]+)`", options) if name != "grey"]
    known = settings_of(Recipe)
    for name, written in zip(names, defaults.split(", "), strict=bool(defaults) and names[0] in known):
        if name == "color":
            assert written == "color"
        elif name in known:
            default = known[name].default
            words = {True: "on", False: "off"}
            assert written == (words[default] if isinstance(default, bool) else shown(default).strip('"'))

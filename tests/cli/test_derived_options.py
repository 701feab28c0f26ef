"""Are the options of a command those of its settings, and does it learn only what was typed?"""

from dataclasses import dataclass
from typing import Literal

import pytest
import typer
from typer.testing import CliRunner

from cdp.cli.derived_options import Given, with_settings
from cdp.settings import check_settings, setting


@dataclass(frozen=True)
class Cooking:
    """One setting of every kind."""

    minutes: int = setting(20, "Minutes in the oven.", meaning="a number of minutes", low=1)
    salt_share: float = setting(0.01, "Salt.", meaning="a share", low=0, high=1, also=-1)
    cover: bool = setting(True, "Put the lid on.")
    open_door: bool = setting(False, "Leave the door open.")
    dish: str = setting("", "What to call it.")
    heat: Literal["top", "bottom"] = setting("top", "Where it comes from.")
    herbs: tuple[str, ...] = setting(("basil", "thyme"), "Herbs.", choices=("basil", "thyme", "sage"))
    stops: tuple[int, ...] = setting((), "Minutes at which to look.")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Serving:
    plates: int = setting(2, "Plates.")


def run(*words, **how):
    """What a command of these settings was given, or what was said instead."""
    app, seen = typer.Typer(rich_markup_mode=None), []

    @app.command()
    @with_settings(*how.pop("owners", (Cooking,)), **how)
    def cook(meal: str, given: Given, hurry: bool = False) -> None:
        """Cook a meal."""
        seen.append((meal, given, hurry))

    answer = CliRunner().invoke(app, list(words))
    return seen[0] if seen else answer


def test_only_what_was_typed_arrives_and_has_its_type():
    assert run("soup") == ("soup", {}, False)
    words = "soup --minutes 30 --salt-share 0 --no-cover --open-door --dish x --heat bottom --herbs sage,basil --stops 5,10"
    given = {
        "minutes": 30, "salt_share": 0.0, "cover": False, "open_door": True, "dish": "x", "heat": "bottom",
        "herbs": ("sage", "basil"), "stops": (5, 10),
    }  # fmt: skip
    assert run(*words.split(), "--hurry") == ("soup", given, True)
    assert Cooking(**given).herbs == ("sage", "basil")
    # A value that equals the default was typed all the same.
    assert run("soup", "--minutes", "20", "--herbs", "")[1] == {"minutes": 20, "herbs": ()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--minutes 0", "Error: --minutes = 0: a number of minutes, 1 or more. [setting-out-of-range]"),
        (
            "--salt-share 3",
            "Error: --salt-share = 3: a share from 0 to 1, or -1. Did you mean 0.03? [setting-out-of-range]",
        ),
        (
            "--heat botom",
            'Error: --heat = "botom": choose one of top, bottom. Did you mean bottom? [setting-choice-unknown]',
        ),
        (
            "--herbs sage,mint",
            'Error: --herbs[1] = "mint": choose one of basil, thyme, sage. [setting-choice-unknown]',
        ),
        (
            "--stops 5,x",
            'Error: --stops = "5,x": a list of whole numbers is needed, separated by commas. [recipe-option-value-wrong]',
        ),
    ],
)
def test_a_wrong_value_is_one_sentence_about_its_option(words, message):
    answer = run("soup", *words.split())
    assert answer.exit_code == 2
    assert answer.output.strip() == message


def test_the_help_tells_range_choices_and_default():
    said = " ".join(run("--help").output.split())
    for told in (
        "Minutes in the oven. [1 or more; default: 20]",
        "Salt. [from 0 to 1, or -1; default: 0.01]",
        "--cover / --no-cover Put the lid on. [default: on]",
        "Where it comes from. [top, bottom; default: top]",
        "Herbs. [basil, thyme, sage; default: basil,thyme]",
        "Minutes at which to look.",
    ):
        assert told in said
    # In the place of `given`, between the command's own.
    assert said.index("meal") < said.index("--minutes") < said.index("--stops") < said.index("--hurry")


def test_some_of_the_settings_and_other_spellings():
    assert run("soup", "--shut", only=["cover"], flags={"cover": "--shut/--bare"})[1] == {"cover": True}
    assert "No such option" in run("soup", "--minutes", "3", only=["cover"]).output
    assert "No such option" in run("soup", "--heat", "top", without=["heat"]).output
    assert run("soup", "--plates", "3", "--minutes", "4", owners=(Cooking, Serving))[1] == {
        "minutes": 4,
        "plates": 3,
    }
    with pytest.raises(TypeError, match="two settings are called minutes"):
        with_settings(Cooking, Cooking)

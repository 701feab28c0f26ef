"""Fields that carry their help: what is accepted, what is said when it is not."""

from dataclasses import FrozenInstanceError, dataclass
from typing import Literal

import pytest
from tests.refusals import refuses

from cdp.errors import InputError
from cdp.settings import check_settings, did_you_mean, listed, setting, setting_like, settings_of, shown


@dataclass(frozen=True)
class Kitchen:
    heat: float = setting(0.5, "How hot.", meaning="a share", low=0, high=1)
    plates: int = setting(4, "How many.", low=1)
    open: bool = setting(True, "Whether.")
    cook: Literal["ann", "bob"] = setting("ann", "Who.")
    spices: tuple[str, ...] = setting(("salt",), "Which.", choices=("salt", "pepper"))
    times: tuple[float, ...] = setting((), "When.", meaning="an hour", above=0, below=24)
    guests: int = setting(-1, "For how many.", meaning="a number of guests", low=1, also=-1)
    salt: float = setting(0.0, "How salty.")

    def __post_init__(self):
        check_settings(self, "kitchen")


def test_values_are_kept_as_their_types_say():
    kitchen = Kitchen(heat=1, times=[1, 2.5], spices=["pepper"])
    assert repr(kitchen.heat) == "1.0"
    assert repr(kitchen.times) == "(1.0, 2.5)"
    assert kitchen.spices == ("pepper",)
    assert hash(kitchen) == hash(Kitchen(heat=1.0, times=(1.0, 2.5), spices=("pepper",)))
    with pytest.raises(FrozenInstanceError):
        kitchen.heat = 0.2


@pytest.mark.parametrize(
    ("wrong", "code", "fields"),
    [
        ({"heat": 96}, "setting-out-of-range", {"key": "kitchen.heat", "value": 96}),
        ({"heat": -1.0}, "setting-out-of-range", {"key": "kitchen.heat", "value": -1.0}),
        ({"heat": 1.5}, "setting-out-of-range", {"key": "kitchen.heat", "value": 1.5}),
        ({"heat": 101.5}, "setting-out-of-range", {"key": "kitchen.heat", "value": 101.5}),
        ({"heat": float("nan")}, "setting-out-of-range", {"key": "kitchen.heat"}),
        ({"heat": True}, "setting-type-wrong", {"key": "kitchen.heat", "value": True}),
        ({"heat": 10**400}, "setting-type-wrong", {"key": "kitchen.heat"}),
        ({"salt": float("inf")}, "setting-out-of-range", {"key": "kitchen.salt"}),
        ({"plates": 0}, "setting-out-of-range", {"key": "kitchen.plates", "value": 0}),
        ({"plates": 2.0}, "setting-type-wrong", {"key": "kitchen.plates", "value": 2.0}),
        ({"plates": True}, "setting-type-wrong", {"key": "kitchen.plates", "value": True}),
        ({"plates": "4"}, "setting-type-wrong", {"key": "kitchen.plates", "value": "4"}),
        ({"plates": [4]}, "setting-type-wrong", {"key": "kitchen.plates", "value": [4]}),
        ({"plates": {}}, "setting-type-wrong", {"key": "kitchen.plates", "value": {}}),
        ({"plates": None}, "setting-type-wrong", {"key": "kitchen.plates", "value": None}),
        ({"open": 1}, "setting-type-wrong", {"key": "kitchen.open", "value": 1}),
        ({"cook": "bobb"}, "setting-choice-unknown", {"key": "kitchen.cook", "value": "bobb"}),
        ({"spices": "salt"}, "setting-type-wrong", {"key": "kitchen.spices", "value": "salt"}),
        ({"spices": ["salt", "x"]}, "setting-choice-unknown", {"key": "kitchen.spices[1]", "value": "x"}),
        ({"times": [1, 24]}, "setting-out-of-range", {"key": "kitchen.times[1]", "value": 24}),
        ({"guests": 0}, "setting-out-of-range", {"key": "kitchen.guests", "value": 0}),
    ],
)
def test_wrong_values_are_named(wrong, code, fields):
    with refuses(code, **fields):
        Kitchen(**wrong)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"heat": 96}, "kitchen.heat = 96: a share from 0 to 1. Did you mean 0.96?"),
        ({"plates": "4"}, 'kitchen.plates = "4": a whole number is needed, not text.'),
        ({"cook": "bobb"}, 'kitchen.cook = "bobb": choose one of ann, bob. Did you mean bob?'),
        ({"times": [1, 24]}, "kitchen.times[1] = 24: an hour, above 0 and below 24."),
    ],
)
def test_a_wrong_value_is_told_with_the_way_out(wrong, sentence):
    with pytest.raises(InputError) as caught:
        Kitchen(**wrong)
    assert str(caught.value) == sentence


def test_what_help_texts_say_about_a_setting():
    known = settings_of(Kitchen)
    assert {name: known[name].facts for name in known} == {
        "heat": "from 0 to 1; default: 0.5",
        "plates": "1 or more; default: 4",
        "open": "default: on",
        "cook": "ann, bob; default: ann",
        "spices": "salt, pepper; default: salt",
        "times": "above 0 and below 24",
        "guests": "1 or more, or -1; default: -1",
        "salt": "default: 0",
    }


def test_another_default_keeps_the_rest():
    @dataclass(frozen=True)
    class Annex(Kitchen):
        plates: int = setting_like(Kitchen, "plates", 9)

    before, after = settings_of(Kitchen)["plates"], settings_of(Annex)["plates"]
    assert (after.default, after.help, after.low) == (9, before.help, before.low)
    assert list(settings_of(Annex)) == list(settings_of(Kitchen))


def test_other_types_are_a_mistake_of_the_programmer():
    @dataclass(frozen=True)
    class Odd:
        odd: complex = setting(1j, "Odd.")

    with pytest.raises(TypeError, match="not <class 'complex'>"):
        settings_of(Odd)


def test_words():
    assert [listed(["a"]), listed(["a", "b"], "or"), listed(["a", "b", "c"])] == ["a", "a or b", "a, b and c"]
    assert did_you_mean("treshold", ["step", "threshold"]) == " Did you mean threshold?"
    assert did_you_mean("qqq", ["step", "threshold"]) == ""
    assert shown(["a", 1.0, False]) == '["a", 1, false]'

"""Every valid recipe reads back as it was written."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdp.config.keys import parse_value
from cdp.config.reading import recipe_from
from cdp.config.sections import SECTIONS, RunRecipe
from cdp.config.writing import write_recipe
from cdp.errors import InputError
from cdp.scoring.settings import with_preset
from cdp.settings import settings_of

often = settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


def values_of(one):
    """Values that one setting takes."""
    if one.choices:
        element = st.sampled_from(one.choices)
    elif one.kind is bool:
        element = st.booleans()
    elif one.kind is int:
        element = st.integers(int(one.low or 0), int(min(one.high or 10**6, 10**6)))
    elif one.kind is float:
        low = one.low if one.low is not None else one.above
        high = one.high if one.high is not None else one.below
        element = st.floats(low, high, allow_nan=False, allow_infinity=False).filter(one.holds)
    else:
        element = st.sampled_from(["2GB", "500 MiB"]) if one.name == "memory_budget" else st.text(max_size=8)
    if one.many:
        return st.lists(element, max_size=3).map(tuple)
    if one.none:
        element |= st.none()
    return element if one.also is None else element | st.just(one.kind(one.also))


@st.composite
def recipes(draw):
    """A recipe with a few keys of each section changed; keys that do not fit together are drawn again."""
    values = {"seed": draw(st.integers(0, 2**32 - 1))}
    for section, kind in SECTIONS.items():
        known = settings_of(kind)
        names = draw(st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True))
        values[section] = {name: draw(values_of(known[name])) for name in names}
        try:
            kind(**(with_preset(values[section]) if section == "consensus" else values[section]))
        except InputError:  # size and scale, say, are right alone and wrong together
            values[section] = {}
    return recipe_from(values)


@pytest.mark.slow
@often
@given(recipes(), st.booleans(), st.booleans())
def test_a_written_recipe_reads_back_equal(recipe, commented, template):
    again = recipe_from(tomllib.loads(write_recipe(recipe, commented=commented, template=template)))
    assert again == recipe
    assert repr(again) == repr(recipe)
    assert recipe_from(recipe.as_dict()) == recipe


@often
@given(recipes())
def test_every_number_and_choice_can_be_given_as_an_option(recipe):
    for section, kind in SECTIONS.items():
        for name, one in settings_of(kind).items():
            value = getattr(getattr(recipe, section), name)
            if (one.kind is str and not one.choices) or (one.kind is bool and not one.many):
                continue
            text = ",".join(map(str, value)) if one.many else one.none if value is None else str(value)
            assert parse_value(one, text, name) == value


def test_the_strategy_reaches_what_is_not_the_default():
    seen = set()

    @settings(max_examples=30, database=None, derandomize=True)
    @given(recipes())
    def look(recipe):
        seen.update(name for name in SECTIONS if getattr(recipe, name) != getattr(RunRecipe(), name))

    look()
    assert len(seen) >= 8

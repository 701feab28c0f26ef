"""Each setting has one definition: the help of `cdp label`, the reference of recipes and CDP's signature say the same."""

import inspect
import re
from typing import get_args

import pytest
from typer.testing import CliRunner

from cdp import CDP
from cdp.cli.main import app
from cdp.config.reading import recipe_from
from cdp.config.sections import ConsensusSection, EngineSection, RunRecipe
from cdp.config.writing import settings_table, write_recipe
from cdp.errors import InputError
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import PRESETS, ConsensusSettings
from cdp.settings import settings_of, slice_of

SETTINGS = {
    name: one
    for name, one in {**settings_of(ConsensusSettings), **settings_of(RuntimeSettings)}.items()
    if name != "preset"
}


def split_facts(facts):
    """`1 or more; default: 20` -> what is allowed, and the default."""
    allowed, _, default = facts.rpartition("default: ")
    return allowed.removesuffix("; "), default


@pytest.fixture(scope="module")
def help_of_label():
    """Option -> what its help says about it in brackets."""
    result = CliRunner().invoke(app, ["label", "--help-all"])
    assert result.exit_code == 0
    entries = re.sub(r"\n {3,}", " ", result.output).splitlines()
    found = (re.fullmatch(r"  --([a-z-]+).* \[(.*)\]", entry) for entry in entries)
    return {one[1].replace("-", "_"): one[2] for one in found if one is not None}


@pytest.fixture(scope="module")
def signature():
    """Parameter -> what its annotation says about it."""
    parameters = inspect.signature(CDP).parameters.values()
    assert all(one.default is None for one in parameters if one.name in SETTINGS)
    return {one.name: get_args(one.annotation)[1] for one in parameters if one.name in SETTINGS}


@pytest.fixture(scope="module")
def reference():
    """Key -> its cells in the table of settings: name, best, paper, may be, help."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in settings_table().splitlines()[2:]
    ]
    return {row[0].strip("` "): row for row in rows}


def test_all_three_have_the_same_names(help_of_label, signature, reference):
    assert list(signature) == list(reference) == list(SETTINGS)
    assert {name for name in help_of_label if name in SETTINGS} == set(SETTINGS)
    recipe = {**settings_of(ConsensusSection), **settings_of(EngineSection)}
    assert set(SETTINGS) | {"preset", "checkpoint_every"} == set(recipe)
    assert "preset" in help_of_label
    assert inspect.signature(CDP).parameters["preset"].default == "best"
    assert split_facts(help_of_label["preset"]) == ("best, paper", "best")


@pytest.mark.parametrize("name", SETTINGS)
def test_all_three_have_the_same_defaults_and_ranges(name, help_of_label, signature, reference):
    assert help_of_label[name] == signature[name]
    allowed, default = split_facts(signature[name])
    _, best, _, may_be, sentence = reference[name]
    in_toml = best.strip("`").strip('"[]').replace('", "', ",")
    assert {"true": "on", "false": "off"}.get(in_toml, in_toml) == default
    assert may_be.replace("`", "").removeprefix("any of ").endswith(allowed)
    assert sentence == SETTINGS[name].help


@pytest.mark.parametrize("preset", PRESETS)
def test_all_three_resolve_to_the_same_values(preset, monkeypatch):
    expected = ConsensusSettings.of(preset)
    assert CDP(preset).settings == expected
    recipe = recipe_from({"consensus": {"preset": preset}})
    assert slice_of(recipe.consensus, ConsensusSettings) == expected
    seen = []
    monkeypatch.setattr(
        "cdp.cli.label_command.label_embeddings",
        lambda _, how, work: seen.append((how.settings, work.engine)),
    )
    words = ["label", "x", "--input", "embeddings", "--out", "y", "--preset", preset]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert seen == [(expected, RuntimeSettings())]
    assert CDP(preset).engine_settings == slice_of(recipe.engine, RuntimeSettings) == RuntimeSettings()


def test_a_written_recipe_says_the_same_too():
    text = write_recipe(RunRecipe())
    section = text.partition("[consensus]")[2].partition("\n[")[0]
    keys = re.findall(r"^([a-z_]+) = ", section, re.M)
    assert keys == list(settings_of(ConsensusSettings))
    for one in settings_of(ConsensusSettings).values():
        assert " ".join(one.help.split()) in " ".join(section.replace("\n#", "").split())


@pytest.mark.parametrize(
    ("name", "wrong"), [("threshold", 96), ("k", 0), ("join_above", 1.0), ("quorum", -2)]
)
def test_a_wrong_value_is_refused_everywhere_in_the_same_words(name, wrong):
    words = set()
    for refuse in (
        lambda: CDP(**{name: wrong}).settings,
        lambda: ConsensusSection(**{name: wrong}),
        lambda: ConsensusSettings.of(**{name: wrong}),
    ):
        with pytest.raises(InputError) as caught:
            refuse()
        words.add(f"{caught.value} [{caught.value.code}]".removeprefix("consensus."))
    option = f"--{name.replace('_', '-')}"
    result = CliRunner().invoke(app, ["label", "x", "--out", "y", option, str(wrong)])
    assert result.exit_code == 2
    words.add(result.output.strip().removeprefix("Error: ").replace(option, name))
    assert len(words) == 1

"""Each setting has one definition: the help of `cdp label`, the reference of recipes and CDP's signature say the same."""

import inspect
import re
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from typer.testing import CliRunner

from cdp import CDP
from cdp.cli.main import app
from cdp.config.reading import recipe_from
from cdp.config.sections import ConsensusSection, EngineSection, RunRecipe
from cdp.config.writing import settings_table, write_recipe
from cdp.errors import InputError
from cdp.runtime.progress import no_progress
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.mediator import Mediator, PairClassifier
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
    """Parameter -> its type."""
    parameters = inspect.signature(CDP).parameters.values()
    assert all(one.default is None for one in parameters if one.name in SETTINGS)
    hints = get_type_hints(CDP.__init__)
    return {one.name: hints[one.name] for one in parameters if one.name in SETTINGS}


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
    one = SETTINGS[name]
    assert help_of_label[name] == one.facts
    allowed, default = split_facts(one.facts)
    _, best, _, may_be, sentence = reference[name]
    in_toml = best.strip("`").strip('"[]').replace('", "', ",")
    assert {"true": "on", "false": "off"}.get(in_toml, in_toml) == default
    assert may_be.replace("`", "").removeprefix("any of ").endswith(allowed)
    assert sentence == one.help
    assert_takes(signature[name], one)
    (about,) = re.findall(rf"^    {name}: (.*(?:\n        .*)*)", inspect.getdoc(CDP) or "", re.M)
    assert about[0].islower() or about[0] == '"'
    if one.kind is not bool and (default_in_words := re.search(r"\(\"?([\w.]+)\"?\)\.$", about)):
        assert default_in_words[1] == f"{one.default:g}" if one.kind in (int, float) else one.default


def assert_takes(hint, one):
    """A parameter may be all that its setting may be, None where nothing is given, and the word for None."""
    if one.many:
        assert hint == tuple[one.kind, ...] | None
        return
    kinds, words = set(), set()
    for part in get_args(hint):
        if get_origin(part) is Literal:
            words |= set(get_args(part))
        else:
            kinds.add(part)
    assert words == {*one.choices, *([one.none] if one.none else [])}
    plain = set() if one.choices else {one.kind}
    assert kinds - ({Mediator, PairClassifier} if one.name == "mediator" else set()) == {*plain, type(None)}


@pytest.mark.parametrize("preset", PRESETS)
def test_all_three_resolve_to_the_same_values(preset, monkeypatch):
    expected = ConsensusSettings.of(preset)
    assert CDP(preset).settings == expected
    recipe = recipe_from({"consensus": {"preset": preset}})
    assert slice_of(recipe.consensus, ConsensusSettings) == expected
    seen = []
    monkeypatch.setattr(
        "cdp.cli.label_command.label_embeddings",
        lambda _, how, runtime: seen.append((how.settings, runtime.settings)),
    )
    words = ["label", "x", "--input", "embeddings", "--out", "y", "--preset", preset]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert seen == [(expected, RuntimeSettings())]
    assert slice_of(recipe.engine, RuntimeSettings) == RuntimeSettings()
    assert CDP(preset)._runtime(no_progress).settings == RuntimeSettings()


def test_a_written_recipe_says_the_same_too():
    text = write_recipe(RunRecipe())
    section = text.partition("[consensus]")[2].partition("\n[")[0]
    keys = re.findall(r"^([a-z_]+) = ", section, re.M)
    assert keys == list(settings_of(ConsensusSettings))
    for one in settings_of(ConsensusSettings).values():
        assert " ".join(one.help.split()) in " ".join(section.replace("\n#", "").split())


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("threshold", 96), ("threshold", 101), ("threshold", 1.0), ("k", 0), ("min_votes", -2), ("beta", 0)],
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

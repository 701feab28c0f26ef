"""`cdp data recipe` as typed."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.config.keys import known_keys, option_of
from cdp.config.reading import read_recipe, recipe_from
from cdp.config.sections import RunRecipe

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text()


def cdp(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faces").mkdir()
    return tmp_path


def test_a_new_recipe_has_the_defaults_and_is_never_overwritten_unasked():
    result = cdp("data", "recipe", "mine.toml")
    assert result.exit_code == 0, result.output
    assert (
        result.output
        == "Written to mine.toml. Next: fill in [data], then cdp data recipe mine.toml --check\n"
    )
    assert read_recipe("mine.toml") == RunRecipe()
    again = cdp("data", "recipe", "mine.toml", "--k", "3")
    assert (again.exit_code, again.stderr) == (
        2,
        "Error: mine.toml already exists; choose another name or replace it with --force. [output-exists]\n",
    )
    assert cdp("data", "recipe", "mine.toml", "--k", "3", "--force").exit_code == 0
    assert read_recipe("mine.toml").consensus.k == 3
    nowhere = cdp("data", "recipe", "no/mine.toml")
    assert nowhere.exit_code == 1
    assert "cannot be written (No such file or directory); choose another place" in nowhere.stderr


def test_a_new_recipe_can_be_printed(workplace):
    result = cdp("data", "recipe", "-", "--bare", "--data.images", "faces")
    assert result.exit_code == 0
    assert not [line for line in result.output.splitlines() if line.startswith("# ")]
    assert f'images = "{workplace.resolve() / "faces"}"' in result.output
    assert not (workplace / "-").exists()


def test_a_preset_moves_what_a_new_recipe_leaves_at_its_defaults():
    """Every key used to be written out, and so nothing was left for the preset."""
    assert cdp("data", "recipe", "mine.toml", "--data.images", "faces", "--k", "30").exit_code == 0
    paper = json.loads(cdp("data", "recipe", "mine.toml", "--check", "--preset", "paper", "--json").output)[
        "recipe"
    ]
    expected = recipe_from({"consensus": {"preset": "paper", "k": 30}}).as_dict()["consensus"]
    assert paper["consensus"] == expected
    shown = cdp("data", "recipe", "mine.toml", "--check", "--preset", "paper", "--grouping", "average").output
    assert shown.splitlines()[-3:] == [
        "  consensus.k        = 30  (default 20)",
        '  consensus.grouping = "average"  (default "components")',
        '  consensus.preset   = "paper"  (default "best")',
    ]


def test_check_shows_what_differs(workplace):
    Path("mine.toml").write_text('[data]\nimages = "faces"\n[split]\nprobes = 0.1\ndistractors = 0.1\n')
    result = cdp(
        "data", "recipe", "mine.toml", "--check", "--train.epochs", 5, "--no-bound", "--labeled-share", "-1"
    )
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "mine.toml: valid; cdp run can run it.",
        "Changed from the defaults:",
        f'  data.images       = "{workplace.resolve() / "faces"}"  (default "")',
        "  split.probes      = 0.1  (default -1.0)",
        "  split.distractors = 0.1  (default -1.0)",
        "  train.epochs      = 5.0  (default 20)",
        "  evaluation.bound  = false  (default true)",
    ]
    printed = json.loads(cdp("data", "recipe", "mine.toml", "--check", "--k", 7, "--json").output)
    assert printed["recipe"]["consensus"]["k"] == 7
    assert printed["networks_checked"] is True


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("mine.toml", "recipe-sources-missing"),
        ("mine.toml --data.images nope --split.probes 0.1 --split.distractors 0.1", "recipe-path-missing"),
        ("mine.toml --data.images faces --network x", "network-unknown"),
        ("gone.toml", "recipe-missing"),
        ("mine.toml --consensus.k none", "recipe-option-value-wrong"),
    ],
)
def test_check_refuses_in_a_sentence(words, code):
    Path("mine.toml").write_text("")
    result = cdp("data", "recipe", *words.split(), "--check")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert f"[{code}]" in result.stderr
    assert result.stdout == ""


def test_a_sentence_of_check_names_file_key_and_way_out():
    Path("mine.toml").write_text("")
    said = cdp("data", "recipe", "mine.toml", "--check", "--data.images", "faces", "--network", "x").stderr
    assert said.startswith("Error: mine.toml: base.network: network 'x' is not known here")
    said = cdp("data", "recipe", "gone.toml", "--check").stderr
    assert "gone.toml: no such file; `cdp data recipe gone.toml` writes a recipe to start from." in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mine.toml --epoch 3", "No such option: --epoch. Did you mean --epochs"),
        ("mine.toml --consensus.treshold 0.5", "Did you mean --consensus.threshold"),
        ("mine.toml more", "unexpected extra argument"),
    ],
)
def test_words_that_are_no_options_are_answered_with_those_that_are(words, message):
    Path("mine.toml").write_text("")
    result = cdp("data", "recipe", *words.split(), "--check")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_options_may_come_before_the_file():
    Path("mine.toml").write_text('[data]\nimages = "faces"\n')
    made = json.loads(cdp("data", "recipe", "--check", "--json", "--k", "3", "mine.toml").output)
    assert made["recipe"]["consensus"]["k"] == 3


def test_all_keys_are_options():
    listed = cdp("data", "recipe", "--help-all").output
    for key in known_keys():
        assert option_of(key) in listed or option_of(key.rpartition(".")[2]) in listed


def test_the_commands_and_the_recipe_of_the_page_work():
    lines = "\n".join(re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)).splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("cdp data recipe")]
    assert len(commands) == 5
    Path("short.toml").write_text(re.search(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)[1])
    for words in commands:
        result = cdp(
            *("short.toml" if word == "mine.toml" and "--check" in words else word for word in words)
        )
        assert result.exit_code == 0, (words, result.output)
    snippet = re.search(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[1]
    names = {}
    exec(snippet, names)
    assert names["recipe"].consensus.k == 30

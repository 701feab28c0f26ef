"""`cdp recipe` as typed."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdp.cli.main import app
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
    result = cdp("recipe", "new", "mine.toml")
    assert result.exit_code == 0, result.output
    assert result.output == "Written to mine.toml. Next: fill in [data], then cdp recipe check mine.toml\n"
    assert read_recipe("mine.toml") == RunRecipe()
    again = cdp("recipe", "new", "mine.toml", "--k", "3")
    assert (again.exit_code, again.stderr) == (
        2,
        "Error: mine.toml is there already; choose another name or replace it with --force.\n",
    )
    assert cdp("recipe", "new", "mine.toml", "--k", "3", "--force").exit_code == 0
    assert read_recipe("mine.toml").consensus.k == 3
    nowhere = cdp("recipe", "new", "no/mine.toml")
    assert nowhere.exit_code == 1
    assert "cannot be written (No such file or directory); choose another place" in nowhere.stderr


def test_a_new_recipe_can_be_printed(workplace):
    result = cdp("recipe", "new", "-", "--bare", "--data.images", "faces")
    assert result.exit_code == 0
    assert not [line for line in result.output.splitlines() if line.startswith("# ")]
    assert f'images = "{workplace.resolve() / "faces"}"' in result.output
    assert not (workplace / "-").exists()


def test_a_preset_moves_what_a_new_recipe_leaves_at_its_defaults():
    """Every key used to be written out, and so nothing was left for the preset."""
    assert cdp("recipe", "new", "mine.toml", "--data.images", "faces", "--k", "30").exit_code == 0
    paper = json.loads(cdp("recipe", "check", "mine.toml", "--preset", "paper", "--json").output)["recipe"]
    expected = recipe_from({"consensus": {"preset": "paper", "k": 30}}).as_dict()["consensus"]
    assert paper["consensus"] == expected
    shown = cdp("recipe", "check", "mine.toml", "--preset", "paper", "--grouping", "average").output
    assert shown.splitlines()[-3:] == [
        "  consensus.k        = 30  (default 20)",
        '  consensus.grouping = "average"  (default "components")',
        '  consensus.preset   = "paper"  (default "best")',
    ]


def test_check_shows_what_differs(workplace):
    Path("mine.toml").write_text('[data]\nimages = "faces"\n[split]\nprobes = 0.1\ndistractors = 0.1\n')
    result = cdp("recipe", "check", "mine.toml", "--train.epochs", 5, "--no-bound", "--labeled-share", "-1")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "mine.toml: this recipe can be run.",
        "Not at its default:",
        f'  data.images       = "{workplace.resolve() / "faces"}"  (default "")',
        "  split.probes      = 0.1  (default -1.0)",
        "  split.distractors = 0.1  (default -1.0)",
        "  train.epochs      = 5.0  (default 20)",
        "  evaluation.bound  = false  (default true)",
    ]
    printed = json.loads(cdp("recipe", "check", "mine.toml", "--k", 7, "--json").output)
    assert printed["recipe"]["consensus"]["k"] == 7
    assert printed["networks_checked"] is True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mine.toml", "mine.toml: data.images, data.embeddings and data.labeled are all empty: name what"),
        (
            "mine.toml --epochs 3",
            "--epochs is in [train] and [joint]; write --train.epochs or --joint.epochs.",
        ),
        (
            "mine.toml --data.images nope --split.probes 0.1 --split.distractors 0.1",
            "nope: no such file or folder; relative",
        ),
        (
            "mine.toml --data.images faces --network x",
            "mine.toml: base.network: network 'x' is not known here",
        ),
        ("mine.toml more", "more: not expected here; a key of the recipe is set by --SECTION.KEY VALUE"),
        ("--k 3 mine.toml", "--k: the recipe's file comes first, then the keys to set."),
        ("gone.toml", "gone.toml: no such file; `cdp recipe new gone.toml` writes a recipe to start from."),
    ],
)
def test_check_refuses_in_a_sentence(words, message):
    Path("mine.toml").write_text("")
    result = cdp("recipe", "check", *words.split())
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stdout == ""


def test_help_screens_name_the_keys_as_options():
    for command in ("new", "check"):
        help_text = " ".join(cdp("recipe", command, "--help").output.split())
        assert "[--KEY VALUE]..." in help_text
        assert "Keys can be set" in help_text


def test_the_commands_and_the_recipe_of_the_page_work():
    lines = "\n".join(re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)).splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("cdp recipe")]
    assert len(commands) == 5
    Path("short.toml").write_text(re.search(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)[1])
    for words in commands:
        result = cdp(*words) if "check" not in words else cdp("recipe", "check", "short.toml", *words[3:])
        assert result.exit_code == 0, (words, result.output)
    snippet = re.search(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[1]
    names = {}
    exec(snippet, names)
    assert names["recipe"].consensus.k == 30

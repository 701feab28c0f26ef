import json

import numpy as np
import pytest
from typer.testing import CliRunner

from cdp import Views
from cdp_lab.cli.lab_main import app
from cdp_lab.synthetic import synthetic_views


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baselines")
    split = synthetic_views(60, 8, members=1, dimensions=16, noise=0.3)
    split.labeled.save(folder / "labeled")
    split.unlabeled.save(folder / "unlabeled")
    Views(split.unlabeled.base).save(folder / "nameless")
    narrow = Views(np.asarray(split.labeled.base)[:, :8], identities=split.labeled.identities)
    narrow.save(folder / "narrow")
    return folder


@pytest.fixture
def cdp(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setenv("COLUMNS", "160")

    def run(words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["baselines", *words.split()])
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.mark.slow
def test_figures_of_methods_and_of_cdp(cdp, home):
    output = cdp(
        "unlabeled --validation labeled --labeled labeled --methods finch,hierarchical_single --k 5 --out all.json"
    )
    for words in ("hierarchical_single", "similarity 0.", "cdp, preset paper", "Written to all.json"):
        assert words in output
    found = json.loads((home / "all.json").read_text())
    assert [row["name"] for row in found["rows"]] == [
        "finch", "hierarchical_single", "cdp, preset best", "cdp, preset paper",
    ]  # fmt: skip
    assert (found["format"], found["k"], found["model"], found["tune_on"]) == (1, 5, "base", "labeled")
    for row in found["rows"]:
        assert row["failure"] is None
        assert 0 <= row["coverage"] <= 1
        assert 0 <= row["nmi"] <= 1
        assert row["seconds"] > 0
        # Of fewer than 20 labeled identities the preset best learns nothing.
        assert row["tuning_seconds"] > 0 or row["name"] == "cdp, preset best"
    assert found["rows"][1]["f"] > 0.5
    assert not list(home.glob(".all.json*"))


@pytest.mark.slow
def test_another_model_or_all_of_them(cdp, home):
    cdp("unlabeled --validation labeled --methods finch --k 5 --model ensemble --out ensemble.json --quiet")
    cdp("unlabeled --validation labeled --methods finch --k 5 --model member1 --out member.json --quiet")
    ensemble, member = (json.loads((home / f"{name}.json").read_text()) for name in ("ensemble", "member"))
    assert ensemble["rows"][0]["f"] != member["rows"][0]["f"]


def test_k_is_smaller_where_a_part_has_few_images(cdp, home):
    output = cdp("unlabeled --validation labeled --methods finch --k 5000 --out small.json --quiet")
    k = json.loads((home / "small.json").read_text())["k"]
    assert f"k = {k} instead of 5000" in output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (
            "unlabeled --validation labeled --methods birch --out x.json",
            "baseline-unknown",
        ),
        (
            "nameless --validation labeled --out x.json",
            "baseline-identities-missing",
        ),
        (
            "unlabeled --validation labeled --model missing --k 5 --out x.json",
            "baseline-model-unknown",
        ),
        (
            "unlabeled --validation labeled --out labeled --force",
            "output-not-replaced",
        ),
        (
            "unlabeled --validation labeled --out there.json",
            "output-exists",
        ),
        (
            "unlabeled --validation narrow --k 5 --out x.json",
            "parts-models-differ",
        ),
    ],
)
def test_mistakes_are_sentences(cdp, home, words, code):
    (home / "there.json").write_text("{}")
    said = cdp(words, code=2)
    assert said.strip().startswith("Error: ")
    assert f"[{code}]" in said
    assert not (home / "x.json").exists()


@pytest.mark.parametrize("methods", [",", ""])
def test_an_empty_list_of_methods_is_refused(cdp, methods):
    output = cdp(f"unlabeled --validation labeled --out none.json --methods={methods}", code=2)
    assert output.startswith("Error: No method is named; choose from ")

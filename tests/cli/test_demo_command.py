"""`cdp demo`: the whole paper on drawn faces."""

import json

import pytest
from cdp.config.examples import demo_recipe
from typer.testing import CliRunner

from cdp.cli.main import app


def test_the_demo_is_the_papers_setup():
    recipe = demo_recipe()
    labeled_share = recipe.split.labeled * (1 - recipe.split.validation)
    assert labeled_share == pytest.approx(1 / 11)
    assert recipe.split.unlabeled_parts == 9, "the tenth unlabeled part is the validation part"
    assert recipe.split.validation == pytest.approx(1 / 11)
    assert len({recipe.base.network, *recipe.committee.networks}) == 5
    assert recipe.evaluation.bound


def test_quick_changes_less_and_the_command_line_wins():
    recipe = demo_recipe(quick=True, overrides=["--train.epochs", "3", "--seed", "5"])
    assert (recipe.train.epochs, recipe.seed) == (3, 5)
    assert recipe.drawn.identities < demo_recipe().drawn.identities


def test_the_plan_of_the_demo(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--plan", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    assert "draw faces" in result.output
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_quick_demo_tells_the_papers_story(tmp_path):
    """Seeded. With 15 epochs two seeds gave 0.880, 0.949, 0.975 and 0.833, 0.906, 0.953, and F 0.81 and 0.79."""
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "demo" / "run.json").read_text())["results"]
    rank_1 = {model["key"]: model["rank1"]["value"] for model in results["headline"]["models"]}
    assert rank_1["all"] > rank_1["labeled"] + 0.05
    assert rank_1["cdp"] > rank_1["labeled"] + 0.02
    assert results["labels"]["true"]["discards_kept"]["pairwise"]["f"] > 0.65
    page = (tmp_path / "demo" / "report.html").read_text()
    assert f"{100 * rank_1['cdp']:.1f} %" in page
    assert page.count("data:image/") > 50


def test_a_plan_clears_nothing(tmp_path):
    """Even with --force."""
    (tmp_path / "demo" / "stages").mkdir(parents=True)
    (tmp_path / "demo" / "report.html").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--plan", "--force", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "demo" / "report.html").read_text() == "mine"

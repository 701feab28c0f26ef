"""`cdp demo`: the whole paper on drawn faces."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp_lab.demo import demo_faces, demo_recipe, draw_demo_faces

HERE = Path()


def test_the_demo_is_the_papers_setup():
    recipe = demo_recipe(HERE)
    labeled_share = recipe.split.labeled * (1 - recipe.split.validation)
    assert labeled_share == pytest.approx(1 / 11)
    assert recipe.split.unlabeled_parts == 9, "the tenth unlabeled part is the validation part"
    assert recipe.split.validation == pytest.approx(1 / 11)
    assert len({recipe.base.network, *recipe.committee.networks}) == 5
    assert recipe.evaluation.bound


def test_quick_changes_less_and_the_command_line_wins():
    recipe = demo_recipe(HERE, "quick", {"train.epochs": 3, "seed": 5})
    assert (recipe.train.epochs, recipe.seed) == (3, 5)
    amounts = [demo_faces(0, size)[0].identities for size in ("quick", "default", "full")]
    assert amounts == sorted(set(amounts))
    training, test = demo_faces(0)
    assert training.seed != test.seed, "nobody is on both sides"


def test_the_plan_of_the_demo_draws_nothing(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--plan", "--json", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    plan = [json.loads(line) for line in result.output.splitlines()]
    assert {(one["state"], one["why"]) for one in plan} == {("run", "not made yet")}
    assert {"split", "train small_nasnet", "label", "train with all labels"} <= {one["stage"] for one in plan}
    assert list(tmp_path.iterdir()) == []


def test_faces_are_drawn_once_and_again_for_another_seed(tmp_path, monkeypatch):
    drawn = []

    def draw(file, settings, **named):
        drawn.append((file.name, settings.seed))
        file.touch()

    monkeypatch.setattr("cdp_lab.demo.write_faces", draw)
    for seed in (0, 0, 1):
        draw_demo_faces(tmp_path, demo_recipe(tmp_path, overrides={"seed": seed}))
    assert drawn == [("faces.zip", 0), ("test_faces.zip", 1), ("faces.zip", 2), ("test_faces.zip", 3)]
    (tmp_path / "run" / "drawn" / "faces.zip").unlink()
    draw_demo_faces(tmp_path, demo_recipe(tmp_path, overrides={"seed": 1}))
    assert len(drawn) == 6


def test_what_is_wrong_is_a_sentence(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--data.images", "photos", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 2
    assert "[demo-data-given]" in result.output
    result = CliRunner().invoke(app, ["demo", "--embeddings", "--k", "5", "--out", str(tmp_path / "demo")])
    assert (result.exit_code, "[demo-option-not-taken]" in result.output) == (2, True)
    (tmp_path / "thesis.tex").write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "[output-holds-other-things]" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_the_quick_demo_tells_the_papers_story(tmp_path):
    """With one member and shorter training on one thread, as several tests share the machine.

    Seeded: rank-1 0.821, 0.924, 0.912, pairwise F 0.77.
    """
    words = ["--committee.networks", "small_vgg", "--joint.epochs", "2", "--no-members"]
    words += ["--threads", "1", "--out", str(tmp_path / "demo")]
    result = CliRunner().invoke(app, ["demo", "--quick", *words])
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "demo" / "run" / "run.json").read_text())["results"]
    rank_1 = {model["key"]: model["rank1"]["value"] for model in results["headline"]["models"]}
    assert rank_1["all"] > rank_1["labeled"] + 0.05
    assert rank_1["cdp"] > rank_1["labeled"] + 0.02
    assert results["labels"]["true"]["discards_kept"]["pairwise"]["f"] > 0.65
    page = (tmp_path / "demo" / "report.html").read_text()
    assert f"{100 * rank_1['cdp']:.1f} %" in page
    assert page.count("data:image/") > 50


def test_a_plan_clears_nothing(tmp_path):
    """Even with --force."""
    (tmp_path / "demo" / "run" / "stages").mkdir(parents=True)
    (tmp_path / "demo" / "report.html").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--plan", "--force", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "demo" / "report.html").read_text() == "mine"


@pytest.mark.slow
def test_without_torch_the_demo_labels_embeddings(tmp_path, monkeypatch):
    monkeypatch.setattr("cdp.cli.train_commands._has_torch", lambda: False)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo"), "--quiet"])
    assert result.exit_code == 0, result.output
    assert "PyTorch is not installed" in result.stderr
    assert (tmp_path / "demo" / "faces" / "labels.csv").is_file()

"""Recipes with networks that are files: nothing is trained, or some members are; it ends with labels and the report."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="ONNX models need the extra onnx")
pytest.importorskip("onnx")

from tests.drawn_images import draw_patterns
from tests.onnx_builders import embedder

from cdp.cli.main import app

RECIPE = """
[data]
images = "people"

[split]
labeled = 0.4
unlabeled_parts = 1

[base]
network = "onnx:models/arcface.onnx"

[committee]
networks = ["onnx:models/sface.onnx"{more}]

[consensus]
preset = "paper"
k = 6

[train]
epochs = 1
size = 16
batch = 32

[evaluation]
replicates = 20
fpr = [0.1]

[engine]
threads = 1
"""


@pytest.fixture
def home(tmp_path):
    draw_patterns(tmp_path / "people", n_identities=24, n_images=6)
    embedder(tmp_path / "models/arcface.onnx", dimensions=16)
    embedder(tmp_path / "models/sface.onnx", dimensions=16, seed=1)
    (tmp_path / "recipe.toml").write_text(RECIPE.format(more=""))
    return tmp_path


def run(home, *words):
    return CliRunner().invoke(app, ["run", str(home / "recipe.toml"), "--out", str(home / "run"), *words])


def stages(home):
    return [one["name"] for one in json.loads((home / "run/run/run.json").read_text())["stages"]]


@pytest.mark.whole_training
def test_a_run_of_frozen_networks_trains_nothing_and_ends_with_the_report(home):
    result = run(home, "--quiet")
    assert result.exit_code == 0, result.output
    assert stages(home) == ["split", "embed arcface", "embed sface", "label"]
    assert (home / "run/report.html").exists()
    record = json.loads((home / "run/run/run.json").read_text())
    assert record["results"]["labels"]["true"]["discards_kept"]["pairwise"]["f"] > 0.9
    assert record["results"]["headline"] is None
    # A model that was changed, or its card, is another model; nothing else is made again.
    (home / "models/sface.toml").write_text('color = "BGR"\n')
    result = run(home, "--json")
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    again = [one["stage"] for one in events if one["event"] == "finished" and not one["fresh"]]
    assert again == ["embed sface", "label"]


@pytest.mark.slow
def test_frozen_and_trained_networks_are_one_committee(home):
    pytest.importorskip("torch", reason="trained networks need the extra nets")
    (home / "recipe.toml").write_text(RECIPE.format(more=', "small_vgg"'))
    result = run(home, "--quiet", "--split.probes", "0.1", "--split.distractors", "0.1")
    assert result.exit_code == 0, result.output
    assert stages(home) == [
        "split", "train small_vgg", "embed arcface", "embed sface", "embed small_vgg", "label",
        "test arcface", "test sface", "test small_vgg", "measure members",
    ]  # fmt: skip
    members = json.loads((home / "run/run/run.json").read_text())["results"]["committee"]["members"]
    assert [one["name"] for one in members] == ["arcface", "sface", "small_vgg"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--joint.rounds", "2"), "recipe-key-needs-training"),
        (("--train.folds", "2"), "recipe-key-needs-training"),
        (("--base.network", "onnx:absent.onnx"), "recipe-network-file-missing"),
        (("--base.network", "onnx:models/sface.onnx"), "recipe-network-name-repeated"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(home, monkeypatch, words, code):
    monkeypatch.chdir(home)
    result = run(home, *words)
    assert result.exit_code == 2
    assert f"[{code}]" in result.stderr


@pytest.mark.whole_training
@pytest.mark.slow
def test_a_base_that_starts_from_given_weights_is_trained_on_in_both_stages(home):
    pytest.importorskip("torch", reason="trained networks need the extra nets")
    words = "--network small_vgg --size 16 --epochs 1 --quiet"
    trained = CliRunner().invoke(
        app, ["train", str(home / "people"), "--out", str(home / "nets"), *words.split()]
    )
    assert trained.exit_code == 0, trained.output
    (home / "recipe.toml").write_text(
        RECIPE.format(more="").replace(
            '"onnx:models/arcface.onnx"', '"small_vgg"\nweights = "nets/small_vgg"'
        )
        + "\n[joint]\nepochs = 1\nsize = 16\nbatch = 32\n"
    )
    nothing = ("--split.probes", "0", "--split.distractors", "0", "--consensus.threshold", "0.5")
    result = run(home, "--quiet", *nothing)
    assert result.exit_code == 0, result.output
    assert stages(home)[-1] == "train with pseudo-labels"
    again = run(home, "--json", *nothing, "--joint.epochs", "2")
    events = [json.loads(line) for line in again.stdout.splitlines()]
    made = [one["stage"] for one in events if one["event"] == "finished" and not one["fresh"]]
    assert made == ["train with pseudo-labels"]

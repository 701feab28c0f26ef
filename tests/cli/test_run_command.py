"""`cdp run`: the whole paper on small drawn patterns; what is fresh is kept, what is killed goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.drawn_images import draw_patterns
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.run.runner import alone_in

pytestmark = pytest.mark.slow
"""They train networks, though tiny ones."""

RECIPE = """
[data]
images = "people"

[split]
labeled = 0.3
unlabeled_parts = 2
validation = 0.2
probes = 0.15
distractors = 0.15

[base]
network = "small_resnet"

[committee]
networks = ["small_vgg", "small_inception"]

[train]
epochs = 10
batch = 16
size = 16
dimensions = 16

[joint]
epochs = 3
batch = 16
size = 16
dimensions = 16

[consensus]
k = 10
threshold = 0.6
max_size = 12

[evaluation]
replicates = 20
fpr = [0.1]

[engine]
threads = 1
checkpoint_every = 5
"""


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    """A folder with images and a recipe."""
    folder = tmp_path_factory.mktemp("run")
    draw_patterns(folder / "people", n_identities=40, n_images=8)
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


@pytest.fixture(scope="module")
def finished(kitchen):
    """A run that went undisturbed."""
    result = call(kitchen, "--out", str(kitchen / "run"))
    assert result.exit_code == 0, result.output
    return kitchen / "run", result.output


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run that a test may spoil."""
    shutil.copytree(finished[0], tmp_path / "run")
    return tmp_path / "run"


def call(kitchen, *words):
    return CliRunner().invoke(app, ["run", str(kitchen / "recipe.toml"), *words])


def events(output):
    return [json.loads(line) for line in output.splitlines()]


def rerun(kitchen, out, *words):
    """Which stages ran again."""
    result = call(kitchen, "--out", str(out), "--json", *words)
    assert result.exit_code == 0, result.output
    return [one["stage"] for one in events(result.stdout) if one["event"] == "finished" and not one["fresh"]]


def test_a_run_ends_with_figures_a_record_and_a_page(finished):
    folder, output = finished
    record = json.loads((folder / "run.json").read_text())
    assert {"recipe", "versions", "seed", "stages", "results", "seconds", "cores"} <= set(record)
    keys = [model["key"] for model in record["results"]["headline"]["models"]]
    assert keys == ["labeled", "cdp", "all"]
    for model in record["results"]["headline"]["models"]:
        assert model["rank1"]["low"] <= model["rank1"]["value"] <= model["rank1"]["high"]
        assert f"{model['rank1']['value']:.3f}" in output
    assert all(stage["peak_memory"] > 1e7 and len(stage["key"]) == 64 for stage in record["stages"])
    assert "share of the gap closed" in output
    assert "<html" in (folder / "report.html").read_text()
    truth = record["results"]["labels"]["true"]
    assert truth["discards_kept"]["pairwise"]["f"] > 0.5


def test_the_same_command_again_keeps_everything(kitchen, copied):
    before = (copied / "recognition.json").read_bytes()
    assert rerun(kitchen, copied) == []
    assert (copied / "recognition.json").read_bytes() == before


def test_the_plan_says_what_runs_and_why(kitchen, copied):
    result = call(kitchen, "--out", str(copied), "--plan", "--json", "--k", "6")
    told = {one["stage"]: (one["state"], one["why"]) for one in events(result.stdout)}
    assert told["train small_vgg"] == ("fresh", "up to date")
    assert told["graphs small_vgg"] == ("run", "k 10 → 6")
    assert told["consensus"] == ("perhaps", "after graphs small_resnet")
    table = call(kitchen, "--out", str(copied), "--plan").output
    assert "0 of " in table
    assert "kept" in table


def test_a_plan_writes_nothing(kitchen, tmp_path):
    result = call(kitchen, "--out", str(tmp_path / "new"), "--plan")
    assert result.exit_code == 0, result.output
    assert "not made yet" in result.output
    assert not (tmp_path / "new").exists()


def test_another_member_redoes_exactly_what_depends_on_it(kitchen, copied):
    ran = rerun(kitchen, copied, "--committee.networks", "small_vgg,small_nasnet")
    assert "train small_nasnet" in ran
    assert "mediator" in ran
    assert not {
        name for name in ran if "small_vgg" in name or ("small_resnet" in name and "joint" not in name)
    }
    assert "split" not in ran
    assert "train with all labels" not in ran


def test_another_threshold_keeps_networks_and_mediator(kitchen, copied):
    ran = rerun(kitchen, copied, "--threshold", "0.9")
    assert ran[0] == "consensus"
    assert not {"mediator", "train with all labels"} & set(ran)


def test_moved_and_renamed_images_are_the_same_images(kitchen, copied, tmp_path):
    shutil.copytree(kitchen / "people", tmp_path / "moved")
    for number, file in enumerate(sorted((tmp_path / "moved").rglob("*.png"))):
        file.rename(file.with_name(f"renamed{number:05d}.png"))
    assert rerun(kitchen, copied, "--data.images", str(tmp_path / "moved")) == []


def test_a_changed_image_is_noticed(kitchen, copied, tmp_path):
    shutil.copytree(kitchen / "people", tmp_path / "people")
    one, other = sorted((tmp_path / "people" / "person000").glob("*.png"))[:2]
    shutil.copy(other, one)
    assert rerun(kitchen, copied, "--data.images", str(tmp_path / "people"))[0] == "split"


def test_a_tuned_threshold_and_a_vote(kitchen, copied):
    rerun(kitchen, copied, "--tune", "--mediator", "vote", "--soft-depth", "2")
    record = json.loads((copied / "run.json").read_text())
    tuning = record["results"]["tuning"]
    best = max(tuning["curve"], key=lambda point: point["f"])
    assert tuning["chosen"] == best["threshold"] == record["results"]["labels"]["threshold"]
    assert record["results"]["mediator"] is None
    n_validation = record["parts"]["validation"]["images"]
    assert (
        record["results"]["labels"]["true"]["images"] == record["parts"]["unlabeled"]["images"] - n_validation
    )
    assert (copied / "labels" / "soft_labels.npz").exists()


def test_hierarchical_clustering_in_place_of_the_committee(kitchen, copied):
    ran = rerun(kitchen, copied, "--mediator", "hierarchical", "--tune", "--ensemble", "2")
    assert ran == [
        "labels",
        "measure labels",
        "train with pseudo-labels",
        "test joint/small_resnet",
        "measure recognition",
        "measure members",
    ]
    results = json.loads((copied / "run.json").read_text())["results"]
    assert results["labels"]["setting"] == "merge_above"
    assert results["labels"]["threshold"] == results["tuning"]["chosen"]
    assert results["labels"]["true"]["pairs"] is None
    assert results["labels"]["true"]["discards_kept"]["pairwise"]["f"] > 0.2
    members = {one["name"]: one["rank1"]["value"] for one in results["committee"]["members"]}
    best = sorted(members, key=lambda name: -members[name])[:2]
    assert results["committee"]["ensemble"]["names"] == best
    assert not (copied / "consensus").exists()


def test_a_mediator_that_learns_from_strangers(kitchen, copied):
    ran = rerun(kitchen, copied, "--folds", "2", "--grouping", "average", "--join-above", "0.2")
    trained = [name for name in ran if name.startswith("train fold")]
    assert trained == [
        f"train fold{fold}/small_{kind}" for fold in (1, 2) for kind in ("resnet", "vgg", "inception")
    ]
    assert not {"train small_resnet", "embed small_resnet", "train with all labels"} & set(ran)
    labels = json.loads((copied / "run.json").read_text())["results"]["labels"]
    assert labels["threshold"] == 0.2
    assert labels["true"]["discards_kept"]["pairwise"]["f"] > 0.5


def parts_apart(folder, n_identities, n_images):
    """Options for a labeled part, an unlabeled one of which nothing is known, and a test part, each in its own folder."""
    for name, first in (("known", 0), ("unknown", 12), ("test", 24)):
        draw_patterns(folder / name, n_identities=n_identities, n_images=n_images, first=first)
    (folder / "flat").mkdir()
    for number, file in enumerate(sorted((folder / "unknown").rglob("*.png"))):
        file.rename(folder / "flat" / f"{number}.png")
    words = [
        "--data.images",
        "",
        "--split.probes",
        "0",
        "--split.distractors",
        "0",
        "--split.validation",
        "0",
    ]
    for key, name in (("labeled", "known"), ("unlabeled", "flat"), ("test", "test")):
        words += [f"--data.{key}", str(folder / name)]
    return words


def test_a_bound_without_true_identities_is_refused_before_anything_is_trained(kitchen, tmp_path):
    words = parts_apart(tmp_path, n_identities=8, n_images=4)
    result = call(kitchen, "--out", str(tmp_path / "run"), *words)
    assert result.exit_code == 2
    assert "evaluation.bound = true needs the true identity of every unlabeled image" in result.output
    assert "train" not in result.output.split("Error")[0]


def test_without_truth_the_validation_part_still_chooses(kitchen, copied):
    rerun(kitchen, copied, "--no-truth", "--tune")
    results = json.loads((copied / "run.json").read_text())["results"]
    assert max(point["f"] for point in results["tuning"]["curve"]) > 0
    assert results["labels"]["true"] is None


def test_without_truth_there_is_no_bound_and_no_label_figure(kitchen, copied):
    rerun(kitchen, copied, "--no-truth")
    results = json.loads((copied / "run.json").read_text())["results"]
    assert [model["key"] for model in results["headline"]["models"]] == ["labeled", "cdp"]
    assert results["headline"]["gap_closed"] is None
    assert results["labels"]["true"] is None


def test_parts_that_are_split_already(kitchen, tmp_path):
    words = parts_apart(tmp_path, n_identities=12, n_images=8)
    result = call(kitchen, "--out", str(tmp_path / "run"), *words, "--no-bound")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["parts"]["unlabeled"] == {"images": 96, "identities": None}
    assert "share of the gap closed" not in result.output


def test_a_second_run_in_the_same_folder_is_refused(kitchen, copied):
    with alone_in(copied):
        result = call(kitchen, "--out", str(copied))
    assert result.exit_code == 2
    assert "another cdp is at work in this folder" in result.output


def test_a_folder_with_other_things_is_left_alone(kitchen, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    result = call(kitchen, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "holds other things (thesis.tex)" in result.output
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_unknown_networks_and_missing_images_are_found_before_anything_runs(kitchen, tmp_path):
    out = tmp_path / "run"
    result = call(kitchen, "--out", str(out), "--committee.networks", "small_vgg,small_resnett")
    assert result.exit_code == 2
    assert "small_resnett" in result.output
    assert "Did you mean small_resnet?" in result.output
    result = call(kitchen, "--out", str(out), "--data.images", str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert "data.images" in result.output
    assert not out.exists()


def test_wrong_keys_name_the_nearest(kitchen, tmp_path):
    result = call(kitchen, "--out", str(tmp_path / "run"), "--consensus.treshold", "0.9")
    assert result.exit_code == 2
    assert "Did you mean" in result.output
    assert "threshold" in result.output
    result = CliRunner().invoke(app, ["run", "--k", "5", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2


def test_killed_at_any_moment_the_same_command_goes_on_to_the_same_result(kitchen, finished, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "cdp", "run", str(kitchen / "recipe.toml"), "--out", str(out), "--json"]
    moments = (
        lambda one: one["event"] == "progress" and one["step"].startswith("train") and one["done"] > 0,
        lambda one: one["event"] == "started" and one["stage"] == "graphs small_vgg",
        lambda one: one["event"] == "started" and one["stage"] == "train with pseudo-labels",
    )
    for moment in moments:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if moment(json.loads(line)):
                    os.kill(process.pid, signal.SIGKILL)
                    break
            else:
                pytest.fail("the moment never came")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    kept = [one["stage"] for one in events(done.stdout) if one["event"] == "finished" and one["fresh"]]
    assert "train small_resnet" in kept
    for name in (
        "recognition.json",
        "label_figures.json",
        "labels/labels.npy",
        "joint/small_resnet/weights.safetensors",
    ):
        assert (out / name).read_bytes() == (finished[0] / name).read_bytes(), name


def test_help_says_that_any_key_is_an_option():
    assert (
        "Any key of the recipe can be given as an option" in CliRunner().invoke(app, ["run", "--help"]).output
    )


def test_python_and_command_line_agree(kitchen, finished, tmp_path):
    from cdp.run.go import run_recipe

    from cdp.config.reading import read_recipe

    shutil.copytree(finished[0], tmp_path / "run")
    outcome = run_recipe(read_recipe(kitchen / "recipe.toml"), tmp_path / "run")
    assert all(stage["fresh"] for stage in outcome.record["stages"])
    assert outcome.report == Path(tmp_path / "run" / "report.html")

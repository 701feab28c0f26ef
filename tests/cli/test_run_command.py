"""`cdp run` on images: the whole paper on small drawn patterns; what is fresh is kept, what is killed goes on."""

from __future__ import annotations

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from tests.drawn_images import draw_patterns
from tests.killed_commands import kill_when
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.config.reading import read_recipe, recipe_from
from cdp.run.run_recipe import run_recipe
from cdp.run.runner import alone_in
from cdp.storage.artifacts import read_json, read_run_record, write_run_record
from cdp.types import Labels
from cdp.types.run_record import Results

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
epochs = 1
batch = 16
size = 16
dimensions = 16

[consensus]
k = 10
max_cluster_size = 12

[evaluation]
replicates = 20
fpr = [0.1]

[engine]
threads = 1
checkpoint_every = 5
"""

# Function -> the modules that call it by this name.
ON_DEVICES = {
    "train_supervised": "cdp.nets.supervised",
    "train_joint": "cdp.nets.joint",
    "extract_views": "cdp.nets.extract",
    "each_knn_graph": "cdp.knn.model_graphs",
    "time_steps": "cdp.nets.step_times",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with images and a recipe."""
    folder = tmp_path_factory.mktemp("run")
    draw_patterns(folder / "people", n_identities=40, n_images=8)
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


@pytest.fixture(scope="module")
def devices():
    """Function -> the devices it was called with; it computes on the CPU whatever it is given."""
    seen = {name: set() for name in ON_DEVICES}

    def spy(name, function):
        def call(*args, **named):
            if "runtime" in named:
                settings = named["runtime"].settings
                seen[name].add(settings.device)
                named["runtime"] = replace(named["runtime"], settings=replace(settings, device="cpu"))
                return function(*args, **named)
            seen[name].add(named.pop("device"))
            return function(*args, device="cpu", **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, module in ON_DEVICES.items():
            function = getattr(__import__(module, fromlist=[name]), name)
            patch.setattr(f"{module}.{name}", spy(name, function))
        yield seen


@pytest.fixture(scope="module")
def finished(folder, devices):
    """A run that went undisturbed, on a device that only spies know."""
    result = call(folder, "--out", str(folder / "run"), "--device", "meta")
    assert result.exit_code == 0, result.output
    return folder / "run", result.output


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run that a test may spoil."""
    shutil.copytree(finished[0], tmp_path / "run")
    return tmp_path / "run"


def call(folder, *words):
    wide = {"COLUMNS": "200"}  # else cells of tables are wrapped
    return CliRunner().invoke(app, ["run", str(folder / "recipe.toml"), *words], env=wide)


def events(output):
    return [json.loads(line) for line in output.splitlines()]


def rerun(folder, out, *words):
    """Which stages ran again."""
    result = call(folder, "--out", str(out), "--json", *words)
    assert result.exit_code == 0, result.output
    return [one["stage"] for one in events(result.stdout) if one["event"] == "finished" and not one["fresh"]]


def record_of(out):
    return read_run_record(out / "run" / "run.json")


def left_out(record):
    """Notes about what was left out; so few images are always noted too."""
    few = ("which is few.", "at least 20 are needed.")
    return [note for note in record.notes if not note.endswith(few)]


def test_a_run_ends_with_figures_a_record_and_a_page(finished):
    out, output = finished
    record = record_of(out)
    models = record.results.headline.models
    assert [model.key for model in models] == ["labeled", "cdp", "all"]
    for model in models:
        assert model.rank1.low <= model.rank1.value <= model.rank1.high
        assert f"{model.rank1.value:.3f}" in output
    assert all(stage.peak_memory > 1e7 and len(stage.key) == 64 for stage in record.stages)
    assert set(next(stage.steps for stage in record.stages if stage.name == "label")) >= {"graphs", "groups"}
    assert "share of the gap closed" in output
    assert "<html" in (out / "report.html").read_text()
    assert record.results.labels.true.discards_kept.pairwise.f > 0.5
    names = ["small_resnet", "small_vgg", "small_inception"]
    assert [member.name for member in record.results.committee.members] == names
    assert left_out(record) == []


def test_the_device_reaches_every_stage_that_computes_and_the_record(finished, devices):
    """Only training used to pass it on."""
    assert devices == {name: {"meta"} for name in ON_DEVICES}
    assert record_of(finished[0]).device == "meta"


def test_labels_are_tables_too_and_metrics_are_typed(finished):
    out, _ = finished
    labels = Labels.load(out / "run" / "labels")
    collection = open_collection(out)
    for folder, expected in ((out, collection.identity), (out / "run" / "labels", labels.labels)):
        with (folder / "labels.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["identity"]) for row in rows] == expected.tolist()
        assert Path(rows[0]["path"]).is_file()
        table = pyarrow.parquet.read_table(folder / "labels.parquet")
        assert table["identity"].to_pylist() == expected.tolist()
    np.testing.assert_array_equal(collection.labels.labels, labels.labels)
    results = read_json(out / "run" / "labels" / "metrics.json", Results)
    assert results.labels == record_of(out).results.labels
    assert results.labels.statuses["labeled"] == sum(labels.labels >= 0)


def test_the_record_and_the_recipe_of_a_run_read_back_equal(finished, tmp_path):
    out, _ = finished
    record = record_of(out)
    write_run_record(tmp_path / "run.json", record)
    assert (tmp_path / "run.json").read_bytes() == (out / "run" / "run.json").read_bytes()
    recipe = read_recipe(out / "run" / "recipe.toml")
    assert recipe == recipe_from(record.recipe)
    assert recipe.consensus.train_on == "validation", "resolved, not left open"


def test_the_same_command_again_keeps_everything(folder, copied):
    before = (copied / "run" / "recognition.json").read_bytes()
    assert rerun(folder, copied) == []
    assert (copied / "run" / "recognition.json").read_bytes() == before
    assert rerun(copied / "run", copied) == [], "its own recipe means the same"


def test_the_plan_says_what_runs_and_why(folder, copied):
    result = call(folder, "--out", str(copied), "--plan", "--json", "--k", "6")
    plan = {one["stage"]: (one["state"], one["why"]) for one in events(result.stdout)}
    assert plan["train small_vgg"] == ("fresh", "up to date")
    assert plan["label"] == ("run", "consensus.k 10 → 6")
    assert plan["train with pseudo-labels"] == ("perhaps", "after label")
    table = call(folder, "--out", str(copied), "--plan").output
    assert "0 of " in table
    assert "kept" in table


def test_a_plan_writes_nothing(folder, tmp_path):
    result = call(folder, "--out", str(tmp_path / "new"), "--plan")
    assert result.exit_code == 0, result.output
    assert "not made yet" in result.output
    assert not (tmp_path / "new").exists()


def test_another_member_redoes_exactly_what_depends_on_it(folder, copied):
    ran = rerun(folder, copied, "--committee.networks", "small_vgg,small_nasnet")
    assert ran[:3] == ["train small_nasnet", "embed small_nasnet", "label"]
    assert not {name for name in ran if "small_vgg" in name or name.endswith(" small_resnet")}
    assert not {"split", "train with all labels"} & set(ran)


def test_moved_and_renamed_images_are_the_same_images(folder, copied, tmp_path):
    shutil.copytree(folder / "people", tmp_path / "moved")
    for number, file in enumerate(sorted((tmp_path / "moved").rglob("*.png"))):
        file.rename(file.with_name(f"renamed{number:05d}.png"))
    words = ("--data.images", str(tmp_path / "moved"))
    assert rerun(folder, copied, *words) == []
    # Tables of labels name files; what is trained on the labels does not depend on the names.
    shutil.rmtree(copied / "run" / "labels")
    assert rerun(folder, copied, *words) == ["label"]


def test_a_changed_image_is_noticed(folder, copied, tmp_path):
    shutil.copytree(folder / "people", tmp_path / "people")
    one, other = sorted((tmp_path / "people" / "person000").glob("*.png"))[:2]
    shutil.copy(other, one)
    result = call(folder, "--out", str(copied), "--plan", "--json", "--data.images", str(tmp_path / "people"))
    assert events(result.stdout)[0]["why"] == "other images"


def test_a_tuned_vote_with_soft_labels(folder, copied):
    rerun(
        folder, copied, "--preset", "paper", "--threshold", "auto", "--mediator", "vote", "--soft-depth", "2"
    )
    record = record_of(copied)
    tuning = record.results.tuning
    best = max(tuning.curve, key=lambda point: point.f)
    assert tuning.chosen == best.threshold == record.results.labels.threshold
    assert record.results.labels.threshold_kind == "similarity"
    assert record.results.mediator is None
    parts = record.parts
    assert record.results.labels.true.images == parts["unlabeled"].images - parts["validation"].images
    assert (copied / "soft_labels.npz").exists()
    assert (copied / "run" / "labels" / "soft_labels.npz").exists()


def test_figures_of_members_and_of_an_ensemble(folder, copied):
    assert rerun(folder, copied, "--ensemble", "2") == ["measure members"]
    committee = record_of(copied).results.committee
    members = {one.name: one.rank1.value for one in committee.members}
    assert committee.ensemble.names == sorted(members, key=lambda name: -members[name])[:2]
    assert rerun(folder, copied, "--no-members") == ["measure members"]
    committee = record_of(copied).results.committee
    assert [one.rank1.value is None for one in committee.members] == [False, True, True]
    assert all(one.edge_precision for one in committee.members), "their graphs are measured all the same"


def test_a_mediator_that_is_trained_on_folds(folder, copied):
    ran = rerun(folder, copied, "--folds", "2", "--threshold", "0.2")
    trained = [name for name in ran if name.startswith("train fold")]
    assert trained == [
        f"train fold{fold}/small_{kind}" for fold in (1, 2) for kind in ("resnet", "vgg", "inception")
    ]
    assert not {"train small_resnet", "embed small_resnet", "train with all labels"} & set(ran)
    labels = record_of(copied).results.labels
    assert labels.threshold == 0.2
    assert labels.true.discards_kept.pairwise.f > 0.5


def test_without_truth_there_is_no_bound_but_the_validation_part_still_chooses(folder, copied):
    rerun(folder, copied, "--no-truth")
    record = record_of(copied)
    assert max(point.f for point in record.results.tuning.curve) > 0
    assert record.results.labels.true is None
    assert [model.key for model in record.results.headline.models] == ["labeled", "cdp"]
    assert record.results.headline.gap_closed is None
    assert left_out(record) == [
        "The upper bound was left out: not every unlabeled image has a true identity to train on."
    ]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Options of a labeled part, an unlabeled one without identities, and a test part, each in its own folder."""
    folder = tmp_path_factory.mktemp("parts")
    for name, first in (("known", 0), ("unknown", 12), ("test", 24)):
        draw_patterns(folder / name, n_identities=12, n_images=8, first=first)
    (folder / "flat").mkdir()
    for number, file in enumerate(sorted((folder / "unknown").rglob("*.png"))):
        file.rename(folder / "flat" / f"{number}.png")
    (folder / "recipe.toml").write_text(RECIPE[RECIPE.index("[base]") :])
    return folder


def test_parts_that_are_split_already_run_with_what_there_is(parts, tmp_path):
    words = ["--labeled", str(parts / "known"), "--unlabeled", str(parts / "flat")]
    result = call(parts, "--out", str(tmp_path / "run"), *words)
    assert result.exit_code == 0, result.output
    record = record_of(tmp_path / "run")
    assert left_out(record) == [
        "threshold = 0.3, the default, was not chosen on labeled identities: there is no validation part; give "
        "data.validation.",
        "There are no probe images, so recognition was not measured; give data.test.",
    ]
    printed = " ".join(result.output.split())
    assert all(note in printed for note in record.notes)
    assert (record.results.headline, record.results.labels.true) == (None, None)
    assert record.parts["unlabeled"].images == 96
    assert record.parts["unlabeled"].identities is None
    assert "recognition was not measured" in (tmp_path / "run" / "report.html").read_text()
    # With a test part the same networks are measured; whose images are whose is still not known.
    again = events(
        call(parts, "--out", str(tmp_path / "run"), "--json", *words, "--test", str(parts / "test")).stdout
    )
    ran = [one["stage"] for one in again if one["event"] == "finished" and not one["fresh"]]
    assert not [name for name in ran if name.startswith(("train", "embed", "label"))]
    record = record_of(tmp_path / "run")
    assert [model.key for model in record.results.headline.models] == ["labeled", "cdp"]
    assert record.notes[1] == (
        "The upper bound was left out: not every unlabeled image has a true identity to train on."
    )
    assert again[-1]["notes"] == record.notes


def test_a_folder_of_photos_needs_no_key(folder, tmp_path, monkeypatch):
    """The README's test runs it; here are its stages."""
    monkeypatch.chdir(folder)
    words = ["run", "--images", "people", "--out", str(tmp_path / "work"), "--plan", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    names = [one["stage"] for one in events(result.stdout)]
    kinds = ("resnet", "vgg", "inception", "densenet", "nasnet")
    assert names[:6] == ["split", *(f"train small_{kind}" for kind in kinds)]
    assert {"label", "train with pseudo-labels", "train with all labels", "measure recognition"} < set(names)


def test_a_second_run_in_the_same_folder_is_refused(folder, copied):
    with alone_in(copied / "run"):
        result = call(folder, "--out", str(copied))
    assert result.exit_code == 2
    assert "[folder-busy]" in result.output


def test_a_folder_with_other_things_is_left_alone(folder, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    result = call(folder, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "[output-holds-other-things]" in result.output
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_unknown_networks_devices_and_missing_images_are_found_before_anything_runs(folder, tmp_path):
    out = tmp_path / "run"
    result = call(folder, "--out", str(out), "--committee.networks", "small_vgg,small_resnett")
    assert result.exit_code == 2
    assert "small_resnett" in result.output
    assert "Did you mean small_resnet?" in result.output
    result = call(folder, "--out", str(out), "--data.images", str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert "data.images" in result.output
    result = call(folder, "--out", str(out), "--device", "cuda:7")
    assert result.exit_code == 2
    assert "Error: engine.device='cuda:7': no such device; choose from auto, cpu" in result.output
    assert "[device-unknown]" in result.output
    assert not out.exists()


def test_wrong_keys_name_the_nearest(folder, tmp_path):
    result = call(folder, "--out", str(tmp_path / "run"), "--consensus.treshold", "0.9")
    assert result.exit_code == 2
    assert "Did you mean --consensus.threshold" in result.output
    result = CliRunner().invoke(app, ["run", "--k", "5", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "[recipe-sources-missing]" in result.output
    result = CliRunner().invoke(app, ["run", "--k", "5", "mine.toml", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "[recipe-missing]" in result.output, "options may come first"
    result = CliRunner().invoke(app, ["run", str(folder / "people"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert f"is a folder, not a recipe: cdp run --images {folder / 'people'}" in result.output
    assert "[recipe-is-a-folder]" in result.output


def test_killed_at_any_moment_the_same_command_goes_on_to_the_same_result(folder, finished, tmp_path):
    out = tmp_path / "run"
    words = ["run", str(folder / "recipe.toml"), "--out", str(out)]
    moments = (
        lambda one: one["event"] == "progress" and one["step"].startswith("train") and one["done"] > 0,
        lambda one: one["event"] == "started" and one["stage"] == "label",
        lambda one: one["event"] == "started" and one["stage"] == "train with pseudo-labels",
    )
    for moment in moments:
        kill_when(words, moment)
    done = events(call(folder, "--out", str(out), "--json").stdout)
    kept = [one["stage"] for one in done if one["event"] == "finished" and one["fresh"]]
    assert "train small_resnet" in kept
    for name in (
        "labels.csv",
        "labels.parquet",
        "run/recognition.json",
        "run/labels/metrics.json",
        "run/labels/labels.npy",
        "run/joint/small_resnet/weights.safetensors",
    ):
        assert (out / name).read_bytes() == (finished[0] / name).read_bytes(), name


def test_help_says_that_any_key_is_an_option():
    printed = " ".join(CliRunner().invoke(app, ["run", "--help"]).output.split())
    assert "any key of it can be an option" in printed


def test_python_and_command_line_agree(folder, copied):
    outcome = run_recipe(read_recipe(folder / "recipe.toml"), copied)
    assert all(stage.fresh for stage in outcome.record.stages)
    assert outcome.report == copied / "report.html"
    assert np.isfinite(outcome.record.seconds)

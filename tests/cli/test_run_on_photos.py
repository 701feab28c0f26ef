"""`cdp run --images` on a folder as people have them: photos of all sizes, some broken, of few identities."""

import json
import time

import numpy as np
import pytest
from tests.folder_of_photos import BROKEN, draw_photos
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.run import image_scan
from cdp.storage.artifacts import read_run_record

SMALL = [
    "--networks",
    "small_vgg",
    "--dimensions",
    "16",
    "--size",
    "16",
    "--threads",
    "1",
    "--replicates",
    "20",
]


def run(*words):
    result = CliRunner().invoke(app, ["run", *map(str, words)])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def names(events, kind="finished"):
    return [one["stage"] for one in events if one["event"] == kind and not one.get("fresh")]


@pytest.fixture(scope="module")
def weak(tmp_path_factory):
    """Photos, and a run whose networks were trained for far too short."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("apes")
    draw_photos(folder / "photos", n_images=5, largest=120)
    words = ["--images", folder / "photos", "--out", folder / "work", *SMALL, "--epochs", "1", "--json"]
    return folder, words, run(*words)


def test_it_is_said_first_what_was_found_and_chosen(weak):
    _, _, events = weak
    first_stage = next(at for at, one in enumerate(events) if one["event"] == "started")
    said = [one["sentence"] for one in events[:first_stage] if one["event"] == "note"]
    assert said[0].startswith(f"{BROKEN} images cannot be read")
    assert "do not fill eleven parts" in said[-1], "the size was given"
    trained = next(at for at, one in enumerate(events) if one.get("step", "").startswith("train"))
    before = [one["sentence"] for one in events[:trained] if one["event"] in ("note", "message")]
    assert any("few to train networks on" in one for one in before)
    assert any(one.startswith("About ") and "training" in one for one in before), "how long it takes"


def test_labels_worse_than_none_are_written_and_not_trained_on(weak):
    folder, _, events = weak
    assert "train with pseudo-labels" not in names(events)
    record = read_run_record(folder / "work" / "run" / "run.json")
    assert record.results.expected.precision.value < 0.4
    assert any("--least-precision 0" in note for note in record.notes)
    assert record.results.headline is None
    assert not (folder / "work" / "run" / "joint").exists()
    collection = open_collection(folder / "work")
    assert collection.n_images == record.parts["unlabeled"].images
    assert (folder / "work" / "report.html").is_file()


def test_the_labeled_part_is_large_enough_to_tune_on(weak):
    parts = read_run_record(weak[0] / "work" / "run" / "run.json").parts
    assert parts["labeled"].identities >= 25
    assert parts["validation"].identities >= 20


def test_again_nothing_runs_whatever_has_no_effect(weak, monkeypatch):
    """Networks used to be trained again for a setting that changed nothing."""
    _, words, _ = weak
    looked = []
    monkeypatch.setattr(
        image_scan, "look_at_images", lambda root, locations, *how: looked.extend(locations) or {}
    )
    idle = [
        "--dropout",
        "0.1",
        "--margin",
        "0.3",
        "--soft-decay",
        "0.5",
        "--step",
        "0.2",
        "--no-channels-last",
    ]
    more = ["--checkpoint-every", "3", "--test-probes", "0.3", "--no-bound"]
    assert names(run(*words, *idle, *more)) == []
    assert looked == [], "what was seen of the images is remembered"


def test_they_are_trained_on_where_that_is_asked_for(weak):
    _, words, _ = weak
    again = names(run(*words, "--least-precision", "0", "--no-bound"))
    assert again[0] == "train with pseudo-labels"
    assert not [name for name in again if name in ("split", "label", "train small_vgg")]


def test_bad_labels_of_a_round_between_end_the_run_with_them(weak):
    folder, words, _ = weak
    other = [folder / "rounds" if word == folder / "work" else word for word in words]
    events = run(*other, "--rounds", "2")
    assert "train round2/small_vgg" not in names(events)
    assert open_collection(folder / "rounds").n_images
    record = read_run_record(folder / "rounds" / "run" / "run.json")
    assert any("--least-precision 0" in note for note in record.notes)


def test_a_folder_without_any_image_that_can_be_read_fails_in_seconds(tmp_path):
    for name in "abc":
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.jpg").write_bytes(np.random.default_rng(0).bytes(100))
    start = time.perf_counter()
    result = CliRunner().invoke(
        app, ["run", "--images", str(tmp_path / "photos"), "--out", str(tmp_path / "w")]
    )
    assert result.exit_code == 2
    assert "[images-all-unreadable]" in result.output
    assert time.perf_counter() - start < 20
    assert not (tmp_path / "w").exists()

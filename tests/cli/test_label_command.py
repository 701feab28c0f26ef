import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet
import pytest
from scipy import sparse
from typer.testing import CliRunner

from cdp import ConsensusGraph, Labels, Mediator, Views, knn_graph
from cdp.cli.main import app
from cdp.lab.synthetic import synthetic_views


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with views of a labeled and an unlabeled part."""
    folder = tmp_path_factory.mktemp("home")
    split = synthetic_views(120, 8, members=2, dimensions=32, noise=0.4)
    split.labeled.save(folder / "labeled")
    unlabeled = split.unlabeled
    paths = [f"images/{row}.jpg" for row in range(unlabeled.n_images)]
    Views(unlabeled.base, unlabeled.committee, unlabeled.identities, paths).save(folder / "unlabeled")
    return folder


@pytest.fixture
def cdp(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.fixture(scope="module")
def labeled_folder(home):
    result = CliRunner().invoke(
        app,
        f"label {home}/unlabeled --learn-from {home}/labeled --k 10 --depth 2 --out {home}/labels".split(),
    )
    assert result.exit_code == 0, result.output
    return home / "labels", result.output


def test_everything_promised_is_written(labeled_folder):
    folder, output = labeled_folder
    assert "identities found" in output
    assert "Against the true identities" in output
    labels = Labels.load(folder)
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["label"]) for row in rows] == labels.labels.tolist()
    assert rows[3]["path"] == "images/3.jpg"
    assert set(rows[0]) == {"row", "path", "label", "fate", "confidence"}
    table = pyarrow.parquet.read_table(folder / "labels.parquet")
    assert table.column("label").to_pylist() == labels.labels.tolist()
    assert np.loadtxt(folder / "meta.txt", dtype=int).tolist() == labels.labels.tolist()
    graph = ConsensusGraph.load(folder / "consensus")
    assert graph.n_images == labels.n_images
    assert Mediator.load(folder / "mediator").k == 10
    soft = sparse.load_npz(folder / "soft_labels.npz")
    assert soft.shape == (labels.n_images, labels.n_identities)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["labels"]["discards_kept"]["bcubed"]["f"] > 0.7
    assert metrics["accepted_pairs"] == len(graph)
    assert sum(metrics["fates"].values()) == labels.n_images


def test_a_learned_mediator_gives_the_same_labels(cdp, labeled_folder, home):
    cdp("label", "unlabeled", "--mediator", "labels/mediator", "--k", "10", "--out", "again", "--quiet")
    np.testing.assert_array_equal(Labels.load(home / "again").labels, Labels.load(home / "labels").labels)


def test_a_vote_needs_no_labeled_part(cdp, home):
    output = cdp(
        "label", "unlabeled", "--vote", "--quorum", "1", "--similarity", "0.5", "--k", "10", "--out", "voted"
    )
    assert "accepted pairs" in output
    assert not (home / "voted" / "mediator").exists()


def test_a_given_knn_file_is_used(cdp, home):
    views = Views.load(home / "unlabeled")
    knn_graph(views.base, 12).save(home / "base_knn")
    cdp(
        "label", "unlabeled", "--vote", "--k", "10", "--knn", "base=base_knn", "--out", "from_file", "--quiet"
    )
    cdp("label", "unlabeled", "--vote", "--k", "10", "--out", "from_scratch", "--quiet")
    np.testing.assert_array_equal(
        Labels.load(home / "from_file").labels, Labels.load(home / "from_scratch").labels
    )
    output = cdp("label", "unlabeled", "--vote", "--k", "15", "--knn", "base=base_knn", "--out", "x", code=2)
    assert "has 12 neighbors per image, --k asks for 15" in output


def test_kept_graphs_are_used_again_and_only_where_they_fit(cdp, home):
    words = ["label", "unlabeled", "--vote", "--keep-graphs", "graphs", "--quiet", "--out"]
    cdp(*words, "first", "--k", "8")
    kept = {folder: (folder / "neighbors.npy").stat().st_mtime_ns for folder in (home / "graphs").iterdir()}
    assert len(kept) == 3
    cdp(*words, "second", "--k", "8")
    assert {
        folder: (folder / "neighbors.npy").stat().st_mtime_ns for folder in (home / "graphs").iterdir()
    } == kept
    np.testing.assert_array_equal(Labels.load(home / "first").labels, Labels.load(home / "second").labels)
    cdp(*words, "third", "--k", "9")
    assert len(list((home / "graphs").iterdir())) == 6
    # A changed committee member gets a graph of its own; the others are used again.
    views = Views.load(home / "unlabeled")
    changed = dict(views.committee) | {"member1": views.base.source[:, ::-1].copy()}
    Views(views.base, changed).save(home / "changed")
    cdp("label", "changed", *words[2:], "fourth", "--k", "8")
    assert len(list((home / "graphs").iterdir())) == 7


def test_show_tells_the_lineage(cdp, labeled_folder):
    output = cdp("show", "labels")
    assert "Labels:" in output
    assert "unlabeled/base  sha256" in output
    assert "threshold = 0.96" in output
    assert json.loads(cdp("show", "labels", "--json"))["kind"] == "Labels"
    assert "Mediator: 17 inputs" in cdp("show", "labels/mediator")


def test_eval_labels_repeats_the_figures(cdp, labeled_folder, home):
    metrics = json.loads((home / "labels" / "metrics.json").read_text())
    assert (
        json.loads(cdp("eval", "labels", "labels", "--identities", "unlabeled", "--json"))
        == metrics["labels"]
    )
    from_text = cdp("eval", "labels", "labels/meta.txt", "--identities", "unlabeled/identities.npy", "--json")
    assert json.loads(from_text)["discards_kept"] == metrics["labels"]["discards_kept"]
    assert "BCubed, discards removed" in cdp("eval", "labels", "labels", "--identities", "unlabeled")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x"], "Choose one of --learn-from LABELED, --mediator FOLDER and --vote"),
        (["--vote", "--learn-from", "labeled", "--out", "x"], "Choose one of"),
        (
            ["--learn-from", "labeled", "--quorum", "1", "--out", "x"],
            "--quorum and --similarity go with --vote",
        ),
        (["--learn-from", "nowhere", "--out", "x"], "nowhere: no such file or folder"),
        (["--learn-from", "labeled", "--threshold", "96", "--out", "x"], "Did you mean 0.96?"),
        (["--vote", "--k", "100000", "--out", "x"], "cannot be found among"),
        (
            ["--vote", "--knn", "nobody=f", "--out", "x"],
            "write NAME=FILE with a name from base, member1, member2",
        ),
        (["--mediator", "labels", "--out", "x"], "holds Labels, not Mediator"),
        (["--vote", "--out", "labels"], "is there already"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_sentence(cdp, labeled_folder, home, words, message):
    output = cdp("label", "unlabeled", *words, code=2)
    assert message in output.replace("\n", " ")
    assert output.count("Error") == 1
    assert not (home / "x").exists()
    assert not [entry for entry in home.iterdir() if "partial" in entry.name]


def test_force_replaces(cdp, home):
    cdp("label", "unlabeled", "--vote", "--k", "5", "--out", "twice", "--quiet")
    cdp("label", "unlabeled", "--vote", "--k", "6", "--out", "twice", "--quiet", "--force")
    assert json.loads(cdp("show", "twice", "--json"))["settings"]["k"] == 6


def test_different_models_in_the_two_parts_are_named(cdp, home):
    views = Views.load(home / "labeled")
    Views(views.base, {"other": views.base}, views.identities).save(home / "other_committee")
    output = cdp("label", "unlabeled", "--learn-from", "other_committee", "--out", "x", code=2)
    assert "has the committee (other)" in output.replace("\n", " ")
    wide = {name: np.ones((views.n_images, 5)) for name in views.committee}
    Views(views.base, wide, views.identities).save(home / "other_width")
    output = cdp("label", "unlabeled", "--learn-from", "other_width", "--out", "x", code=2)
    assert "'member1' has 5 dimensions" in output.replace("\n", " ")


def test_an_unwritable_output_is_a_failure_found_at_once(cdp, home):
    (home / "a_file").write_text("")
    started = time.perf_counter()
    output = cdp("label", "unlabeled", "--vote", "--out", "a_file/labels", code=1)
    assert "cannot be written" in output.replace("\n", " ")
    assert time.perf_counter() - started < 5


def test_a_nan_row_is_named(cdp, home):
    embeddings = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    embeddings[[7, 9], 2] = np.nan
    np.save(home / "broken.npy", embeddings)
    output = cdp("label", "broken.npy", "--vote", "--out", "x", code=2)
    assert "NaN or infinity in rows 7, 9 (counted from 0)" in output.replace("\n", " ")


def test_interrupting_leaves_nothing_behind(home):
    # Large enough to be busy for some seconds when the signal arrives.
    np.save(home / "large.npy", np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32))
    process = subprocess.Popen(
        [sys.executable, "-m", "cdp", "label", "large.npy", "--vote", "--out", "never", "--quiet"],
        cwd=home,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs with the interrupt ignored; this one must hear it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not [entry for entry in home.iterdir() if entry.name.startswith(".never.partial")]:
        assert time.monotonic() < deadline, "the run never started"
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Interrupted" in errors
    assert "Traceback" not in errors
    assert not [entry for entry in home.iterdir() if "never" in entry.name]


def test_version_and_unknown_options(cdp):
    assert cdp("--version").startswith("cdp ")
    assert "No such option" in cdp("label", "--bogus", code=2)


def test_the_example_runs_and_its_commands_too(cdp, home):
    output = cdp("example", "--out", "example", "--identities", "60")
    assert "with common neighbors" in output
    assert (home / "example" / "labels" / "labels.csv").exists()
    assert "Labels:" in cdp("show", "example/labels")

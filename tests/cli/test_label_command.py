import csv
import json
import re
import time
import warnings

import numpy as np
import pyarrow.parquet
import pytest
from scipy import sparse
from typer.testing import CliRunner

from cdp import CDP, KnnGraph, Mediator, Views, knn_graph
from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.grouping.group import accepted_pairs
from cdp_lab.synthetic import synthetic_views


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with views of a labeled and an unlabeled part, enough of them to tune on."""
    folder = tmp_path_factory.mktemp("home")
    split = synthetic_views(200, 6, labeled=0.5, members=2, dimensions=24, noise=0.4)
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


def labels_of(folder):
    return open_collection(folder).labels.labels


@pytest.fixture(scope="module")
def labeled_folder(home):
    words = f"label {home}/unlabeled --labeled {home}/labeled --mediator mlp --k 10 --soft-depth 2 --out {home}/labels"
    result = CliRunner().invoke(app, words.split(), env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return home / "labels", result.output


def test_everything_promised_is_written(labeled_folder):
    folder, output = labeled_folder
    for text in (
        "identities found",
        "threshold (mean probability), chosen on labeled identities",
        "expected precision",
        "Against the true identities",
        str(folder / "labels.csv"),
        str(folder / "report.html"),
        f"cdp review {folder}",
    ):
        assert text in output.replace("\n", "")
    collection = open_collection(folder)
    labels, identity = collection.labels, collection.identity.tolist()
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["identity"]) for row in rows] == identity
    assert rows[3]["path"] == "images/3.jpg"
    assert list(rows[0]) == ["row", "path", "photo", "identity", "name", "status", "confidence"]
    table = pyarrow.parquet.read_table(folder / "labels.parquet")
    assert table.column("identity").to_pylist() == identity
    assert table.column_names == list(rows[0])
    assert collection.scored.n_images == labels.n_images
    assert KnnGraph.load(folder / "scored/0001/base_graph").n_images >= labels.n_images
    assert Mediator.load(folder / "scored/0001/mediator").k == 10
    soft = sparse.load_npz(folder / "soft_labels.npz")
    assert soft.shape == (labels.n_images, labels.n_identities)
    assert "Expected quality" in (folder / "report.html").read_text()
    with (folder / "mixed_groups.csv").open() as file:
        assert {int(row["identity"]) for row in csv.DictReader(file)} == set(identity) - {-1}
    with (folder / "split_groups.csv").open() as file:
        pairs = list(csv.DictReader(file))
    assert all({int(row["identity"]), int(row["other_identity"])} < set(identity) - {-1} for row in pairs)


def test_the_figures_are_of_the_labels_that_are_written(labeled_folder):
    folder, _ = labeled_folder
    figures = json.loads((folder / "metrics.json").read_text())
    collection = open_collection(folder)
    labels = collection.labels
    assert figures["labels"]["true"]["discards_kept"]["bcubed"]["f"] > 0.7
    assert figures["labels"]["true"]["images"] == labels.n_images
    accepted = accepted_pairs(collection.scored, labels, collection.settings)
    assert figures["labels"]["true"]["pairs"]["accepted"] == len(accepted)
    assert figures["labels"]["threshold_kind"] == "mean probability"
    assert figures["labels"]["threshold"] == figures["tuning"]["chosen"]
    assert sum(figures["labels"]["statuses"].values()) == labels.n_images
    card = json.loads((folder / "card.json").read_text())["settings"]
    settings = card["consensus"]
    assert (card["threshold"], settings["threshold"]) == (figures["tuning"]["chosen"], None)
    assert (settings["preset"], settings["k"], settings["soft_depth"]) == ("best", 10, 2)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["best", "paper"])
def test_the_command_labels_as_cdp_in_python(cdp, home, preset):
    cdp(
        "label", "unlabeled", "--labeled", "labeled", "--preset", preset, "--k", "10", "--out", f"as_{preset}",
        "--quiet",
    )  # fmt: skip
    views = [Views.load(home / part) for part in ("labeled", "unlabeled")]
    model = CDP(preset, k=10).fit(views[0])
    np.testing.assert_array_equal(labels_of(home / f"as_{preset}"), model.predict(views[1]))
    found, expected = open_collection(home / f"as_{preset}").labels, model.labeling_.labels
    np.testing.assert_array_equal(found.confidence, expected.confidence)


@pytest.mark.slow
def test_a_learned_mediator_gives_the_same_labels(cdp, home):
    paper = ["--preset", "paper", "--k", "10", "--quiet", "--out"]
    cdp("label", "unlabeled", "--labeled", "labeled", *paper, "once")
    cdp("label", "unlabeled", "--trained-mediator", "once/scored/0001/mediator", *paper, "again")
    np.testing.assert_array_equal(labels_of(home / "again"), labels_of(home / "once"))


@pytest.mark.slow
def test_a_trained_mediator_can_be_tuned_on_a_validation_part(cdp, labeled_folder, home):
    words = ["label", "unlabeled", "--trained-mediator", "labels/scored/0001/mediator", "--k", "10", "--out"]
    output = cdp(*words, "not_chosen")
    assert "threshold (mean probability), the default" in output
    assert "was not chosen on labeled identities: no validation images are labeled." in " ".join(
        output.split()
    )
    output = cdp(*words, "tuned", "--validation", "labeled")
    assert "threshold (mean probability), chosen on labeled identities" in output
    assert len(labels_of(home / "tuned")) == Views.load(home / "unlabeled").n_images


def test_a_vote_needs_no_labeled_part(cdp, home):
    output = cdp(
        "label", "unlabeled", "--mediator", "vote", "--min-votes", "1", "--threshold", "0.5", "--k", "10",
        "--out", "voted",
    )  # fmt: skip
    assert "accepted pairs" in output
    assert not (home / "voted/scored/0001/mediator").exists()


def test_a_given_knn_file_is_used(cdp, home):
    views = Views.load(home / "unlabeled")
    knn_graph(views.base, 12).save(home / "base_knn")
    vote = ["label", "unlabeled", "--mediator", "vote", "--quiet"]
    cdp(*vote, "--k", "10", "--knn", "base=base_knn", "--out", "from_file")
    cdp(*vote, "--k", "10", "--out", "from_scratch")
    np.testing.assert_array_equal(labels_of(home / "from_file"), labels_of(home / "from_scratch"))
    output = cdp(*vote, "--k", "15", "--knn", "base=base_knn", "--out", "x", code=2)
    assert "has 12 neighbors per image, --k asks for 15. [knn-file-too-few-neighbors]" in output


@pytest.mark.slow
def test_the_cache_keeps_graphs_and_mediator(cdp, home):
    words = [
        "label",
        "unlabeled",
        "--labeled",
        "labeled",
        "--cache",
        "cache",
        "--mediator",
        "mlp",
        "--k",
        "8",
    ]
    words += ["--quiet", "--out"]
    cdp(*words, "first")

    def kept():
        return {
            folder.name: (folder / "card.json").stat().st_mtime_ns for folder in (home / "cache").iterdir()
        }

    before = kept()
    assert sorted(name.partition("-")[0] for name in before) == 6 * ["graph"] + ["mediator"]
    cdp(*words, "second", "--beta", "2")
    assert kept() == before
    cdp(*words, "third", "--force")
    assert kept() == before
    np.testing.assert_array_equal(labels_of(home / "first"), labels_of(home / "third"))


def test_show_tells_the_figures_and_of_its_parts_the_lineage(cdp, labeled_folder, home):
    output = cdp("show", "labels")
    for text in (
        "identities found",
        "threshold (mean probability), chosen on labeled identities",
        "expected precision",
        "cdp review labels",
    ):
        assert text in output
    assert json.loads(cdp("show", "labels", "--json")) == json.loads(
        (home / "labels/metrics.json").read_text()
    )
    assert "Mediator: 20 inputs" in cdp("show", "labels/scored/0001/mediator")
    assert "base  sha256" in cdp("show", "labels/embeddings/0001")


def test_eval_labels_repeats_the_figures(cdp, labeled_folder, home):
    true = json.loads((home / "labels" / "metrics.json").read_text())["labels"]["true"]
    again = json.loads(cdp("eval", "labels", "labels", "--identities", "unlabeled", "--json"))
    assert again == {**true, "pairs": None}  # pairs are counted when they are scored
    np.savetxt(home / "numbers.txt", open_collection(home / "labels").identity, "%d")
    from_text = cdp("eval", "labels", "numbers.txt", "--identities", "unlabeled/identities.npy", "--json")
    assert json.loads(from_text)["discards_kept"] == true["discards_kept"]
    assert "BCubed, discards removed" in cdp("eval", "labels", "labels", "--identities", "unlabeled")


MEDIATOR = "--trained-mediator labels/scored/0001/mediator"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--mediator mlp --out x", "nothing-to-learn-from"),
        (f"{MEDIATOR} --labeled labeled --out x", "labeled-and-mediator-given"),
        (f"{MEDIATOR} --mediator vote --k 10 --out x", "mediator-not-used"),
        ("--labeled nowhere --out x", "path-missing"),
        ("--labeled labeled --threshold 96 --out x", "threshold-out-of-range"),
        ("--labeled labeled --threshold 5 --out x", "threshold-out-of-range"),
        ("--labeled labeled --threshold 101 --out x", "setting-out-of-range"),
        ("--threshold 0.3 --out x", "threshold-needs-labels"),
        ("--labeled labeled --grouping mean --out x", "setting-choice-unknown"),
        ("--labeled labeled --preset papr --out x", "setting-choice-unknown"),
        ("--labeled labeled --train-on validation --out x", "train-on-validation-missing"),
        ("--mediator vote --min-votes 5 --out x", "min-votes-exceed-committee"),
        ("--mediator vote --knn nobody=f --out x", "knn-option-wrong"),
        ("--trained-mediator labels --out x", "artifact-kind-differs"),
        (f"{MEDIATOR} --k 12 --out x", "mediator-k-differs"),
        ("--mediator vote --out labels", "output-exists"),
        ("--input faces --mediator vote --out x", "images-missing"),
        ("--input faces --labeled labeled --out x", "option-needs-embeddings"),
        ("--input pictures --out x", "input-kind-unknown"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_sentence(cdp, labeled_folder, home, words, code):
    output = cdp("label", "unlabeled", *words.split(), code=2)
    assert f"[{code}]" in output
    assert output.count("Error") == 1
    assert not (home / "x").exists()
    assert not [entry for entry in home.iterdir() if "partial" in entry.name]


def test_a_sentence_names_the_option_the_value_and_the_way_out(cdp, home):
    output = cdp("label", "unlabeled", "--labeled", "labeled", "--threshold", "96", "--out", "x", code=2)
    assert output == (
        "Error: threshold = 96: a mean probability from 0 to 1 is needed. Did you mean 0.96? "
        "[threshold-out-of-range]\n"
    )


def test_what_the_input_is_taken_for_is_said(cdp, home):
    vote = ["--mediator", "vote", "--k", "5", "--out", "kinds", "--force"]
    assert "unlabeled: embeddings; otherwise give --input photos or faces." in cdp(
        "label", "unlabeled", *vote
    )
    assert "if not" not in cdp("label", "unlabeled", *vote, "--input", "embeddings")
    assert cdp("label", "unlabeled", *vote, "--quiet") == ""
    assert "[path-missing]" in cdp("label", "nowhere", "--out", "x", code=2)


def test_force_replaces(cdp, home):
    vote = ["label", "unlabeled", "--mediator", "vote", "--out", "twice", "--quiet"]
    cdp(*vote, "--k", "5")
    cdp(*vote, "--k", "6", "--force")
    assert open_collection(home / "twice").settings.k == 6


def test_different_models_in_the_two_parts_are_named(cdp, home):
    views = Views.load(home / "labeled")
    Views(views.base, {"other": views.base}, views.identities).save(home / "other_committee")
    for option in (["--labeled"], ["--labeled", "labeled", "--validation"]):
        output = cdp("label", "unlabeled", *option, "other_committee", "--out", "x", code=2)
        assert re.search(
            r"other_committee has base \(\d+ dimensions\), other \(\d+ dimensions\), unlabeled has base",
            output,
        )
    wide = {name: np.ones((views.n_images, 5)) for name in views.committee}
    Views(views.base, wide, views.identities).save(home / "other_width")
    output = cdp("label", "unlabeled", "--labeled", "other_width", "--out", "x", code=2)
    assert "member1 (5 dimensions)" in output
    assert "both must be embedded by the same networks." in output


def test_an_unwritable_output_is_a_failure_found_at_once(cdp, home):
    (home / "a_file").write_text("")
    started = time.perf_counter()
    output = cdp("label", "unlabeled", "--mediator", "vote", "--out", "a_file/labels", code=1)
    assert "cannot be written" in output.replace("\n", " ")
    assert time.perf_counter() - started < 5


def test_a_nan_row_is_named(cdp, home):
    embeddings = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    embeddings[[7, 9], 2] = np.nan
    np.save(home / "broken.npy", embeddings)
    output = cdp("label", "broken.npy", "--mediator", "vote", "--out", "x", code=2)
    assert "NaN or infinity in rows 7, 9 (counted from 0)" in output.replace("\n", " ")


def test_version_and_unknown_options(cdp):
    assert cdp("--version").startswith("cdp ")
    assert "No such option" in cdp("label", "--bogus", code=2)


@pytest.mark.slow
def test_the_example_runs_and_its_commands_too(cdp, home):
    output = cdp("demo", "--embeddings", "--out", "example")
    assert "mediator, preset best" in output
    assert (home / "example" / "faces" / "labels.csv").exists()
    assert "identities found" in cdp("show", "example/faces")
    assert "Example" in cdp("show", "example")
    by_hand = re.findall(r"^  cdp (.*)$", output, re.M)
    assert [words.split()[0] for words in by_hand] == ["label", "show"]
    for words in by_hand:
        cdp(*words.split())


def test_a_budget_that_is_too_small_is_said_in_one_sentence_and_nothing_is_left_behind(cdp, home):
    words = "label unlabeled --mediator vote --k 5 --threads 1 --out tight --quiet --memory-budget"
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always")
        patch.setenv("COLUMNS", "200")
        said = " ".join(cdp(*words.split(), "1MB").split())
        assert re.fullmatch(
            r"Warning: memory_budget = 1MB is too little for \d+ images in 3 models: about 3\d MB will be needed\.",
            said,
        )
        assert cdp(*words.split(), "1GB", "--force") == ""
    assert not list(home.glob(".cdp-spill*"))

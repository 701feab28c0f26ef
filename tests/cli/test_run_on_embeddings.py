"""`cdp run` where there are embeddings and no images: tuned labels, figures and the report, and nothing is trained."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.config.reading import read_recipe, recipe_from
from cdp.knn import model_graphs
from cdp.labeling import fitting
from cdp.storage.artifacts import read_run_record
from cdp.types import Labels, Views
from cdp.types.run_record import RunRecord
from cdp_lab.synthetic import synthetic_views

pytestmark = pytest.mark.slow
"""Every test is a run or several."""


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Views of four parts that share no identity: a folder each, and all labeled ones in other layouts."""
    folder = tmp_path_factory.mktemp("given")
    made = synthetic_views(200, 8, labeled=0.5, members=2, dimensions=32, noise=0.4, seed=1)
    people = np.unique(made.unlabeled.identities)
    parts = {"labeled": made.labeled}
    for number, name in enumerate(("unlabeled", "validation", "test")):
        own = people[number::3]
        parts[name] = made.unlabeled.take(np.isin(made.unlabeled.identities, own))
    for name, views in parts.items():
        views.save(folder / name)
    for name in ("labeled", "unlabeled"):
        models = {"base": parts[name].base, **parts[name].committee}
        arrays = {key: np.asarray(model.source) for key, model in models.items()}
        names = np.array([f"person {number}" for number in parts[name].identities])
        np.savez(folder / f"{name}.npz", **arrays, identities=names)
    (folder / "networks").mkdir()
    for name, model in zip(("ours", "theirs", "other-1"), parts["labeled"], strict=True):
        np.save(folder / "networks" / f"{name}.npy", np.asarray(model.source))
    np.save(folder / "networks" / "identities.npy", parts["labeled"].identities)
    return folder


def call(given: Path, out: Path, *words: str) -> RunRecord:
    """Run in the folder of the views; the record."""
    common = ["--threads", "1", "--replicates", "20", "--json", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(given)
        k = [] if "--k" in words else ["--k", "8"]
        trees = [] if {"--mediator", "--preset"} & set(words) else ["--mediator", "trees"]
        result = CliRunner().invoke(app, ["run", *words, *k, *trees, *common])
    assert result.exit_code == 0, result.output
    call.messages = [
        event["sentence"]
        for event in map(json.loads, result.stdout.splitlines())
        if event["event"] == "message"
    ]
    call.ran = [
        event["stage"]
        for event in map(json.loads, result.stdout.splitlines())
        if event["event"] == "finished" and not event["fresh"]
    ]
    return read_run_record(out / "run" / "run.json")


def read_table(file: Path) -> list[dict[str, str]]:
    with file.open() as opened:
        return list(csv.DictReader(opened))


PARTS = ("--labeled", "labeled", "--unlabeled", "unlabeled")


def test_parts_of_views_give_tuned_labels_figures_and_a_report(given, tmp_path):
    record = call(given, tmp_path, *PARTS)
    assert call.ran == ["split", "views", "label"]
    assert len(call.messages) == 1
    assert re.fullmatch(
        r"Expected of these labels, by \d+ labeled identities: precision 0\.\d{3} \(.*\), recall .*, coverage .*\.",
        call.messages[0],
    )
    assert record.results.tuning is not None, "on labeled identities that were held out"
    assert record.results.labels.true.discards_kept.pairwise.f > 0.8
    assert record.results.labels.true.images == record.parts["unlabeled"].images
    assert (record.results.headline, record.notes) == (None, [])
    assert [member.name for member in record.results.committee.members] == ["base", "member1", "member2"]
    assert "<html" in (tmp_path / "report.html").read_text()
    for folder in (tmp_path, tmp_path / "run" / "labels"):
        found = Labels.from_array([int(row["identity"]) for row in read_table(folder / "labels.csv")])
        assert found.labels.tolist() == Labels.load(tmp_path / "run" / "labels").labels.tolist()
    assert read_recipe(tmp_path / "run" / "recipe.toml") == recipe_from(record.recipe)


def test_with_validation_and_test_the_bar_is_chosen_there_and_every_model_is_measured(given, tmp_path):
    out = tmp_path / "run"
    record = call(given, out, *PARTS, "--validation", "validation", "--test", "test", "--ensemble", "2")
    assert call.ran == ["split", "views", "test views", "label", "measure members"]
    parts = record.parts
    assert {"labeled", "unlabeled", "validation", "probes", "distractors"} == set(parts)
    assert record.results.labels.true.images == parts["unlabeled"].images - parts["validation"].images
    committee = record.results.committee
    assert all(0 < member.rank1.value <= 1 and member.edge_precision for member in committee.members)
    assert len(committee.ensemble.names) == 2
    assert len(np.load(out / "run" / "views" / "probes" / "base.npy")) == parts["probes"].images
    # Without the test part the labels are kept, and what it gave is not shown any more.
    record = call(given, out, *PARTS, "--validation", "validation")
    assert call.ran == ["split"]
    assert (out / "run" / "member_figures.json").is_file()
    assert [member.rank1.value for member in record.results.committee.members] == [None] * 3
    assert record.results.committee.ensemble is None


def test_one_set_of_embeddings_is_split_by_identity(given, tmp_path):
    record = call(
        given, tmp_path, "--embeddings", "labeled", "--split.labeled", "0.4", "--split.probes", "0.2"
    )
    assert {"labeled", "unlabeled", "validation", "probes", "distractors"} == set(record.parts)
    people = {
        name: {row["identity"] for row in read_table(tmp_path / "run" / "parts" / f"{name}.csv")}
        for name in record.parts
    }
    assert people["validation"] < people["unlabeled"]
    apart = ("labeled", "unlabeled", "probes", "distractors")
    assert len(set.union(*(people[name] for name in apart))) == sum(len(people[name]) for name in apart)
    assert record.results.tuning is not None
    assert record.results.committee.members[0].rank1.value is not None


def test_parts_larger_than_memory_are_not_read_into_it(given, tmp_path, monkeypatch):
    """Whole files are written from their maps, several are put together on disk."""
    taken, take = [], Views.take

    def spy(views, rows):
        taken.append(views.n_images)
        return take(views, rows)

    monkeypatch.setattr(Views, "take", spy)
    words = ("--unlabeled", "unlabeled", "--validation", "validation", "--test", "test")
    call(given, tmp_path, "--labeled", "labeled", *words, "--preset", "paper")
    assert taken == [Views.load(given / "test").n_images] * 2, "probes and distractors are scattered rows"
    views = Views.load(tmp_path / "run" / "views" / "unlabeled")
    parts = [Views.load(given / name) for name in ("unlabeled", "validation")]
    expected = np.concatenate([part.committee["member2"].source for part in parts])
    np.testing.assert_array_equal(views.committee["member2"].source, expected)
    assert list(views.committee) == ["member1", "member2"]
    assert not [file for file in (tmp_path / "run").iterdir() if file.name.startswith(".views")]


def test_npz_files_and_names_instead_of_numbers(given, tmp_path):
    record = call(given, tmp_path, "--labeled", "labeled.npz", "--unlabeled", "unlabeled.npz")
    assert record.results.labels.true.discards_kept.pairwise.f > 0.8
    assert ",person " in (tmp_path / "run" / "parts" / "unlabeled.csv").read_text()


def test_groups_of_labeled_people_are_called_as_these(given, tmp_path):
    generator, people = np.random.default_rng(0), np.repeat(np.arange(60), 6)
    centers = generator.normal(size=(60, 32))
    for part in ("known", "others"):
        base = centers[people] + 0.3 * generator.normal(size=(360, 32))
        names = np.array([f"person {number}" for number in people])
        np.savez(tmp_path / f"{part}.npz", base=base.astype(np.float32), identities=names)
    words = ["--labeled", str(tmp_path / "known.npz"), "--unlabeled", str(tmp_path / "others.npz")]
    call(given, tmp_path / "run", *words, "--no-disjoint")
    with (tmp_path / "run" / "labels.csv").open() as file:
        names = {row["name"] for row in csv.DictReader(file)} - {""}
    assert len(names) > 20
    assert all(name.startswith("person ") for name in names)


def test_a_folder_of_one_file_per_network(given, tmp_path):
    words = ("--embeddings", "networks", "--split.labeled", "0.4", "--network", "ours")
    record = call(given, tmp_path, *words, "--networks", "theirs,other:1")
    assert [member.name for member in record.results.committee.members] == ["ours", "theirs", "other-1"]
    rows = [
        int(row["path"].rpartition("!")[2])
        for row in read_table(tmp_path / "run" / "parts" / "unlabeled.csv")
    ]
    expected = np.load(given / "networks" / "theirs.npy")[rows]
    np.testing.assert_array_equal(
        Views.load(tmp_path / "run" / "views" / "unlabeled").committee["theirs"].source, expected
    )
    # Another committee is another set of views, in the same folder.
    record = call(given, tmp_path, *words, "--networks", "other:1")
    assert call.ran == ["views", "label"]
    assert list(Views.load(tmp_path / "run" / "views" / "unlabeled").committee) == ["other-1"]


def test_a_vote_of_one_model_needs_no_validation(given, tmp_path):
    record = call(given, tmp_path, *PARTS, "--preset", "paper", "--mediator", "vote", "--threshold", "0.5")
    assert (record.results.mediator, record.results.tuning) == (None, None)
    assert record.results.labels.threshold == 0.5
    assert record.differences == {
        "data.labeled": str(given / "labeled"),
        "data.unlabeled": [str(given / "unlabeled")],
        "split.validation": 0.0,
        "split.probes": 0.0,
        "split.distractors": 0.0,
        "consensus.k": 8,
        "consensus.mediator": "vote",
        "consensus.threshold": 0.5,
        "consensus.preset": "paper",
        "evaluation.replicates": 20,
        "engine.threads": 1,
    }


def test_unlabeled_embeddings_without_identities(given, tmp_path):
    views = Views.load(given / "unlabeled")
    Views(views.base, views.committee).save(tmp_path / "blind")
    record = call(given, tmp_path / "run", "--labeled", "labeled", "--unlabeled", str(tmp_path / "blind"))
    assert record.results.labels.true is None
    assert record.results.tuning is not None
    assert record.parts["unlabeled"].identities is None


def test_parts_that_are_too_small_are_used_as_far_as_they_go(given, tmp_path):
    """One validation identity or one probe used to end a run after its networks were trained."""
    views = Views.load(given / "validation")
    people, counts = np.unique(views.identities, return_counts=True)
    one, *two = people[counts > 2][:3]
    views.take(views.identities == one).save(tmp_path / "one")
    views.take(np.isin(views.identities, two)).save(tmp_path / "two")
    n_images = int((views.identities == one).sum())
    words = ("--validation", str(tmp_path / "one"), "--test", str(tmp_path / "two"), "--threshold", "0.3")
    record = call(given, tmp_path / "run", *PARTS, *words, "--train-on", "validation")
    assert record.notes == [
        f"The mediator was trained on the labeled part: the validation part has {n_images} images of 1 identity only, and "
        "k is 8.",
        "There is one probe identity only, so verification was not measured; give more of them, e.g. split.probes a "
        "larger share.",
    ]
    base = record.results.committee.members[0]
    assert base.rank1.value is not None
    assert base.tpr == []
    record = call(
        given,
        tmp_path / "few run",
        "--labeled",
        str(tmp_path / "two"),
        "--unlabeled",
        "unlabeled",
        "--threshold",
        "0.3",
        "--k",
        "30",
    )
    n_labeled = record.parts["labeled"].images
    assert record.notes == [
        'mediator = "mlp" instead of "trees": 2 labeled identities have two images or more, and at least 20 are needed.',
        f"k = {n_labeled - 1} instead of 30: the part to train on has {n_labeled} images.",
    ]


def test_another_threshold_searches_no_graph_and_trains_no_mediator_again(given, tmp_path, monkeypatch):
    """Steps inside the stage are kept by their own keys."""
    searched, trained = [], []
    search, train = model_graphs.each_knn_graph, fitting.train_mediator

    def count_models(models, *args, **named):
        searched.extend(models)
        return search(models, *args, **named)

    def count_mediators(*args, **named):
        trained.append(1)
        return train(*args, **named)

    monkeypatch.setattr(model_graphs, "each_knn_graph", count_models)
    monkeypatch.setattr(fitting, "train_mediator", count_mediators)
    words = (*PARTS, "--validation", "validation", "--mediator", "mlp")
    call(given, tmp_path, *words)
    assert (len(searched), len(trained)) == (6, 1), "three models of the unlabeled and of the labeled part"
    for more in (
        ("--threshold", "0.4"),
        ("--grouping", "components", "--threshold", "0.9"),
        ("--beta", "2"),
        ("--max-cluster-size", "20"),
    ):
        call(given, tmp_path, *words, *more)
        assert call.ran == ["label"], more
    assert (len(searched), len(trained)) == (6, 1)
    call(given, tmp_path, *words, "--inputs", "affinity")
    assert (len(searched), len(trained)) == (6, 2)
    call(given, tmp_path, *words, "--k", "7")
    assert (len(searched), len(trained)) == (12, 3)


def test_a_changed_row_or_identity_is_noticed(given, tmp_path):
    views = Views.load(given / "unlabeled")
    folder = tmp_path / "mine"
    (folder / "committee").mkdir(parents=True)
    np.save(folder / "base.npy", views.base.source)
    for name, member in views.committee.items():
        np.save(folder / "committee" / f"{name}.npy", member.source)
    (folder / "meta.txt").write_text("\n".join(map(str, views.identities)))
    words = ("--labeled", "labeled", "--unlabeled", str(folder))
    call(given, tmp_path / "run", *words)
    call(given, tmp_path / "run", *words)
    assert call.ran == []
    # A list of identities beside the arrays counts too.
    (folder / "meta.txt").write_text("\n".join(map(str, views.identities[::-1])))
    call(given, tmp_path / "run", *words)
    assert call.ran == ["split", "views", "label"]
    np.save(folder / "committee" / "member2.npy", views.committee["member2"].source[:, ::-1])
    call(given, tmp_path / "run", *words)
    assert call.ran[-2:] == ["views", "label"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--labeled", "labeled", "--unlabeled", "."), "recipe-sources-mixed"),
        (("--images", "labeled"), "recipe-images-are-embeddings"),
        ((*PARTS, "--test", "labeled.npz", "--joint.rounds", "2"), "recipe-key-needs-training"),
        (("--embeddings", "networks"), "network-embeddings-missing"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(given, tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(given)
    result = CliRunner().invoke(app, ["run", *words, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    printed = " ".join(result.output.split())
    assert f"[{code}]" in printed
    assert printed.count("Error:") == 1
    assert not (tmp_path / "run").exists()


def test_faces_of_lfw(shared_data, tmp_path):
    recipe = Path(__file__).parents[2] / "recipes" / "lfw.toml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDP_DATA", str(shared_data))
        record = call(tmp_path, tmp_path / "run", str(recipe), "--preset", "paper")
    assert [member.name for member in record.results.committee.members] == [
        "mobilefacenet",
        "sface",
        "openface",
    ]
    assert record.results.labels.true.discards_kept.pairwise.f > 0.95

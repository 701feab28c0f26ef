"""`cdp-lab study` where there are embeddings and no images: studies of labels run, those that train say why not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from cdp import knn_graph
from cdp.storage.artifacts import read_json
from cdp.types import Labels, Views
from cdp.types.manifest import Manifest
from cdp.types.run_record import Results
from cdp_lab.cli.lab_main import app
from cdp_lab.synthetic import synthetic_views

pytestmark = pytest.mark.slow
"""Every test is a run or several."""

RECIPE = """
[data]
embeddings = "faces"
[split]
validation = 0.2
labeled = 0.4
unlabeled_parts = 1
[base]
network = "ours"
[committee]
networks = ["theirs", "other:1"]
[consensus]
k = 6
threshold = "auto"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three networks' embeddings of the same made-up people, and a recipe."""
    monkeypatch.chdir(tmp_path)
    made = synthetic_views(60, 8, labeled=0.5, members=2, seed=0).unlabeled
    (tmp_path / "faces").mkdir()
    for name, shown in zip(("ours", "theirs", "other-1"), made, strict=True):
        np.save(tmp_path / "faces" / f"{name}.npy", np.asarray(shown.source))
    np.save(tmp_path / "faces" / "identities.npy", made.identities)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def call(*words):
    return CliRunner().invoke(app, ["study", *words, "--seeds", "1", "--json"])


def say_no(*words):
    result = call(*words)
    assert result.exit_code == 2
    return " ".join(result.output.split())


def ran(result):
    assert result.exit_code == 0, result.output
    seen = [json.loads(line) for line in result.stdout.splitlines()]
    return [one["stage"] for one in seen if one["event"] == "finished" and not one["fresh"]]


def test_labels_are_studied_without_training_anything(folder):
    made = ran(call("committee_size", "recipe.toml", "--out", "size"))
    assert set(made) == {"split", "views", "label"}
    members = [
        list(Views.load(folder / f"size/runs/{variant}/seed0/views/unlabeled").committee)
        for variant in ("clustering", "members0", "members2")
    ]
    assert members == [["theirs", "other-1"], [], ["theirs", "other-1"]]
    results = json.loads((folder / "size" / "results.json").read_text())
    assert [row["cells"][0] for row in results["rows"]] == ["clustering", "0", "2"]
    assert all(0 < row["figures"]["f"]["mean"] <= 1 for row in results["rows"])
    assert results["recipe"]["data"]["embeddings"] == "faces", "as seen from here, without the folders above"
    # Everybody is on one side: the parts share no row, and no identity.
    parts = folder / "size" / "runs" / "members2" / "seed0" / "parts"
    labeled, unlabeled = (
        {tuple(line.split(",")[:2]) for line in (parts / f"{name}.csv").read_text().splitlines()[1:]}
        for name in ("labeled", "unlabeled")
    )
    assert len(labeled) + len(unlabeled) == len(np.load(folder / "faces" / "identities.npy"))
    assert not {who for _, who in labeled} & {who for _, who in unlabeled}


def test_rows_are_those_of_the_files(folder):
    ran(call("k", "recipe.toml", "--out", "k", "--variants", "k10"))
    run = folder / "k" / "runs" / "k10" / "seed0"
    table = (run / "parts" / "unlabeled.csv").read_text().splitlines()[1:]
    rows = [int(line.split(",")[0].rpartition("!")[2]) for line in table]
    views = Views.load(run / "views" / "unlabeled")
    np.testing.assert_array_equal(
        views.committee["theirs"].source, np.load(folder / "faces" / "theirs.npy")[rows]
    )


def test_a_changed_row_is_noticed(folder):
    words = ["k", "recipe.toml", "--out", "k", "--variants", "k10"]
    ran(call(*words))
    assert ran(call(*words)) == []
    rows = np.load(folder / "faces" / "theirs.npy")
    np.save(folder / "faces" / "theirs.npy", rows[:, ::-1])
    assert ran(call(*words))[-2:] == ["views", "label"]


def test_what_is_wrong_is_a_sentence(folder):
    assert "[study-needs-images]" in say_no("base", "recipe.toml", "--out", "x")
    assert "nobody.npy does not exist" in say_no("k", "recipe.toml", "--out", "x", "--base.network", "nobody")
    assert "leave one of them empty" in say_no("k", "recipe.toml", "--out", "x", "--data.images", "faces")
    assert "set train.folds = 0" in say_no("k", "recipe.toml", "--out", "x", "--train.folds", "3")
    assert "data.rotations applies to images" in say_no("k", "recipe.toml", "--out", "x", "--data.rotations")
    np.save(folder / "faces" / "theirs.npy", np.ones((3, 4), np.float32))
    assert "faces: Views: committee member 'theirs' has 3 rows, the base has" in say_no(
        "k", "recipe.toml", "--out", "x"
    )


def test_with_average_grouping_the_accepted_pairs_are_those_that_were_joined(folder):
    words = ["k", "recipe.toml", "--out", "k", "--variants", "k10", "--consensus.grouping", "average"]
    ran(call(*words))
    run = folder / "k" / "runs" / "k10" / "seed0"
    labels = Labels.load(run / "labels").labels
    who = Manifest.load(run / "parts" / "unlabeled.csv").identities
    n_validation = len(Manifest.load(run / "parts" / "validation.csv"))
    graph = knn_graph(Views.load(run / "views" / "unlabeled").base, 10)
    pairs = {
        (min(a, b), max(a, b)) for a, near in enumerate(graph.neighbors.tolist()) for b in near if b >= 0
    }
    counted = [pair for pair in pairs if max(pair) < len(who) - n_validation]
    joined = [(a, b) for a, b in counted if labels[a] == labels[b] >= 0]
    row = json.loads((folder / "k" / "results.json").read_text())["rows"][0]["figures"]
    assert row["accepted"]["mean"] == len(joined) > 0
    assert row["pair_precision"]["mean"] == pytest.approx(np.mean([who[a] == who[b] for a, b in joined]))


def test_the_mediator_is_trained_on_the_validation_part_if_asked(folder):
    def training_pairs(name, *more):
        made = ran(call("k", "recipe.toml", "--out", name, "--pool", "pool", "--variants", "k10", *more))
        run = folder / name / "runs" / "k10" / "seed0"
        return made, read_json(run / "labels" / "metrics.json", Results).mediator.training_pairs

    _, first = training_pairs("paper")
    made, second = training_pairs("unseen", "--train-on", "validation")
    assert made == ["split", "label"]
    assert first != second
    words = ("--train-on", "validation", "--split.validation", "0", "--threshold", "0.3")
    assert 'consensus.train_on = "validation" needs a validation part' in say_no(
        "k", "recipe.toml", "--out", "x", *words
    )


def test_clustering_searches_its_graph_on_the_device_of_the_run(folder, monkeypatch):
    """It used to search without the engine's device, and without the cache of steps."""
    from cdp.knn import model_graphs

    devices, search = [], model_graphs.each_knn_graph

    def spy(models, *args, runtime, **named):
        devices.append((len(models), runtime.settings.device))
        here = replace(runtime, settings=replace(runtime.settings, device="cpu"))
        return search(models, *args, runtime=here, **named)

    monkeypatch.setattr(model_graphs, "each_knn_graph", spy)
    words = ("committee_size", "recipe.toml", "--out", "size", "--variants", "clustering", "--pool", "pool")
    ran(call(*words, "--device", "meta"))
    assert devices == [(1, "meta")]
    ran(call(*words, "--beta", "3", "--consensus.inputs", "affinity"))
    assert devices[1:] == [(0, "auto")], "the graph is there"

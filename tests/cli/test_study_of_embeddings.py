"""`cdp study` where there are embeddings and no images: studies of labels run, those that train say why not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.lab.synthetic import synthetic_views
from cdp.store import load, read_card
from cdp.types import KnnGraph, Labels, Views

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
tune = true
"""


@pytest.fixture
def kitchen(tmp_path, monkeypatch):
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
    told = [json.loads(line) for line in result.stdout.splitlines()]
    return [one["stage"] for one in told if one["event"] == "finished" and not one["fresh"]]


def test_labels_are_studied_without_training_anything(kitchen):
    made = ran(call("committee_size", "recipe.toml", "--out", "size"))
    assert made.count("embeddings ours") == 1
    assert not [name for name in made if name.startswith(("train", "test"))]
    results = json.loads((kitchen / "size" / "results.json").read_text())
    assert [row["cells"][0] for row in results["rows"]] == ["clustering", "0", "2"]
    assert all(0 < row["figures"]["f"]["mean"] <= 1 for row in results["rows"])
    assert results["recipe"]["data"]["embeddings"] == "faces", "as seen from here, without the folders above"
    # Everybody is on one side: the parts share no row, and no identity.
    parts = kitchen / "size" / "runs" / "members2" / "seed0" / "parts"
    labeled, unlabeled = (
        {tuple(line.split(",")[:2]) for line in (parts / f"{name}.csv").read_text().splitlines()[1:]}
        for name in ("labeled", "unlabeled")
    )
    assert len(labeled) + len(unlabeled) == len(np.load(kitchen / "faces" / "identities.npy"))
    assert not {who for _, who in labeled} & {who for _, who in unlabeled}


def test_rows_are_those_of_the_files(kitchen):
    ran(call("k", "recipe.toml", "--out", "k", "--variants", "k10"))
    run = kitchen / "k" / "runs" / "k10" / "seed0"
    table = (run / "parts" / "unlabeled.csv").read_text().splitlines()[1:]
    rows = [int(line.split(",")[0].rpartition("!")[2]) for line in table]
    held = np.load(run / "embeddings" / "networks" / "theirs" / "unlabeled" / "base.npy")
    np.testing.assert_array_equal(held, np.load(kitchen / "faces" / "theirs.npy")[rows])


def test_a_changed_row_is_noticed(kitchen):
    words = ["k", "recipe.toml", "--out", "k", "--variants", "k10"]
    ran(call(*words))
    assert ran(call(*words)) == []
    rows = np.load(kitchen / "faces" / "theirs.npy")
    np.save(kitchen / "faces" / "theirs.npy", rows[:, ::-1])
    again = ran(call(*words))
    assert {"embeddings theirs", "graphs theirs", "mediator"} <= set(again)
    assert not {"embeddings ours", "graphs ours"} & set(again)


def test_what_is_wrong_is_a_sentence(kitchen):
    assert (
        "base: this study trains networks, and data.embeddings has no images to train on; give data.images, or choose "
        "a study of labels, e.g. k or mediator_inputs."
    ) in say_no("base", "recipe.toml", "--out", "x")
    assert "nobody.npy is not there" in say_no("k", "recipe.toml", "--out", "x", "--base.network", "nobody")
    assert "leave one of them empty" in say_no("k", "recipe.toml", "--out", "x", "--data.images", "faces")
    assert "set split.probes = 0" in say_no("k", "recipe.toml", "--out", "x", "--split.probes", "0.1")
    assert "set consensus.folds = 0" in say_no("k", "recipe.toml", "--out", "x", "--consensus.folds", "3")
    assert "set data.rotations = false" in say_no(
        "k", "recipe.toml", "--out", "x", "--data.rotations", "true"
    )
    np.save(kitchen / "faces" / "theirs.npy", np.ones((3, 4), np.float32))
    told = say_no("k", "recipe.toml", "--out", "x")
    assert "theirs.npy: shape (3, 4), and identities.npy has" in told
    np.save(kitchen / "faces" / "identities.npy", np.ones((3, 4), np.float32))
    assert "one whole number per image is needed, this is float32 of shape (3, 4)" in say_no(
        "k", "recipe.toml", "--out", "y"
    )
    result = CliRunner().invoke(app, ["run", "recipe.toml", "--out", "z"])
    assert result.exit_code == 2
    assert "label embeddings with `cdp label`" in " ".join(result.output.split())


def test_with_average_grouping_the_accepted_pairs_are_those_that_were_joined(kitchen):
    words = ["k", "recipe.toml", "--out", "k", "--variants", "k10", "--consensus.grouping", "average"]
    ran(call(*words))
    run = kitchen / "k" / "runs" / "k10" / "seed0"
    labels = Labels.load(run / "labels").labels
    who = Views.load(run / "embeddings" / "networks" / "ours" / "unlabeled").identities
    n_validation = json.loads((run / "parts" / "counts.json").read_text())["validation"]["images"]
    pairs = {
        (min(a, b), max(a, b))
        for a, near in enumerate(load(run / "graphs" / "ours" / "unlabeled", KnnGraph).neighbors.tolist())
        for b in near
    }
    counted = [pair for pair in pairs if max(pair) < len(who) - n_validation]
    joined = [(a, b) for a, b in counted if labels[a] == labels[b] >= 0]
    row = json.loads((kitchen / "k" / "results.json").read_text())["rows"][0]["figures"]
    assert row["accepted"]["mean"] == len(joined) > 0
    assert row["pair_precision"]["mean"] == pytest.approx(np.mean([who[a] == who[b] for a, b in joined]))


def test_the_mediator_can_learn_from_the_validation_part(kitchen):
    def pairs_learned_from(name, *more):
        made = ran(call("k", "recipe.toml", "--out", name, "--pool", "pool", "--variants", "k10", *more))
        run = kitchen / name / "runs" / "k10" / "seed0"
        counts = json.loads((run / "parts" / "counts.json").read_text())
        return made, read_card(run / "mediator").settings, counts

    _, first, counts = pairs_learned_from("paper")
    made, second, _ = pairs_learned_from("unseen", "--consensus.lessons", "validation")
    assert [name for name in made if name.startswith(("embeddings", "graphs"))] == []
    assert "mediator" in made
    assert counts["labeled"]["images"] != counts["validation"]["images"]
    assert first != second
    told = say_no(
        "k",
        "recipe.toml",
        "--out",
        "x",
        "--lessons",
        "validation",
        "--split.validation",
        "0",
        "--tune",
        "false",
    )
    assert 'consensus.lessons = "validation" needs a validation part' in told

"""`cdp-lab study`: a small version of every study on drawn patterns; what variants share is made once."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from tests.cli.test_run_command import RECIPE
from tests.drawn_images import draw_patterns
from tests.killed_commands import kill_when
from typer.testing import CliRunner

from cdp.storage.artifacts import read_json
from cdp.types import Labels
from cdp.types.run_record import Results
from cdp_lab.cli.lab_main import app
from cdp_lab.study.catalog import SENTENCES

pytestmark = [pytest.mark.slow, pytest.mark.whole_training]
"""They train networks, though tiny ones; and what commands that are killed have made, other tests go on with."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with images, a recipe, and a pool that all studies here share."""
    folder = tmp_path_factory.mktemp("study")
    draw_patterns(folder / "people", n_identities=30, n_images=8)
    quick = RECIPE.replace("epochs = 10", "epochs = 6").replace("epochs = 3", "epochs = 2")
    (folder / "recipe.toml").write_text(quick)
    return folder


def call(folder, name, out, *words):
    return CliRunner().invoke(app, ["study", name, str(folder / "recipe.toml"), "--out", str(out), *words])


def events(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def study(folder, name, variants=None, *words, seeds=1):
    """Run a study into the shared pool; its results, and the stages that were made for it."""
    out = folder / name
    words = (*(() if variants is None else ("--variants", variants)), *words)
    pool = ("--pool", str(folder / "pool"))
    seen = events(call(folder, name, out, *pool, "--seeds", str(seeds), "--json", *words))
    ran = [one["stage"] for one in seen if one["event"] == "finished" and not one["fresh"]]
    results = json.loads((out / "results.json").read_text())
    for file in ("README.md", "study.html"):
        assert results["title"].split()[-1] in (out / file).read_text()
    return results, ran


def figures(results, key):
    return {tuple(row["cells"]): row["figures"][key]["mean"] for row in results["rows"]}


def test_k_over_seeds(folder):
    results, ran = study(folder, "k", "k10,k20", seeds=2)
    # Two seeds; networks are trained once for both k.
    assert ran.count("train small_vgg") == 2
    assert ran.count("label") == 4
    assert "train with pseudo-labels" not in ran
    assert results["seeds"] == [0, 1]
    assert [row["cells"] for row in results["rows"]] == [["10"], ["20"]]
    for row in results["rows"]:
        assert len(row["figures"]["f"]["values"]) == 2
        assert row["figures"]["f"]["sd"] is not None
        assert row["verdict"] in ("best", "no significant difference", "behind")
    assert {"versions", "cores", "recipe", "command", "variants"} <= set(results)
    second = results["variants"][1]
    assert second["slug"] == "k20"
    assert second["overrides"] == {"consensus.k": 20, "consensus.beta": 1}
    assert len(results["made"]) == results["runs"] == results["runs_done"] == 4
    before = (folder / "k" / "results.json").read_text()
    again, ran = study(folder, "k", "k10,k20", seeds=2)
    assert ran == []
    assert again["rows"] == json.loads(before)["rows"]


def test_committee_size_has_one_recall(folder):
    results, _ = study(folder, "committee_size", None, "--pair-recall", "0.4")
    recalls = figures(results, "pair_recall")
    assert recalls[("clustering",)] is None
    assert recalls[("0",)] == pytest.approx(0.4, abs=0.02)
    assert recalls[("2",)] == pytest.approx(0.4, abs=0.02)
    assert figures(results, "pair_precision")[("2",)] >= figures(results, "pair_precision")[("0",)]


def test_mediator_inputs(folder):
    results, ran = study(folder, "mediator_inputs", "inputs1,inputs4")
    assert ran.count("label") <= 2, "with all inputs it may be what another study has made"
    assert [row["cells"][0].count("+") for row in results["rows"]] == [0, 3]


def test_heterogeneity(folder):
    results, ran = study(folder, "heterogeneity", "one-vote,different-vote")
    assert {"train small_inception-1", "train small_inception-2"} <= set(ran)
    assert set(figures(results, "f")) == {("one architecture", "vote"), ("different architectures", "vote")}


def test_mediator_weights_have_a_picture(folder):
    results, _ = study(folder, "mediator_weights")
    layer = results["extra"]["mediator"]
    assert len(layer["weights"]) == len(layer["columns"]) == 20
    assert len(layer["weights"][0]) == 50
    assert "hidden units" in (folder / "mediator_weights" / "study.html").read_text()
    assert all(value > 0 for value in figures(results, "weight").values())


def test_committee_and_ensemble_need_no_joint_training(folder):
    results, ran = study(folder, "committee")
    assert not {"label", "train with pseudo-labels"} & set(ran)
    rank1 = figures(results, "rank1")
    assert list(rank1) == [("small_resnet (base)",), ("small_vgg",), ("small_inception",), ("ensemble of 3",)]
    assert rank1[("ensemble of 3",)] >= min(rank1.values())
    assert figures(results, "parameters")[("small_vgg",)] > 1e5


def test_ratio(folder):
    variants = "ratio2-clustering,ratio2-vote,ratio2-mediator,ratio3-clustering"
    results, ran = study(folder, "ratio", variants)
    rank1 = figures(results, "rank1")
    ways = ("clustering", "vote", "mediator", "all labels")
    assert list(rank1) == [("0", "labeled only"), *(("2", way) for way in ways), ("3", "clustering")]
    assert all(0 <= value <= 1 for value in rank1.values())
    assert ran.count("train with pseudo-labels") == 4
    assert ran.count("train with all labels") == 1
    assert ran.count("train small_resnet") <= 1, "the labeled part is the same at every ratio"
    ratios = figures(results, "ratio")
    assert ratios[("0", "labeled only")] == 0 < ratios[("2", "vote")] < ratios[("3", "clustering")]
    assert (folder / "ratio" / "plot-rank1.svg").is_file()
    low, high = rank1[("0", "labeled only")], rank1[("2", "all labels")]
    gap = figures(results, "gap")
    if high > low:
        assert gap[("2", "vote")] == pytest.approx((rank1[("2", "vote")] - low) / (high - low))
    assert gap[("3", "clustering")] is None, "its bound was not among the variants"
    labels = figures(results, "label_f")
    assert all((labels[row] is None) == (row[1] in ("labeled only", "all labels")) for row in labels)


def test_base(folder):
    study(folder, "committee")
    results, ran = study(folder, "base", "small_vgg")
    assert [row["cells"][1] for row in results["rows"]] == ["labeled only", "pseudo-labels", "all labels"]
    assert not [name for name in ran if name.startswith("train small")], "who is the base changes no training"


def test_loss(folder):
    results, ran = study(folder, "loss", "softmax,arcface")
    assert list(figures(results, "rank1")) == [
        (loss, words) for loss in ("softmax", "arcface") for words in ("labeled only", "pseudo-labels")
    ]
    assert "train with all labels" not in ran


def test_soft_labels(folder):
    results, ran = study(folder, "soft_labels", "hard,depth3-decay0.2")
    rows = {("labeled only",), ("hard (depth 0)",), ("all labels",), ("depth 3, decay 0.2",)}
    assert set(figures(results, "rank1")) == rows
    assert ran.count("train with pseudo-labels") >= 1


def test_rounds(folder):
    results, ran = study(folder, "rounds", "rounds1,rounds2")
    assert [row["cells"][0] for row in results["rows"]] == ["labeled only", "1", "2", "all labels"]
    networks = ("small_resnet", "small_vgg", "small_inception")
    assert {f"train round2/{name}" for name in networks} <= set(ran)
    assert {"round1 label", "label"} <= set(ran)
    labels = figures(results, "label_f")
    assert labels[("1",)] > 0
    assert labels[("2",)] > 0
    first, second = (folder / "rounds" / "runs" / f"rounds{rounds}" / "seed0" for rounds in (1, 2))
    ours, theirs = (
        Labels.load(labels).labels for labels in (first / "labels", second / "rounds" / "1" / "labels")
    )
    np.testing.assert_array_equal(ours, theirs, "the first round is the paper's way")
    assert not (first / "rounds").exists()


def test_recall_weight(folder):
    results, ran = study(folder, "recall_weight", "weight1,weight4")
    assert [row["cells"][0] for row in results["rows"]] == ["labeled only", "1", "4", "all labels"]
    recall = figures(results, "label_recall")
    assert recall[("4",)] >= recall[("1",)]
    assert "label" in ran
    even, bold = (
        read_json(folder / f"recall_weight/runs/weight{weight}/seed0/labels/metrics.json", Results).tuning
        for weight in (1, 4)
    )
    assert bold.beta == 4
    assert even.curve == bold.curve, "the same labels are looked at"
    assert bold.chosen <= even.chosen


def test_mistakes(folder):
    results, ran = study(folder, "mistakes")
    found = ["labels as found", "without splits", "without mixtures", "without either"]
    assert [row["cells"][0] for row in results["rows"]] == ["labeled only", *found, "all labels"]
    precision, f = figures(results, "label_precision"), figures(results, "label_f")
    assert precision[("without mixtures",)] == precision[("without either",)] == 1
    recall, groups = figures(results, "label_recall"), figures(results, "label_groups")
    assert recall[("without splits",)] >= recall[("labels as found",)]
    assert groups[("without splits",)] <= groups[("labels as found",)]
    assert recall[("without mixtures",)] == recall[("labels as found",)], "divided groups lose no true pair"
    assert f[("without either",)] >= max(value for value in f.values() if value is not None)
    assert ran.count("correct labels") == 3
    assert ran.count("label") <= 2, "all three correct the same labels"


def test_runtime_fits_exponents(folder):
    results, _ = study(folder, "runtime", "exact-200,exact-400", "--sizes", "200,400")
    assert [row["cells"] for row in results["rows"]] == [["exact", "200"], ["exact", "400"]]
    assert all(value > 0 for value in figures(results, "graphs_seconds").values())
    assert {fit["column"] for fit in results["fits"]} == {
        "graphs_seconds",
        "consensus_seconds",
        "groups_seconds",
        "seconds",
    }
    assert all(fit["mean"] is not None for fit in results["fits"])
    assert "Fitted exponents" in (folder / "runtime" / "README.md").read_text()
    assert call(folder, "runtime", folder / "x", "--sizes", "9").exit_code == 2


def test_baselines_beside_cdp(folder):
    results, _ = study(folder, "baselines", None, "--methods", "hierarchical_average,finch")
    f = figures(results, "f")
    assert list(f) == [("hierarchical_average",), ("finch",), ("cdp",)]
    assert all(0 < value <= 1 for value in f.values())
    assert all(value is not None for value in figures(results, "memory").values())


def test_several_studies_on_one_page(folder):
    study(folder, "committee")
    study(folder, "mediator_weights")
    out = folder / "page.md"
    words = [
        "study",
        "page",
        str(folder / "committee"),
        str(folder / "mediator_weights"),
        "--out",
        str(out),
    ]
    out.unlink(missing_ok=True)
    assert CliRunner().invoke(app, words).exit_code == 0
    assert "| Tiny NASNet-A (base) | 61.78 | 75.87 | 20.1M |" in out.read_text()
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
    assert "[output-exists]" in again.output
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 0


def test_the_list_and_the_plan(folder, tmp_path):
    listed = CliRunner().invoke(app, ["study", "list"]).output
    assert all(name in listed and sentence in listed for name, sentence in SENTENCES.items())
    out = tmp_path / "new"
    planned = events(call(folder, "k", out, "--plan", "--json", "--seeds", "1", "--variants", "k10,k20"))
    assert [(one["variant"], one["kept"], one["shared"], len(one["runs"])) for one in planned] == [
        ("k10", 0, 0, 8),
        ("k20", 0, 6, 2),
    ]
    assert planned[1]["runs"][0] == "split", "tables of images are written in every run"
    shown = call(folder, "k", out, "--plan", "--seeds", "1").output
    assert "shared with an earlier variant" in " ".join(shown.split())
    assert not out.exists()


def test_what_is_wrong_is_a_sentence(folder, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    result = call(folder, "k", tmp_path)
    assert result.exit_code == 2
    assert "[output-holds-other-things]" in result.output
    result = call(folder, "k", tmp_path / "x", "--variants", "k11")
    assert result.exit_code == 2
    assert "[study-variant-unknown]" in result.output
    result = CliRunner().invoke(app, ["study", "k", "--seeds", "1", "--out", str(tmp_path / "x")])
    assert result.exit_code == 2


def test_killed_at_any_moment_it_goes_on_to_the_same_results(folder, tmp_path):
    words = ["mediator_inputs", str(folder / "recipe.toml"), "--seeds", "1", "--variants", "inputs1,inputs2"]
    out = ["--out", str(tmp_path / "killed")]
    moments = (
        lambda one: one["event"] == "started" and one["stage"] == "train small_vgg",
        lambda one: one["event"] == "run finished",
        lambda one: one["event"] == "started" and one["stage"] == "label",
    )
    for moment in moments:
        kill_when(["study", *words, *out], moment)
    ran = events(CliRunner().invoke(app, ["study", *words, *out, "--json"]))
    made = [one["stage"] for one in ran if one["event"] == "finished" and not one["fresh"]]
    assert not [name for name in made if name.startswith(("train", "embed"))]
    undisturbed, _ = study(folder, "mediator_inputs", "inputs1,inputs2")
    assert json.loads((tmp_path / "killed" / "results.json").read_text())["rows"] == undisturbed["rows"]


def test_a_run_folder_that_was_deleted_comes_back_from_the_pool(folder):
    first, _ = study(folder, "mediator_inputs", "inputs1,inputs4")
    shutil.rmtree(folder / "mediator_inputs" / "runs" / "inputs4")
    second, ran = study(folder, "mediator_inputs", "inputs1,inputs4")
    assert ran == ["split"]
    assert second["rows"] == first["rows"]

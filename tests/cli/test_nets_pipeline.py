"""From folders of pictures to a jointly trained network, with the commands a user types."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import drawn_images
from cdp.cli.main import app
from cdp.data.views import read_views
from cdp_lab.cli.lab_main import app as lab

pytest.importorskip("torch", reason="the networks need the extra nets")

pytestmark = pytest.mark.slow

RECIPE = ["--size", "16", "--epochs", "3", "--batch", "16", "--rate", "0.02", "--dimensions", "16"]
QUICK = ["--threads", "1", "--quiet"]


def cdp(*words, code=0, of=app):
    result = CliRunner().invoke(of, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def losses(folder):
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    drawn_images.draw(folder / "known", 6, 8)
    drawn_images.draw(folder / "unknown", 5, 8, first=20)
    return folder


def test_from_folders_to_a_jointly_trained_network(pictures, tmp_path):
    known, unknown, nets = pictures / "known", pictures / "unknown", tmp_path / "nets"
    names = ["--network", "small_resnet", "--network", "small_vgg", "--network", "small_vgg:1"]
    cdp("train", known, "--out", nets, *names, *RECIPE, *QUICK)
    for part, name in ((known, "known"), (unknown, "unknown")):
        cdp("embed", part, "--networks", nets, "--base", "small_resnet", "--out", tmp_path / name, *QUICK)
    views = read_views(tmp_path / "unknown")
    assert views.names == ("base", "small_vgg", "small_vgg-1")
    assert views.paths is not None
    assert views.paths[0].endswith("person020/0.png")
    labels = tmp_path / "labels"
    words = ["--mediator", "vote", "--k", "5", "--soft-depth", "2", "--out", labels, "--quiet"]
    cdp("label", tmp_path / "unknown", *words)
    joined = ["train", known, "--unlabeled", unknown, "--network", "small_resnet", *RECIPE, *QUICK]
    cdp(*joined, "--labels", labels, "--out", tmp_path / "joint")
    cdp(*joined, "--labels", labels, "--soft", "--out", tmp_path / "soft")
    taught = [*joined, "--labels", labels, "--distill", "2", "--out", tmp_path / "taught"]
    assert "[teachers-per-part-differ]" in cdp(*taught, code=2)
    cdp(*taught, "--teachers", tmp_path / "unknown")
    cdp(*joined, "--true-labels", "--out", tmp_path / "bound")
    card = json.loads((tmp_path / "joint" / "small_resnet" / "card.json").read_text())
    assert list(card["settings"]["spaces"]) == ["labeled", "pseudo"]
    bound = json.loads((tmp_path / "bound" / "small_resnet" / "card.json").read_text())
    assert bound["settings"]["spaces"]["labeled"] == {"images": 88, "classes": 11, "weight": 1.0}
    cdp(
        "embed",
        unknown,
        "--networks",
        tmp_path / "joint",
        "--base",
        "small_resnet",
        "--out",
        tmp_path / "new",
        *QUICK,
    )
    words = [
        "ensemble",
        tmp_path / "unknown",
        "--models",
        "base,small_vgg",
        "--out",
        tmp_path / "both",
        "--quiet",
    ]
    cdp(*words, of=lab)
    assert "Network" in cdp("show", tmp_path / "joint" / "small_resnet")
    # Labels of other images than the manifest's
    said = cdp(
        "train",
        known,
        "--unlabeled",
        known,
        "--labels",
        labels,
        "--network",
        "small_resnet",
        "--out",
        tmp_path / "x",
        *QUICK,
        code=2,
    )
    assert "[labels-of-other-manifest]" in said
    said = cdp(*joined, "--out", tmp_path / "x", code=2)
    assert "[labels-per-part-differ]" in said
    plain = tmp_path / "labels.txt"
    plain.write_text("\n".join(map(str, np.arange(40) // 8)))
    cdp(*joined, "--labels", plain, "--lambda", "0.5", "--out", tmp_path / "plain")


def test_networks_are_listed_with_their_sizes():
    rows = {
        row["name"]: row
        for row in json.loads(cdp("train", "--list-networks", "--classes", 35012, "--size", 64, "--json"))
    }
    assert rows["inception_v3"]["parameters"] is None
    assert rows["small_nasnet"]["parameters"] > 256 * 35012
    assert "resnet101" in cdp("train", "--list-networks", "--size", "64", "--classes", "10")


def test_mistakes_are_one_sentence(pictures, tmp_path):
    known = pictures / "known"
    assert "[network-not-given]" in cdp("train", known, "--out", tmp_path / "a", code=2)
    assert "[train-inputs-not-given]" in cdp("train", known, "--network", "small_vgg", code=2)
    small = ["train", known, "--network", "small_vgg", "--out", tmp_path / "a"]
    for more, answer in (
        (["--labels", "x"], "unlabeled-not-given"),
        (["--unlabeled", known, "--true-labels", "--soft"], "true-labels-clash"),
        (["--unlabeled", known, "--network", "small_resnet", "--true-labels"], "network-not-one"),
        (["--unlabeled", known, "--labels", tmp_path / "nowhere"], "labels-missing"),
    ):
        assert f"[{answer}]" in cdp(*small, *more, code=2)
    said = cdp("train", known, "--network", "small_resnt", "--out", tmp_path / "a", code=2)
    assert "Did you mean small_resnet?" in said
    said = cdp("train", known, "--network", "small_vgg", "--out", tmp_path / "a", "--speed", "3", code=2)
    assert "No such option: --speed" in said
    said = cdp("train", known, "--network", "small_vgg", "--out", tmp_path / "a", "--momentum", "x", code=2)
    assert "Invalid value for '--momentum'" in said
    said = cdp(
        "train", known, "--network", "small_vgg", "--out", tmp_path / "a", "--device", "cuda:9", code=2
    )
    assert "[device-unknown]" in said
    said = cdp("train", known, "--network", "small_vgg", "--out", tmp_path / "a", "--zoom", "2", code=2)
    assert "--zoom = 2: a share from 0 to 0.9. [setting-out-of-range]" in said


def test_kill_9_and_run_again_gives_the_same_weights(pictures, tmp_path):
    def command(out):
        words = ["train", pictures / "known", "--network", "small_resnet", "--out", out, "--epochs", "18"]
        words += ["--checkpoint-every", "3", "--flip", "--rotate", "5", "--shift", "0.1", "--loss", "arcface"]
        words += [*RECIPE[:2], *RECIPE[4:], *QUICK]
        return [sys.executable, "-c", "from cdp.cli.main import run; run()", *map(str, words)]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = tmp_path / "killed" / "small_resnet"
    kills = 0
    for wanted in (1, 24):
        process = subprocess.Popen(command(tmp_path / "killed"), env=environment)
        log = killed / "log.jsonl"
        while process.poll() is None:
            steps = log.read_text().count("\n") if log.exists() else 0
            if (killed / "checkpoint.safetensors").exists() and steps >= wanted // 3:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                break
            time.sleep(0.005)
    subprocess.run(command(tmp_path / "killed"), env=environment, check=True)
    cdp(*command(tmp_path / "whole")[3:])
    assert kills >= 1
    one, other = (tmp_path / name / "small_resnet" / "weights.safetensors" for name in ("killed", "whole"))
    assert one.read_bytes() == other.read_bytes()
    assert losses(one.parent) == losses(other.parent)

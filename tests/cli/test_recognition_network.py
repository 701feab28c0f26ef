"""A trained network and images give the figures that its embeddings give."""

import csv
import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

import drawn_images
from cdp import read_manifest
from cdp.cli.main import app

pytest.importorskip("torch", reason="the networks need the extra nets")

pytestmark = pytest.mark.slow

RECIPE = [
    "--size",
    "16",
    "--epochs",
    "2",
    "--batch",
    "16",
    "--rate",
    "0.02",
    "--dimensions",
    "16",
    "--threads",
    "1",
    "--quiet",
]


def cdp(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recognition")
    drawn_images.draw(folder / "all", 11, 6)
    # Parts of one manifest keep its identity numbers, so that no identity is both probe and distractor.
    everybody = read_manifest(folder / "all")
    everybody.take(np.arange(36)).save(folder / "known.csv")
    everybody.take(np.arange(36, 66)).save(folder / "others.csv")
    cdp("train", folder / "known.csv", "--out", folder / "nets", "--network", "small_resnet", *RECIPE)
    cdp("train", folder / "known.csv", "--out", folder / "nets", "--network", "small_vgg", *RECIPE)
    for part in ("known", "others"):
        words = [
            "--networks",
            folder / "nets",
            "--base",
            "small_resnet",
            "--alone",
            "--threads",
            "1",
            "--quiet",
        ]
        cdp("embed", folder / f"{part}.csv", *words, "--out", folder / f"views_{part}")
    return folder


def test_identification(home):
    words = ["eval", "identification", "--replicates", "20", "--threads", "1", "--json", "--quiet"]
    from_views = cdp(*words, "--probes", home / "views_known", "--distractors", home / "views_others")
    network = ["--network", home / "nets" / "small_resnet"]
    images = ["--probes", home / "known.csv", "--distractors", home / "others.csv"]
    from_images = cdp(*words, *network, *images)
    assert json.loads(from_images) == json.loads(from_views)
    against = json.loads(cdp(*words, *network, *images, "--against-network", home / "nets" / "small_vgg"))
    assert against["against"] is not None


def test_verification_of_pairs_and_packs(home):
    rows = [(row, row + 1, 1) for row in range(0, 30, 6)] + [(row, 35 - row, 0) for row in range(5)]
    with (home / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("first_row", "second_row", "same"), *rows])
    words = [
        "eval",
        "verification",
        "--replicates",
        "20",
        "--threads",
        "1",
        "--folds",
        "2",
        "--json",
        "--quiet",
    ]
    network = ["--network", home / "nets" / "small_resnet"]
    from_views = cdp(*words, "--embeddings", home / "views_known", "--pairs", home / "pairs.csv")
    from_images = cdp(*words, *network, "--images", home / "known.csv", "--pairs", home / "pairs.csv")
    assert json.loads(from_images) == json.loads(from_views)

    files = sorted((home / "all").glob("*/*.png"))
    images = [files[end].read_bytes() for first, second, _ in rows for end in (first, second)]
    (home / "faces.bin").write_bytes(pickle.dumps((images, [bool(same) for *_, same in rows])))
    from_pack = json.loads(cdp(*words, *network, "--pack", home / "faces.bin"))
    assert from_pack["pairs"] == len(rows)
    assert from_pack["best_accuracy"]["accuracy"] == pytest.approx(
        json.loads(from_views)["best_accuracy"]["accuracy"]
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--pairs", "p.csv"], "embeddings-or-network"),
        (["--network", "n", "--pairs", "p.csv"], "network-without-images"),
        (["--network", "nowhere", "--images", "i", "--pairs", "p"], "network-folder-wrong"),
        (
            ["--embeddings", "e.npy", "--against-network", "n", "--pairs", "p"],
            "against-network-alone",
        ),
    ],
)
def test_wrong_words_are_named(words, code):
    assert f"[{code}]" in cdp("eval", "verification", *words, code=2).replace("\n", " ")


def test_rows_are_those_of_the_manifest(home):
    assert np.load(home / "views_known" / "base.npy").shape == (36, 16)

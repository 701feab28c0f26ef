"""`cdp collect`, `cdp extend`, `cdp regroup` and `cdp label --corrections`."""

import csv

import pytest
from typer.testing import CliRunner

from cdp import Views
from cdp.cli.main import app
from cdp.collection.collection import open_collection


@pytest.fixture
def home(small_views, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = small_views.identities < 25
    others = small_views.take(~known)
    small_views.take(known).save("known")
    for name, rows in (("first", slice(0, 80)), ("second", slice(80, None))):
        part = others.take(rows)
        Views(part.base, part.committee, None, part.paths).save(name)
    return tmp_path


def run(words, code=0):
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == code, result.output
    return result.output.replace("\n", " ")


@pytest.mark.slow
def test_a_collection_is_made_corrected_and_extended(home):
    said = run("collect first --labeled known --k 8 --out faces")
    assert "Collection: 80 images" in said
    paths = open_collection("faces").paths
    with open("table.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "path", "other_path", "name"])
        table.writerow(["name", paths[0], "", "Anna"])
        table.writerow(["different", paths[0], paths[1], ""])
    assert "kept their number" in run("regroup faces --corrections table.csv")
    corrected = open_collection("faces")
    assert corrected.names[corrected.identity[0]] == "Anna"
    run("extend faces second --out grown --threads 1")
    assert open_collection("faces").n_images == 80
    assert open_collection("grown").n_images == 125
    run("extend faces second --quiet")
    grown = open_collection("faces")
    assert grown.identity.tolist() == open_collection("grown").identity.tolist()
    assert grown.names[grown.identity[0]] == "Anna"
    run("label first --labeled known --k 8 --corrections table.csv --quiet --out labels")
    with open("labels/labels.csv") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    assert labels[0] != labels[1] or labels[0] == "-1"


def test_wrong_input_is_said(home):
    assert "Nothing to learn from" in run("collect first --mediator mlp --out faces", 2)
    assert "first: this folder holds Views, not Collection" in run("extend first second", 2)

"""`cdp label`, `cdp add` and `cdp regroup` on embeddings, with corrections and names."""

import csv
from pathlib import Path

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
    said = run("label first --labeled known --k 8 --out faces")
    assert "Next: cdp review faces, cdp add faces INPUT" in said
    assert open_collection("faces").n_images == 80
    paths = open_collection("faces").paths
    with open("table.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "path", "other_path", "name"])
        table.writerow(["name", paths[0], "", "Anna"])
        table.writerow(["different", paths[0], paths[1], ""])
    assert "kept their number" in run("regroup faces --corrections table.csv")
    corrected = open_collection("faces")
    assert corrected.names[corrected.identity[0]] == "Anna"
    threshold = corrected.state.threshold
    run("regroup faces --threshold 0.9")
    assert open_collection("faces").state.threshold == 0.9
    assert "[" in run("regroup faces --threshold many", 2)
    run(f"regroup faces --threshold {threshold}")
    run("add faces second --out grown --threads 1")
    assert open_collection("faces").n_images == 80
    assert open_collection("grown").n_images == 125
    assert run("add faces second --quiet") == ""
    grown = open_collection("faces")
    assert grown.identity.tolist() == open_collection("grown").identity.tolist()
    assert grown.names[grown.identity[0]] == "Anna"
    run("label first --labeled known --k 8 --corrections table.csv --quiet --out labels")
    with open("labels/labels.csv") as file:
        labels = [row["identity"] for row in csv.DictReader(file)]
    assert labels[0] != labels[1] or labels[0] == "-1"


def test_wrong_input_is_said(home):
    assert "[nothing-to-learn-from]" in run("label first --mediator mlp --out faces", 2)
    assert "first: this folder holds Views, not Collection. [artifact-kind-differs]" in run(
        "add first second", 2
    )
    assert run("label first --mediator vote --k 5 --quiet --out faces") == ""
    assert "[folders-options-without-folders]" in run("regroup faces --plan", 2)
    assert "[folders-options-without-folders]" in run("regroup faces --reject-missing", 2)
    assert "[path-missing]" in run("add faces nowhere", 2)


def test_a_table_names_the_people(home):
    paths = Views.load("first").paths
    Path("names.csv").write_text(f"name,path\nAnna,{paths[0]}\nBert,{paths[1]}\n", encoding="utf-8")
    run("label first --mediator vote --k 5 --names names.csv --quiet --out faces")
    faces = open_collection("faces")
    assert {"Anna", "Bert"} == set(faces.names.values())
    with open("faces/labels.csv") as file:
        assert [row["name"] for row in csv.DictReader(file)][:2] == ["Anna", "Bert"]


def test_an_export_is_replaced_beside_the_images_but_never_over_them(home):
    part = Views.load("first")
    paths = [f"people/{row}/{row}.jpg" for row in range(part.n_images)]
    for path in paths:
        Path(path).parent.mkdir(parents=True)
        Path(path).write_bytes(b"precious")
    Views(part.base, part.committee, None, paths).save("pictured")
    run("label pictured --mediator vote --k 5 --quiet --out faces")
    for more in ("", " --force"):
        run(f"export faces --out sorted{more}")
    Path("sorted/card.json").rename("people/card.json")
    said = run("export faces --out people --force", 2)
    assert "[output-not-replaced]" in said
    assert all(Path(path).read_bytes() == b"precious" for path in paths)

"""`cdp forget`: nothing of a person stays; and `cdp regroup --models`: other models, the same names."""

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="models need the extra onnx")
pytest.importorskip("onnx")

from tests.marked_photos import RELATIVE, photograph
from tests.onnx_builders import embedder, marker_detector

from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.collection.corrections import append_corrections, named
from cdp.collection.regrouping import regroup


def call(words):
    return CliRunner().invoke(app, words.split())


def succeed(words):
    result = call(words)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.fixture
def album(tmp_path, monkeypatch):
    """Six people, each on three photos with another one; person 0 is called Anna."""
    monkeypatch.chdir(tmp_path)
    for shot, people in enumerate((one, (one + step) % 6) for step in (1, 2, 3) for one in range(6)):
        photograph(Path(f"photos/{people[0]}{people[1]}.png"), people, shot)
    marker_detector(tmp_path / "models/scrfd.onnx", RELATIVE)
    embedder(tmp_path / "models/arcface.onnx", size=112, dimensions=24, seed=0)
    succeed("label photos --models models --out album --threads 1 --quiet")
    collection = open_collection("album")
    anna = int(collection.identity[faces_of("0")[0]])
    append_corrections("album", [named("Anna", *np.flatnonzero(collection.identity == anna).tolist())])
    regroup(collection)
    return open_collection("album")


def table():
    with Path("album/labels.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def faces_of(person):
    """Rows that show a person, by the names of their photos and the order from left to right."""
    rows, before = [], ""
    for row, one in enumerate(table()):
        name = Path(one["photo"]).stem
        if name[1 if one["photo"] == before else 0] == person:
            rows.append(row)
        before = one["photo"]
    return rows


@pytest.mark.slow
def test_nothing_of_a_person_stays(album):
    rows = faces_of("0")
    crops = [table()[row]["path"] for row in rows]
    others = {path: one["identity"] for one in table() if (path := one["path"]) not in crops}
    vectors = [np.asarray(album.batches[0].read().base.source[row]) for row in rows]
    pictures = [(Path("album") / one).read_bytes() for one in crops]
    succeed("show album")
    assert "6 images removed. Collection: 30 images, 5 identities" in succeed("forget album Anna --yes")
    files = [one for one in Path("album").rglob("*") if one.is_file()]
    contents = [one.read_bytes() for one in files]
    assert not any(b"Anna" in content for content in contents)
    for vector in vectors:
        assert not any(vector.tobytes() in content for content in contents)
    assert not any(picture in contents for picture in pictures)
    # The others are as they were, under the same numbers.
    assert {one["identity"] for one in table()} == set(others.values())
    after = open_collection("album")
    assert after.n_images == len(others)
    assert len(after.constraints.cannot) == 12, "pairs of one photo without her"
    assert not [one for one in after.corrections if one.kind == "name"]
    # She does not come back with the same photos, and the album goes on.
    assert "No photo is new." in succeed("add album photos --threads 1")
    photograph(Path("photos/12x.png"), (1, 2), 77)
    assert "1 new photo, 2 faces: 1 joined person " in succeed("add album photos --threads 1")
    assert succeed("regroup album")


@pytest.mark.slow
def test_faces_of_photos_that_are_gone_can_be_removed(album):
    Path("photos/01.png").unlink()
    assert (
        "1 photo gone from the folder; 2 faces stay in the album. To remove: cdp forget album --gone"
        in succeed("add album photos --threads 1")
    )
    assert "2 images removed. Collection: 34 images, 6 identities" in succeed("forget album --gone --yes")
    assert "01.png" not in Path("album/faces/photos.csv").read_text()
    assert "gone" not in succeed("add album photos --threads 1")


@pytest.mark.slow
def test_who_is_not_there_or_not_named_is_refused(album):
    for words, code in (
        ("forget album Bert --yes", "person-unknown"),
        ("forget album --yes", "nobody-to-forget"),
        ("forget album 99 --yes", "person-unknown"),
    ):
        result = call(words)
        assert result.exit_code == 2, result.output
        assert f"[{code}]" in " ".join(result.output.split())
    before = sorted(Path("album").rglob("*"))
    assert CliRunner().invoke(app, ["forget", "album", "Anna"], input="n\n").exit_code == 1
    assert sorted(Path("album").rglob("*")) == before


@pytest.mark.slow
def test_another_model_keeps_names_numbers_and_corrections(album, tmp_path):
    before = {one["path"]: (one["identity"], one["name"]) for one in table()}
    embedder(tmp_path / "better/sface.onnx", size=112, dimensions=32, seed=5)
    said = succeed("regroup album --models better")
    assert "100.0 % of the identities kept their number." in said
    after = {one["path"]: (one["identity"], one["name"]) for one in table()}
    same = [path for path, one in before.items() if after[path] == one]
    assert len(same) >= 34
    assert {name for _, name in after.values()} == {"", "Anna"}
    assert open_collection("album").batches[0].read().base.dimensions == 32
    assert len(list(Path("album/faces").glob("*-embeddings"))) == 1
    # Later photos are embedded by the new model, and the old one is refused.
    marker_detector(tmp_path / "better/scrfd.onnx", RELATIVE)
    photograph(Path("photos/12x.png"), (1, 2), 77)
    assert "1 new photo, 2 faces:" in succeed("add album photos --models better --threads 1")
    result = call("add album photos --models models --threads 1")
    assert result.exit_code == 2
    assert "[photo-models-differ]" in " ".join(result.output.split())


@pytest.mark.slow
def test_folder_names_are_people_only_where_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for person in range(3):
        for shot in range(4):
            photograph(Path(f"photos/{['Anna', 'Bert', 'Carl'][person]}/{shot}.png"), (person,), shot)
    marker_detector(tmp_path / "models/scrfd.onnx", RELATIVE)
    embedder(tmp_path / "models/arcface.onnx", size=112, dimensions=24, seed=0)
    succeed("label photos --models models --out plain --threads 1 --quiet")
    assert not open_collection("plain").names
    succeed("label photos --models models --out known --identities folders --threads 1 --quiet")
    assert sorted(open_collection("known").names.values()) == ["Anna", "Bert", "Carl"]
    succeed("data align photos --detector models/scrfd.onnx --out faces --threads 1 --quiet")
    with Path("faces/faces.csv").open(newline="", encoding="utf-8") as stream:
        assert {one["identity"] for one in csv.DictReader(stream)} == {"-1"}


@pytest.mark.slow
def test_other_settings_of_faces_hold_for_new_photos_and_that_is_said(album):
    said = succeed("add album photos --min-score 0.3 --threads 1")
    assert "Note: --min-score 0.3 applies to new photos only; the others were read with 0.6." in said
    assert "No photo is new." in said
    assert "Note: --min-score" not in succeed("add album photos --min-score 0.6 --threads 1")

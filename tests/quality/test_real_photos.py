"""Real photos and public models, where they are at hand: from photos to people by the commands that people type."""

import csv
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="ONNX models need the extra onnx")

from cdp import measure_labels
from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.collection.corrections import append_corrections, named
from cdp.types import Labels

SHARED = Path(__file__).resolve().parents[3] / "shared"
DETECTOR = "face_detection_yunet_2023mar.onnx"
EMBEDDERS = ("mobilefacenet_foamliu.onnx", "faceplugin_fr_feature.onnx")


def call(words: str) -> str:
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def album(tmp_path, monkeypatch):
    """Photos of people with five photos or more, and as many others; a detector and two models, known by their hashes."""
    photos, models = SHARED / "data" / "lfw_photos", SHARED / "models"
    for needed in (photos, models / DETECTOR, *(models / name for name in EMBEDDERS)):
        if not needed.exists():
            pytest.skip(f"{needed} is not there")
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    for name in (DETECTOR, *EMBEDDERS):
        shutil.copy(models / name, "models")
    files = sorted(photos.glob("*.jpg"))
    counts = Counter(person(file.name) for file in files)
    often = [file for file in files if counts[person(file.name)] >= 5]
    once = [file for file in files if counts[person(file.name)] == 1][: len(often) // 2]
    for folder, chosen in (("photos", [*often[::2], *once[::2]]), ("later", [*often[1::2], *once[1::2]])):
        Path(folder).mkdir()
        for file in chosen:
            shutil.copy(file, folder)
    return tmp_path


def person(file: str) -> str:
    return Path(file).stem.rpartition("_")[0]


def quality(folder: Path) -> float:
    """Pairwise F of the photos with one face, by whom their names say is on them."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    faces = Counter(row["photo"] for row in rows)
    rows = [row for row in rows if faces[row["photo"]] == 1]
    people = np.unique([person(row["photo"]) for row in rows], return_inverse=True)[1]
    labels = Labels.from_array([int(row["identity"]) for row in rows])
    return measure_labels(labels, people).discards_kept.pairwise.f or 0.0


@pytest.mark.slow
def test_small_faces_on_a_large_group_photo_are_found():
    """Twelve faces of 60 to 110 pixels on twelve megapixels, which a reduction to 640 pixels would lose."""
    from cdp.faces.detectors import Detector

    photos, model = SHARED / "data" / "lfw_photos", SHARED / "models" / DETECTOR
    if not photos.exists() or not model.exists():
        pytest.skip(f"{photos} or {model} is not there")
    group = Image.new("RGB", (4000, 3000), (90, 110, 130))
    for number, file in enumerate(sorted(photos.glob("*.jpg"))[:12]):
        # The face of an LFW photo takes about 0.45 of its side.
        side = round((60 + 50 * number / 11) / 0.45)
        with Image.open(file) as photo:
            group.paste(photo.resize((side, side)), (150 + 950 * (number % 4), 200 + 950 * (number // 4)))
    detector = Detector(model)
    found = detector.detect(np.asarray(group), least=detector.kind.min_score)
    assert len(found) >= 12
    few = detector.detect(np.asarray(group), least=detector.kind.min_score, longest=640)
    assert len(few) < 10, "reduced to 640 pixels they are lost"


@pytest.mark.slow
def test_an_album_is_corrected_grown_moved_to_another_model_and_exported(album):
    """What a new user does, to its end: label, name, add photos, switch the model, export to photo programs."""
    first, second = Path("models"), Path("better")
    second.mkdir()
    shutil.copy(first / DETECTOR, second)
    shutil.move(first / "faceplugin_fr_feature.onnx", second)
    call("label photos --models models --out album --threads 1")
    assert quality(Path("album")) > 0.9
    people = open_collection("album")
    largest = int(np.bincount(people.identity[people.identity >= 0]).argmax())
    append_corrections("album", [named("Zed Q", *np.flatnonzero(people.identity == largest).tolist())])
    call("regroup album")
    shutil.move("album", "moved")
    said = call("add moved later --threads 1")
    assert "joined" in said
    assert quality(Path("moved")) > 0.9
    switched = call("regroup moved --models better")
    assert "of the identities kept their number" in switched
    assert list(open_collection("moved").names.values()) == ["Zed Q"]
    assert quality(Path("moved")) > 0.9
    call("export moved --format xmp --out sidecars")
    sidecars = sorted(Path("sidecars").rglob("*.xmp"))
    with (Path("moved") / "labels.csv").open(newline="", encoding="utf-8") as stream:
        photos = {Path(row["photo"]).name for row in csv.DictReader(stream) if row["name"] == "Zed Q"}
    assert {one.name.removesuffix(".xmp") for one in sidecars} == photos
    assert all("Zed Q" in one.read_text(encoding="utf-8") for one in sidecars)
    call(f"forget moved {largest} --yes")
    assert "Zed Q" not in (Path("moved") / "labels.csv").read_text(encoding="utf-8")


@pytest.mark.slow
def test_photos_become_people_and_later_ones_join_them(album):
    assert "taken as photos" in call("label photos --models models --out album --min-score 0.8 --threads 1")
    assert quality(Path("album")) > 0.75
    shutil.move("album", "moved")
    said = call("add moved later --threads 1")
    assert " joined person " in said
    assert quality(Path("moved")) > 0.75
    assert "No photo is new." in call("add moved later --threads 1")

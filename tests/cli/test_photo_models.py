"""Models of photos on the command line: downloaded where none are given, left out where unusable, used again as they were."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="models need the extra onnx")
pytest.importorskip("onnx")
pytest.importorskip("pooch")

from PIL import Image
from tests.marked_photos import RELATIVE, photograph
from tests.model_server import Server
from tests.onnx_builders import constant_detector, embedder, marker_detector

from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.nets import model_downloads
from cdp.nets.model_downloads import PublishedModel
from cdp.run.photo_models import models_of, open_photo_models
from cdp.storage.artifacts import read_card


def call(words):
    result = CliRunner().invoke(app, words.split())
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Six people, each on one photo with every one of three others; the published models, made small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CDP_MODELS", str(tmp_path / "cache"))
    for shot, people in enumerate((one, (one + step) % 6) for step in (1, 2, 3) for one in range(6)):
        photograph(Path(f"photos/{people[0]}{people[1]}.png"), people, shot)
    photograph(Path("later/05.png"), (0, 5), 99)
    marker_detector(tmp_path / "models/detector.onnx", RELATIVE)
    embedder(tmp_path / "models/sface.onnx", size=112, dimensions=24)
    return tmp_path


def published(file, license):
    data = Path(file).read_bytes()
    return PublishedModel(
        Path(file).stem,
        "model",
        f"zoo/{Path(file).name}",
        hashlib.sha256(data).hexdigest(),
        len(data),
        license,
    )


@pytest.fixture
def server(home, monkeypatch):
    """A server of what is in `models`."""
    opened = Server({f"zoo/{one.name}": one.read_bytes() for one in Path("models").iterdir()})
    monkeypatch.setattr(model_downloads, "ADDRESS", opened.address)
    monkeypatch.setattr(model_downloads, "DETECTOR", published("models/detector.onnx", "MIT"))
    monkeypatch.setattr(model_downloads, "EMBEDDER", published("models/sface.onnx", "Apache-2.0"))
    yield opened
    opened.stop()


@pytest.mark.slow
def test_photos_need_no_models_of_ones_own(server, home):
    shutil.rmtree("models")
    code, said = call("label photos --out album --threads 1")
    assert code == 0, said
    assert sorted(server.requests) == ["zoo/detector.onnx", "zoo/sface.onnx"]
    assert "its license is MIT" in said
    assert "its license is Apache-2.0" in said
    album = open_collection("album")
    assert album.n_images == 36
    assert str(home) not in album.state.models
    for words, n_images in (("add album later --threads 1", 38), ("data align photos --out faces", 38)):
        code, said = call(words)
        assert code == 0, said
        assert "license" not in said
        assert open_collection("album").n_images == n_images
    assert len(server.requests) == 2


def test_aligned_faces_need_no_detector(server):
    Path("crops").mkdir()
    for row in range(4):
        Image.new("RGB", (112, 112), (60 * row, 20, 255 - 60 * row)).save(f"crops/{row}.png")
    code, said = call("label crops --out album --threads 1")
    assert code == 0, said
    assert server.requests == ["zoo/sface.onnx"]


def test_without_a_network_files_addresses_and_folder_are_named(server, home):
    server.stop()
    code, said = call("label photos --out album")
    assert (code, "[models-not-downloaded]" in said) == (2, True)
    for expected in (
        f"{server.address}/zoo/sface.onnx",
        f"{server.address}/zoo/detector.onnx",
        home / "cache",
    ):
        assert str(expected) in said
    code, said = call("data align photos --out faces")
    assert (code, "[models-not-downloaded]" in said) == (2, True)
    assert not Path("album").exists()
    shutil.copytree("models", "cache", dirs_exist_ok=True)
    assert call("data align photos --out faces --quiet")[0] == 0


@pytest.mark.slow
def test_a_folder_of_models_that_is_gone_is_replaced_by_the_same_models(server):
    assert call("label photos --models models --out album --threads 1 --quiet")[0] == 0
    Path("models").rename("elsewhere")
    place = models_of(open_collection("album"))
    assert place.is_published
    assert replace(place, detector=Path("gone.onnx")).detector_found is None
    assert replace(place, detector=Path("gone.onnx"), detector_checksum="other").detector_found is not None
    code, said = call("add album later --threads 1")
    assert code == 0, said
    assert open_collection("album").n_images == 38
    assert len(server.requests) == 2


@pytest.mark.slow
def test_other_models_that_are_gone_are_not_replaced(server, home):
    embedder(home / "models/sface.onnx", size=112, dimensions=24, seed=5)
    assert call("label photos --models models --out album --threads 1 --quiet")[0] == 0
    shutil.rmtree("models")
    code, said = call("add album later --threads 1")
    assert (code, "[models-folder-missing]" in said) == (2, True)
    assert server.requests == []


def test_what_cannot_be_used_is_left_out_with_its_reason(home):
    Path("models/a_pointer.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    Path("models/b_page.onnx").write_bytes(b"<!DOCTYPE html>")
    Path("models/c_text.onnx").write_bytes(b"hello")
    opened = open_photo_models("models", needs_detector=True)
    assert [one.name for one in opened.embedders] == ["sface"]
    for note, file in zip(opened.notes, ("a_pointer.onnx", "b_page.onnx", "c_text.onnx"), strict=True):
        assert note.startswith(f"Left out: models/{file}: ")
    assert "Git LFS pointer" in opened.notes[0]
    code, said = call("label photos --models models --base a_pointer --out album")
    assert (code, "[onnx-file-other-format]" in said) == (2, True)
    Path("models/sface.onnx").unlink()
    code, said = call("label photos --models models --out album")
    assert (code, "[models-without-embedder]" in said) == (2, True)
    assert "Git LFS pointer" in said
    assert "web page" in said


def test_a_detector_without_landmarks_is_named(home):
    Path("models/detector.onnx").unlink()
    boxes_only(home / "models/boxes.onnx")
    code, said = call("label photos --models models --out album")
    assert (code, "[detector-missing]" in said) == (2, True)
    assert "no landmarks" in said
    constant_detector(home / "models/yunet.onnx", "yunet", [])
    opened = open_photo_models("models", needs_detector=True)
    assert opened.detector is not None
    assert "no landmarks" in opened.notes[0]


def boxes_only(file):
    """Scores and boxes, as the detector of 1 MB that many demos come with."""
    import numpy as np
    from onnx import helper
    from tests.onnx_builders import save, value

    widths = {"scores": 2, "boxes": 4}
    nodes = [helper.make_node("Identity", [f"c_{name}"], [name]) for name in widths]
    weights = {f"c_{name}": np.zeros((1, 4420, width), np.float32) for name, width in widths.items()}
    outputs = [value(name, [1, 4420, width]) for name, width in widths.items()]
    save(file, nodes, [value("x", [1, 3, 64, 64])], outputs, weights)


def test_a_model_with_a_wrong_card_is_not_left_out(home):
    Path("models/sface.toml").write_text("colour = 'RGB'")
    code, said = call("label photos --models models --out album")
    assert (code, "[onnx-card-key-unknown]" in said) == (2, True)


@pytest.mark.slow
def test_what_was_assumed_is_said_and_holds_for_later_photos(home):
    Path("models/sface.onnx").rename("models/mine.onnx")
    embedder(home / "models/other.onnx", size=112, dimensions=24, seed=1, scaled=True)
    code, said = call("label photos --models models --out album --threads 1")
    assert code == 0, said
    assert "mine is the base, the first by name of mine, other" in said
    assert "is assumed (tried on these faces)" in said
    first = read_card("album/faces/0001-embeddings", "Views").settings["inputs"]
    assert first["mine"]["known_from"]["mean"] == "trial"
    assert first["other"]["known_from"]["mean"] == "model"
    code, said = call("add album later --threads 1")
    assert code == 0, said
    # Two faces are too few to try anything on; these would be given to the model in the usual way.
    *_, newest = sorted(Path("album/faces").glob("*-embeddings"))
    assert newest.name != "0001-embeddings"
    assert read_card(newest, "Views").settings["inputs"] == first
    Path("models/mine.toml").write_text("mean = 100")
    photograph(Path("later/13x.png"), (1, 3), 98)
    code, said = call("add album later --threads 1")
    assert (code, "[photo-model-inputs-differ]" in said) == (2, True)
    Path("models/mine.toml").unlink()
    Path("models/mine.onnx").rename("models/renamed.onnx")
    code, said = call("add album later --threads 1")
    assert (code, "[photo-models-differ]" in said) == (2, True)
    Path("models/mine.onnx").write_bytes(b"<html>")
    code, said = call("add album later --threads 1")
    assert (code, "[onnx-file-other-format]" in said) == (2, True)


@pytest.mark.slow
def test_what_too_few_faces_left_open_stays_and_other_models_see_all_faces_alike(home):
    Path("models/sface.onnx").rename("models/mine.onnx")
    for shot, people in enumerate([(0, 1), (1, 2)]):
        photograph(Path(f"few/{shot}.png"), people, shot)
    code, said = call("label few --models models --out album --threads 1")
    assert code == 0, said
    assert "too few faces" in said
    code, said = call("add album photos --threads 1")
    assert code == 0, said
    assert "as for the first faces" in said
    first, second = inputs_of("album")
    assert {key: first[key] for key in ("color", "mean", "std")} == {
        key: second[key] for key in ("color", "mean", "std")
    }
    embedder(home / "other/mine.onnx", size=112, dimensions=24, seed=1, clipped=True)
    code, said = call("regroup album --models other")
    assert code == 0, said
    first, second = inputs_of("album")[-2:]
    assert first == second
    assert first["known_from"]["mean"] == "trial"


def inputs_of(album):
    """How the model was given the faces of each batch."""
    folders = [batch.source for batch in open_collection(album).batches]
    return [read_card(folder, "Views").settings["inputs"]["mine"] for folder in folders]

"""Whatever options, headers and places say is wrong is found out before the first expensive step."""

import shutil
from collections import namedtuple

import numpy as np
import pytest
from PIL import Image
from tests.onnx_builders import constant_detector, embedder
from tests.refusals import refuses
from tests.review_collection import make_collection
from typer.testing import CliRunner

from cdp import Views
from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.errors import StoreError
from cdp.storage import files
from cdp.storage.files import check_room, check_writable

POINTS = [(20, 20), (40, 20), (30, 30), (22, 42), (38, 42)]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def views(n_images, per_person):
    rng = np.random.default_rng(n_images)
    people = np.arange(n_images) // per_person
    faces = rng.normal(size=(n_images, 16))
    base, other = (
        (faces[people] + 0.2 * rng.normal(size=(n_images, 16))).astype(np.float32) for _ in range(2)
    )
    return Views(base, {"other": other}, people)


@pytest.mark.parametrize("words", [(), ("--preset", "paper"), ("--preset", "paper", "--mediator", "vote")])
def test_k_is_smaller_where_few_images_are_labeled(tmp_path, words):
    views(8, 2).save(tmp_path / "labeled")
    views(48, 4).save(tmp_path / "unlabeled")
    done = call(
        "label", tmp_path / "unlabeled", "--labeled", tmp_path / "labeled", "--out", tmp_path / "out", *words
    )
    assert done.exit_code == 0, done.output


def test_k_is_smaller_where_there_are_few_images_and_that_is_noted(tmp_path):
    views(8, 2).save(tmp_path / "few")
    assert call("label", tmp_path / "few", "--out", tmp_path / "out").exit_code == 0
    assert any("k = 7 instead of" in note for note in open_collection(tmp_path / "out").state.notes)


def test_a_full_disk_is_found_out_before_graphs_are_searched(tmp_path, monkeypatch):
    views(48, 4).save(tmp_path / "views")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage(10**12, 10**12 - 1000, 1000))
    monkeypatch.setattr("cdp.labeling.pipeline.label", lambda *_, **__: pytest.fail("labeled already"))
    for words in (
        ("label", tmp_path / "views", "--out", tmp_path / "out"),
        ("run", "--embeddings", tmp_path / "views", "--out", tmp_path / "out"),
        ("demo", "--out", tmp_path / "out"),
        ("data", "split", tmp_path / "views", "--out", tmp_path / "out"),
    ):
        done = call(*words)
        assert "[free-space-too-little]" in done.output
        assert done.exit_code == 1
    assert not (tmp_path / "out").exists()


def test_room_is_asked_for_and_places_that_are_no_disks_have_none(tmp_path):
    check_writable(tmp_path / "not" / "there" / "yet", 1000)
    check_room(tmp_path, 1, "the files")
    with refuses("free-space-too-little", StoreError, expected=2**70):
        check_writable(tmp_path / "x", 2**70)


def test_a_collection_is_not_copied_before_what_comes_to_it_was_looked_at(tmp_path, monkeypatch):
    made = make_collection(tmp_path / "faces")
    (tmp_path / "more.npy").write_bytes(b"x")
    monkeypatch.setattr(
        "cdp.collection.collection_folder.copy_collection", lambda *_: pytest.fail("copied already")
    )
    done = call("add", made.folder, tmp_path / "more.npy", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "npy-header-damaged" in done.output


def test_an_album_is_not_replaced_before_the_models_were_opened(tmp_path):
    made = make_collection(tmp_path / "album")
    (tmp_path / "models").mkdir()
    photos = tmp_path / "photos"
    photos.mkdir()
    shutil.copy(made.paths[0], photos / "a.png")
    done = call(
        "label", photos, "--models", tmp_path / "models", "--out", made.folder, "--force", "--input", "photos"
    )
    assert "models-without-embedder" in done.output
    assert open_collection(made.folder).n_images == made.n_images


def test_an_output_that_is_there_is_found_out_before_a_detector_is_opened(tmp_path):
    detector = constant_detector(tmp_path / "detector.onnx", "scrfd", [(0.9, (10, 8, 50, 56), POINTS)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    done = call("data", "align", tmp_path / "missing", "--detector", detector, "--out", tmp_path / "out")
    assert "output-exists" in done.output


def test_an_embedding_model_that_cannot_be_opened_is_found_out_before_images_are_read(tmp_path):
    embedder(tmp_path / "a.onnx")
    (tmp_path / "b.onnx").write_bytes(b"x")
    (tmp_path / "images" / "1").mkdir(parents=True)
    (tmp_path / "images" / "1" / "1.png").write_bytes(b"no image")
    models = ("--model", tmp_path / "a.onnx", "--model", tmp_path / "b.onnx")
    done = call("embed", tmp_path / "images", *models, "--out", tmp_path / "out")
    assert "onnx-file-unopenable" in done.output


def test_an_interrupted_add_to_a_copy_leaves_nothing_and_can_be_typed_again(tmp_path, monkeypatch):
    views(48, 4).save(tmp_path / "views")
    views(12, 4).save(tmp_path / "more")
    assert call("label", tmp_path / "views", "--out", tmp_path / "faces").exit_code == 0
    words = ("add", tmp_path / "faces", tmp_path / "more", "--out", tmp_path / "out")
    with monkeypatch.context() as inside:
        inside.setattr(
            "cdp.collection.extension.write_scored", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        assert call(*words).exit_code == 130
    assert not (tmp_path / "out").exists()
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert open_collection(tmp_path / "out").n_images == 60
    assert open_collection(tmp_path / "faces").n_images == 48
    for file in (tmp_path / "out").rglob("*.json"):
        assert ".partial-" not in file.read_text()


def test_training_finds_a_bad_image_and_a_full_disk_before_images_are_decoded(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for person in "ab":
        (tmp_path / "faces" / person).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "faces" / person / f"{number}.png")
    monkeypatch.setattr("cdp.nets.supervised.decode_pixels", lambda *_, **__: pytest.fail("decoded already"))
    words = (
        "train",
        tmp_path / "faces",
        "--network",
        "small_resnet",
        "--size",
        "32",
        "--out",
        tmp_path / "out",
    )
    with monkeypatch.context() as inside:
        usage = namedtuple("usage", "total used free")
        inside.setattr(files.shutil, "disk_usage", lambda _: usage(10**12, 10**12 - 10**7, 10**7))
        assert "the networks and their checkpoints need" in " ".join(call(*words).output.split())
    (tmp_path / "faces" / "b" / "2.png").write_bytes(b"no image")
    done = call(*words)
    assert done.exit_code == 2
    assert "b/2.png" in "".join(done.output.split())


def test_the_room_for_a_copy_is_asked_for_before_it_is_made(tmp_path, monkeypatch):
    views(48, 4).save(tmp_path / "views")
    assert call("label", tmp_path / "views", "--out", tmp_path / "faces").exit_code == 0
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage(10**12, 10**12 - 2**20, 2**20))
    monkeypatch.setattr(files, "LEAST_ROOM", 0)
    (tmp_path / "faces" / "large.bin").write_bytes(bytes(2**21))
    done = call("add", tmp_path / "faces", tmp_path / "views", "--out", tmp_path / "out")
    assert "[free-space-too-little]" in done.output


def test_a_review_needs_a_folder_that_can_be_written(tmp_path, monkeypatch):
    pytest.importorskip("uvicorn")
    made = make_collection(tmp_path / "faces")
    monkeypatch.setattr(files.os, "access", lambda path, mode: mode != files.os.W_OK)
    monkeypatch.setattr("cdp.web.review.session.Session", lambda *_: pytest.fail("opened already"))
    assert "output-unwritable" in call("review", made.folder, "--no-browser").output

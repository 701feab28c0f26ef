"""Models that are downloaded once: from a server on this computer, with all that can go wrong."""

import hashlib
import os
from pathlib import Path

import pytest

pytest.importorskip("pooch", reason="downloads need the extra onnx")

from tests.model_server import Server
from tests.refusals import refuses

from cdp.errors import MissingExtraError
from cdp.nets import model_downloads, torchvision_guard
from cdp.nets.model_downloads import DETECTOR, EMBEDDER, PublishedModel, fetch_models, models_folder

CONTENTS = {"one/a.onnx": b"first " * 40_000, "two/b.onnx": b"second"}
MODELS = tuple(
    PublishedModel(f"Model {path[-6]}", "job", path, hashlib.sha256(data).hexdigest(), len(data), license)
    for (path, data), license in zip(CONTENTS.items(), ("MIT", "Apache-2.0"), strict=True)
)


@pytest.fixture
def server():
    opened = Server(CONTENTS)
    yield opened
    opened.stop()


def test_models_are_downloaded_once_and_their_licenses_are_told(tmp_path, server):
    steps = []
    folder = tmp_path / "new" / "cache"
    fetched = fetch_models(
        MODELS, address=server.address, folder=folder, progress=lambda *step: steps.append(step)
    )
    assert [one.read_bytes() for one in fetched.files] == list(CONTENTS.values())
    assert len(fetched.notes) == 2
    assert "MIT" in fetched.notes[0]
    assert "Apache-2.0" in fetched.notes[1]
    assert steps[0] == ("download a.onnx", 65_536, 240_000)
    assert ("download a.onnx", 240_000, 240_000) in steps
    assert steps[-1] == ("download b.onnx", 6, 6)
    assert sorted(one.name for one in folder.iterdir()) == ["a.onnx", "b.onnx"]
    assert os.stat(folder / "a.onnx").st_mode & 0o777 == 0o644
    before = list(server.requests)
    again = fetch_models(MODELS, address=server.address, folder=folder)
    assert (again.files, again.notes) == (fetched.files, ())
    assert server.requests == before == ["one/a.onnx", "two/b.onnx"]


def test_files_put_there_by_hand_are_used(tmp_path):
    for one, data in zip(MODELS, CONTENTS.values(), strict=True):
        (tmp_path / one.file).write_bytes(data)
    fetched = fetch_models(MODELS, address="http://127.0.0.1:1/models", folder=tmp_path)
    assert fetched.notes == ()
    (tmp_path / "a.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with refuses("downloaded-model-differs", file=tmp_path / "a.onnx", expected=MODELS[0].sha256):
        fetch_models(MODELS, folder=tmp_path)
    assert (tmp_path / "a.onnx").is_file()


def test_another_file_than_the_published_one_is_not_kept(tmp_path, server):
    server.contents["two/b.onnx"] = b"sECOND"
    with refuses("download-differs", address=f"{server.address}/two/b.onnx", folder=tmp_path):
        fetch_models(MODELS, address=server.address, folder=tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["a.onnx"]


def test_a_download_that_breaks_off_leaves_nothing_and_is_gone_on_with(tmp_path, server):
    server.short["one/a.onnx"] = 100_000
    with refuses(
        "models-not-downloaded",
        files=("a.onnx", "b.onnx"),
        addresses=tuple(f"{server.address}/{one.path}" for one in MODELS),
        folder=tmp_path,
        reason="the connection broke off",
    ):
        fetch_models(MODELS, address=server.address, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.short.clear()
    assert all(one.is_file() for one in fetch_models(MODELS, address=server.address, folder=tmp_path).files)


def test_without_a_network_the_files_their_addresses_and_the_folder_are_named(tmp_path):
    server = Server(CONTENTS)
    server.stop()
    with refuses("models-not-downloaded", folder=tmp_path, reason="no connection") as caught:
        fetch_models(MODELS, address=server.address, folder=tmp_path)
    sentence = str(caught.value)
    assert all(f"{server.address}/{path}" in sentence for path in CONTENTS)
    assert str(tmp_path) in sentence


def test_a_server_without_the_file_is_named(tmp_path, server):
    del server.contents["one/a.onnx"]
    with refuses("models-not-downloaded", reason="the server says 404"):
        fetch_models(MODELS, address=server.address, folder=tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, server):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Exception, match="CDP_MODELS") as caught:
        fetch_models(MODELS, address=server.address, folder=tmp_path / "file" / "cache")
    assert caught.value.code == "models-folder-unwritable"


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CDP_MODELS", str(tmp_path))
    assert models_folder() == tmp_path
    monkeypatch.delenv("CDP_MODELS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models_folder().parts[-2:] == ("cdp", "models")


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    def absent(module):
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr(torchvision_guard, "import_module", absent)
    with refuses("module-missing", MissingExtraError, module="pooch", extra="onnx"):
        fetch_models(MODELS, folder=tmp_path)


def test_the_published_files_are_pinned():
    """The detector's file is at hand where models are given; the other one is known by its publisher's pointer."""
    assert "/opencv_zoo/47534e27c9851bb1128ccc0102f1145e27f23f98/" in model_downloads.ADDRESS
    shared = Path(__file__).resolve().parents[4] / "shared" / "models" / DETECTOR.file
    if not shared.exists():
        pytest.skip(f"{shared} is not there")
    assert hashlib.sha256(shared.read_bytes()).hexdigest() == DETECTOR.sha256
    assert shared.stat().st_size == DETECTOR.n_bytes
    assert EMBEDDER.n_bytes == 38_696_353

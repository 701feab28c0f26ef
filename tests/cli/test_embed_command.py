"""`cdp embed --model`: views from ONNX models, alone and beside trained networks."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="ONNX models need the extra onnx")
pytest.importorskip("onnx")

from tests.drawn_images import draw_patterns
from tests.onnx_builders import embedder

from cdp import Views
from cdp.cli.main import app


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw_patterns(tmp_path / "photos", n_identities=6, n_images=4)
    embedder(tmp_path / "models/arcface.onnx")
    embedder(tmp_path / "models/sface.onnx", seed=1)
    return tmp_path


def call(words):
    return CliRunner().invoke(app, words.split())


def test_models_make_views_and_what_cannot_be_read_is_said(home):
    (home / "photos/person000/0.png").write_bytes(b"broken")
    result = call("embed photos --model models/arcface.onnx --model models/sface.onnx --out views")
    assert result.exit_code == 0, result.output
    said = result.stderr.replace("\n", " ")
    assert "1 of 24 images cannot be read and have no row; views/unreadable.csv lists them" in said
    views = Views.load("views")
    assert (views.n_images, views.names) == (23, ("base", "sface"))
    card = json.loads((home / "views/card.json").read_text())
    assert card["settings"]["base"] == "arcface"
    assert card["made_from"]["network/sface"].startswith("sha256 ")
    again = call("embed photos --model models/arcface.onnx --out views")
    assert again.exit_code == 2
    assert "[output-exists]" in again.stderr
    assert call("embed photos --model models/arcface.onnx --out views --force --quiet").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("", "embedding-models-not-given"),
        ("--base small", "networks-not-given"),
        (
            "--model models/absent.onnx",
            "onnx-file-missing",
        ),
    ],
)
def test_what_is_missing_is_named(home, words, code):
    result = call(f"embed photos --out views {words}")
    assert result.exit_code == 2
    assert f"[{code}]" in result.stderr


@pytest.mark.slow
def test_models_and_trained_networks_are_one_committee(home):
    pytest.importorskip("torch", reason="trained networks need the extra nets")
    trained = call(
        "train photos --network small_vgg --network small_resnet --size 16 --epochs 1 --out nets --quiet"
    )
    assert trained.exit_code == 0, trained.output
    for words, base, names in (
        ("--model models/arcface.onnx", "arcface", ("base", "small_resnet", "small_vgg")),
        ("--base small_vgg --model models/sface.onnx", "small_vgg", ("base", "sface", "small_resnet")),
    ):
        result = call(f"embed photos --networks nets {words} --force --out views --quiet")
        assert result.exit_code == 0, result.output
        assert Views.load("views").names == names
        assert json.loads((home / "views/card.json").read_text())["settings"]["base"] == base

"""`cdp data align`, then `cdp embed`: from photos to views."""

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="detectors need the extra onnx")
pytest.importorskip("onnx")

from tests.onnx_builders import embedder, marker_detector

from cdp import Views
from cdp.cli.main import app

RELATIVE = np.array([[0.35, 0.45], [0.65, 0.45], [0.5, 0.6], [0.38, 0.75], [0.62, 0.75]])


def call(words):
    return CliRunner().invoke(app, words.split())


def test_photos_become_faces_and_faces_views(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    generator = np.random.default_rng(0)
    for name, places in {"a": [(0, 0), (64, 64)], "b": [(32, 40)], "c": []}.items():
        photo = np.zeros((128, 128, 3), np.uint8)
        for x, y in places:
            photo[y : y + 48, x : x + 48] = generator.integers(0, 200, (48, 48, 3))
            photo[y : y + 8, x : x + 8] = (0, 255, 48)
        Image.fromarray(photo).save(f"photos/{name}.png")
    marker_detector(tmp_path / "models/scrfd.onnx", RELATIVE)
    embedder(tmp_path / "models/arcface.onnx", size=112)
    result = call("data align photos --detector models/scrfd.onnx --out faces")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.replace("│", " ").split())
    assert "faces taken 3" in said
    assert "photos without a face 1" in said
    assert "1 pairs of faces are on one photo, so they are two people (faces/different.csv)." in said
    result = call("embed faces --model models/arcface.onnx --out views --quiet")
    assert result.exit_code == 0, result.output
    assert Views.load("views").n_images == 3

"""Models that behave as none should: one sentence that names the model, and an end when somebody asks for it."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from tests.hostile_models import detectors, embedders, endless, slow_node
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.errors import CdpError
from cdp.faces.align_photos import NoFacesError, align_faces
from cdp.nets.embed_images import embed_images
from cdp.nets.onnx_models import open_models
from cdp.types import Manifest

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for row in range(3):
        pixels = np.random.default_rng(row).integers(0, 255, (120, 120, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    return Manifest(tuple(f"{row}.png" for row in range(3)), np.full(3, -1), root=str(folder))


def named(build, name):
    return pytest.param(build, id=name)


def refusal(work):
    """How work was refused; None if it was done."""
    try:
        work()
    except CdpError as error:
        return error
    return None


@pytest.mark.parametrize("build", [named(build, name) for name, build in embedders()])
def test_an_odd_embedding_model_is_refused_or_embeds(tmp_path, photos, build):
    file = build(tmp_path / "odd.onnx")
    error = refusal(lambda: embed_images(photos, open_models([file]), tmp_path / "views"))
    assert error is None or ("odd" in str(error) and error.code)
    assert (tmp_path / "views").exists() == (error is None)


@pytest.mark.parametrize("build", [named(build, name) for name, build in detectors()])
def test_an_odd_detector_is_refused_or_finds_faces(tmp_path, photos, build):
    file = build(tmp_path / "odd.onnx")
    error = refusal(lambda: align_faces(photos, file, tmp_path / "faces"))
    assert error is None or isinstance(error, NoFacesError) or ("odd.onnx" in str(error) and error.code)


def test_a_model_that_embeds_real_images_otherwise_says_what_it_returned(tmp_path, photos):
    builds = dict(embedders())
    for name, found in (("longer for real images", "[3, 9]"), ("fewer rows for real images", "[2, 768]")):
        model = open_models([builds[name](tmp_path / "odd.onnx")])
        with pytest.raises(CdpError) as error:
            embed_images(photos, model, tmp_path / "views")
        assert error.value.code == "onnx-output-changes"
        assert found in str(error.value)


def test_a_folder_of_odd_models_is_refused_in_one_sentence(tmp_path, photos):
    (tmp_path / "models").mkdir()
    for number, (_, build) in enumerate([*embedders()][:9] + [*detectors()][:9]):
        build(tmp_path / "models" / f"{number}.onnx")
    words = ["label", photos.root, "--models", str(tmp_path / "models"), "--out", str(tmp_path / "album")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2, done.output
    assert "models-without-embedder" in done.output


def interrupt(words, number=signal.SIGINT):
    """Start a command, interrupt it while it computes; exit code and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from cdp.cli.main import run; run()", *words],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    before = 0.0
    while before < 5:  # seconds of the processor: by then it computes
        time.sleep(0.2)
        with open(f"/proc/{process.pid}/stat") as stat:
            before = int(stat.read().split()[13]) / os.sysconf("SC_CLK_TCK")
    process.send_signal(number)
    try:
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize("always", [True, False])
def test_a_model_that_computes_for_hours_can_be_interrupted(tmp_path, photos, always):
    model = endless(tmp_path / "endless.onnx", always=always)
    words = ["embed", photos.root, "--model", str(model), "--out", str(tmp_path / "views"), "--quiet"]
    code, said = interrupt(words)
    assert code == 130, said
    assert said.startswith("Interrupted; ")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["open", "all", "real"])
def test_a_node_that_computes_for_minutes_is_given_up(tmp_path, photos, when):
    model = slow_node(tmp_path / "slow.onnx", when)
    words = ["embed", photos.root, "--model", str(model), "--out", str(tmp_path / "views"), "--quiet"]
    code, said = interrupt(words, signal.SIGTERM)
    assert code == 143, said
    assert said.startswith("Terminated; ")
    begun = [".views.embedding"] if when == "real" else []  # where the same command continues
    assert sorted(one.name for one in tmp_path.iterdir()) == [*begun, "slow.onnx"]

"""`cdp-lab faces` as typed."""

from PIL import Image
from typer.testing import CliRunner

from cdp.data.manifests import read_manifest
from cdp_lab.cli.lab_main import app


def cdp(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_faces_writes_a_set_its_truth_and_a_sheet(tmp_path):
    few = ("--identities", 6, "--images", 4, "--size", 24, "--seed", 3)
    result = cdp("faces", "--out", tmp_path / "set.zip", *few, "--sheet", tmp_path / "sheet.png")
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "set.zip")
    assert manifest.n_identities == 6
    assert f"{manifest.n_images} pictures of 6 people in {tmp_path / 'set.zip'}" in result.output
    assert len((tmp_path / "set.truth.csv").read_text().splitlines()) == manifest.n_images + 1
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (92 + 14 * 27, 22 + 6 * 27)
    again = cdp("faces", "--out", tmp_path / "again.zip", *few, "--quiet")
    assert (again.exit_code, again.output) == (0, "")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "set.zip").read_bytes()


def test_faces_refuses_in_one_sentence(tmp_path):
    result = cdp("faces", "--out", tmp_path / "set.zip", "--junk", 2)
    assert result.exit_code == 2
    assert (
        result.output == "Error: --junk = 2: a share from 0 to 1. Did you mean 0.02? [setting-out-of-range]\n"
    )
    assert not list(tmp_path.iterdir())

"""`cdp data split` and `cdp data check` as typed."""

import json

import pytest
from typer.testing import CliRunner

from cdp.cli.data_commands import parse_share
from cdp.cli.main import app
from cdp.data.manifests import read_manifest
from cdp.errors import InputError
from image_layouts import picture, write_folders


def cdp(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def pictures(tmp_path):
    return write_folders(tmp_path / "set", {f"p{n:02d}": ["1.png", "2.png"] for n in range(24)})


def test_split_writes_parts_that_can_be_read(pictures, tmp_path):
    result = cdp(
        "data",
        "split",
        pictures,
        "--out",
        tmp_path / "parts",
        "--labeled",
        "1/4",
        "--unlabeled-parts",
        2,
        "--validation",
        "25%",
    )
    assert result.exit_code == 0, result.output
    names = {"labeled", "unlabeled1", "unlabeled2", "validation"}
    files = {file.name for file in (tmp_path / "parts").iterdir()}
    assert files == {"card.json", *(f"{name}.csv" for name in names)}
    parts = {name: read_manifest(tmp_path / "parts" / f"{name}.csv") for name in names}
    assert sum(map(len, parts.values())) == 48
    assert parts["validation"].n_identities == 6
    assert "unlabeled2" in result.output
    shown = cdp("show", tmp_path / "parts")
    assert "Split: " in shown.output


def test_split_of_rotations_as_parquet(pictures, tmp_path):
    out = tmp_path / "parts"
    result = cdp("data", "split", pictures, "--out", out, "--rotations", "--table", "parquet", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    labeled = read_manifest(out / "labeled.parquet")
    assert labeled.turns is not None
    assert labeled.n_identities in (8, 12)


def test_split_never_overwrites_unasked(pictures, tmp_path):
    out = tmp_path / "parts"
    assert cdp("data", "split", pictures, "--out", out, "--quiet").exit_code == 0
    result = cdp("data", "split", pictures, "--out", out)
    assert result.exit_code == 2
    assert "[output-exists]" in result.output
    assert cdp("data", "split", pictures, "--out", out, "--force", "--quiet").exit_code == 0


def test_check_of_good_pictures(pictures):
    result = cdp("data", "check", pictures, "--json", "--quiet")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "images": 48,
        "identities": 24,
        "identities_with_one_image": 0,
        "images_without_identity": 0,
        "unreadable": [],
    }
    assert cdp("data", "check", pictures).exit_code == 0


def test_check_lists_what_cannot_be_read(pictures, tmp_path):
    (pictures / "p03" / "2.png").write_bytes(picture(1)[:-30])
    result = cdp("data", "check", pictures, "--list", tmp_path / "unreadable.csv", "--threads", 1)
    assert result.exit_code == 2
    assert "row 7 (p03/2.png): the image cannot be decoded" in result.stdout
    assert "1 of 48 images cannot be read; leave them out with cdp data split --skip" in result.stderr
    result = cdp("data", "check", pictures, "--list", tmp_path / "unreadable.csv", "--threads", 1)
    assert "[output-exists]" in result.stderr
    result = cdp("data", "check", pictures, "--json", "--quiet", "--threads", 1)
    assert result.exit_code == 2
    assert [one["row"] for one in json.loads(result.stdout)["unreadable"]] == [7]
    out = tmp_path / "parts"
    skipped = cdp("data", "split", pictures, "--out", out, "--skip", tmp_path / "unreadable.csv", "--quiet")
    assert skipped.exit_code == 0
    assert sum(len(read_manifest(file)) for file in out.glob("*.csv")) == 47


def test_split_can_leave_out_the_unreadable_itself(pictures, tmp_path):
    (pictures / "p03" / "2.png").write_bytes(b"")
    out = tmp_path / "parts"
    result = cdp("data", "split", pictures, "--out", out, "--skip-unreadable", "--threads", 1)
    assert result.exit_code == 0
    assert "1 unreadable images were left out" in result.stdout
    assert "../set/p03/2.png" in (out / "unreadable.csv").read_text()
    tables = [file for file in out.glob("*.csv") if file.name != "unreadable.csv"]
    assert sum(len(read_manifest(file)) for file in tables) == 47


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--labeled", "lots"], "share-not-a-number"),
        (["--labeled", "1/0"], "share-not-a-number"),
        (["--table", "xml"], "split-table-kind-unknown"),
        (["--unlabeled-parts", "99"], "split-part-empty"),
        (["--skip", "missing.csv"], "table-missing"),
    ],
)
def test_wrong_wishes_leave_no_folder(pictures, tmp_path, words, code):
    result = cdp("data", "split", pictures, "--out", tmp_path / "parts", *words)
    assert result.exit_code == 2
    assert f"[{code}]" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["set"]


def test_shares():
    assert parse_share("--labeled", "25%") == 0.25
    assert parse_share("--labeled", "1/11") == 1 / 11
    with pytest.raises(InputError, match="--labeled x"):
        parse_share("--labeled", "x")

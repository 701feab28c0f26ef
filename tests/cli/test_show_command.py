"""`cdp show` as typed: what a collection is, its report elsewhere, and what other folders say."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.errors import StoreError
from cdp.types import Views


def cdp(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def faces(small_views, tmp_path_factory):
    """A small collection; no test may change it."""
    home = tmp_path_factory.mktemp("shown")
    others = small_views.take(slice(0, 80))
    Views(others.base, others.committee, None, others.paths).save(home / "views")
    made = cdp("label", home / "views", "--mediator", "vote", "--k", 5, "--out", home / "faces", "--quiet")
    assert made.exit_code == 0, made.output
    return home / "faces"


def test_the_report_is_written_elsewhere_and_never_over_something_unasked(faces, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    result = cdp("show", faces, "--report", page)
    assert result.exit_code == 2
    assert "page.html already exists; choose another name or replace it with --force. [output-exists]" in (
        " ".join(result.output.split())
    )
    assert page.read_text() == "mine"
    assert cdp("show", faces, "--report", page, "--force").exit_code == 0
    assert page.read_bytes() == (faces / "report.html").read_bytes()
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_is_missing_is_written_anew(faces, tmp_path):
    shutil.copytree(faces, tmp_path / "faces")
    for name in ("report.html", "metrics.json", "labels.csv"):
        (tmp_path / "faces" / name).unlink()
    result = cdp("show", tmp_path / "faces", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads((faces / "metrics.json").read_text())
    assert (tmp_path / "faces" / "labels.csv").read_bytes() == (faces / "labels.csv").read_bytes()
    assert (tmp_path / "faces" / "report.html").is_file()


def test_what_has_no_report_is_said(faces, tmp_path):
    result = cdp("show", faces.parent / "views", "--report", tmp_path / "page.html")
    assert (result.exit_code, "[report-of-no-collection]" in result.output) == (2, True)
    result = cdp("show", tmp_path)
    assert (result.exit_code, "[card-missing]" in result.output) == (2, True)
    (tmp_path / "run" / "stages").mkdir(parents=True)
    (tmp_path / "run" / "recipe.toml").write_text("")
    result = cdp("show", tmp_path / "run")
    assert (result.exit_code, "[run-not-finished]" in result.output) == (2, True)


def test_a_run_is_shown_as_a_collection_whose_page_has_its_figures(made_run, tmp_path):
    result = cdp("show", made_run[0], "--report", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert "identities found" in result.output


@pytest.mark.filterwarnings("default")
def test_a_collection_that_cannot_be_written_is_shown_as_it_is(faces, tmp_path, monkeypatch):
    copy = shutil.copytree(faces, tmp_path / "faces")
    (copy / "labels.csv").unlink()

    def refuse(file, *_):
        raise StoreError(f"{file}: cannot be written (Read-only file system).", code="output-unwritable")

    monkeypatch.setattr("cdp.collection.outputs.refresh_outputs", refuse)
    shown = cdp("show", copy)
    assert shown.exit_code == 0, shown.output
    assert "Its tables and its report are not up to date." in " ".join(shown.output.split())
    assert "identities found" in shown.output
    assert cdp("show", copy, "--report", tmp_path / "page.html").exit_code == 1

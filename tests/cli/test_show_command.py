"""`cdp report` as typed."""

import shutil

from typer.testing import CliRunner

from cdp.cli.main import app


def cdp(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_report_writes_the_page_and_says_where(made_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(made_run[0], folder)
    result = cdp("report", folder)
    assert result.exit_code == 0, result.output
    assert f"{folder / 'report.html'}: 0." in result.output
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (cdp("report", folder, "--quiet").exit_code, cdp("report", folder, "--quiet").output) == (0, "")


def test_report_never_overwrites_unasked(made_run, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    result = cdp("report", made_run[0], "--out", page)
    assert result.exit_code == 2
    assert "page.html is there already; choose another name or replace it with --force." in result.output
    assert page.read_text() == "mine"
    assert cdp("report", made_run[0], "--out", page, "--force").exit_code == 0
    assert page.stat().st_size > 10_000


def test_report_of_something_else(tmp_path):
    result = cdp("report", tmp_path)
    assert result.exit_code == 2
    assert "no run.json there; give the folder that `cdp run --out` wrote." in result.output

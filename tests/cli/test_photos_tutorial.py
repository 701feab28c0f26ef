"""docs/photos-to-people.md, typed as it is printed, but for installing, the browser and the user's own photos."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="models need the extra onnx")
pytest.importorskip("onnx")

from cdp.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "photos-to-people.md"


@pytest.mark.slow
def test_the_page_runs_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.split() for block in blocks for line in block.splitlines()]
    said = []
    for words in lines:
        if words[:2] == ["python", "-m"]:
            monkeypatch.setattr(sys, "argv", words[2:])
            runpy.run_module(words[2], run_name="__main__")
        elif words[0] == "cd":
            monkeypatch.chdir(words[1])
        elif words[0] == "cdp" and words[1] != "review":
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == 0, result.output
            said.append(" ".join(result.stdout.split()))
    assert "60 photos, 120 faces, 12 people; 0 faces seen once." in said[0]
    assert "Left out: 1 without a face." in said[0]
    assert "No photo is new." in said[1]
    assert Path("album/report.html").is_file()
    assert len([one for one in Path("sorted").iterdir() if one.is_dir()]) == 12

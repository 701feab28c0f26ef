"""The notebooks of docs/notebooks run from the first cell to the last, without a kernel."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    notebook = json.loads(file.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "__main__"}
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4
    for number, cell in enumerate(cells, start=1):
        exec(compile(cell, f"{file.name}, cell {number}", "exec"), names)


def test_there_are_two_and_they_hold_no_outputs():
    assert [file.stem for file in NOTEBOOKS] == ["embeddings_to_identities", "photos_to_people"]
    for file in NOTEBOOKS:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        assert not any(cell.get("outputs") for cell in cells)

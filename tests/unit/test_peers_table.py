"""The table of other k-NN libraries in docs/results/search.md is made of the figures that are kept."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from benchmarks import peers

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "make_peers_table.py"))


def test_the_page_shows_the_figures_that_are_kept():
    page = (ROOT / "docs" / "results" / "search.md").read_text()
    table = SCRIPT["make_table"](json.loads(SCRIPT["MEASURED"].read_text())["peers"])
    assert table in page
    assert SCRIPT["between_marks"](page, table) == page, "run: python docs/make_peers_table.py"


def test_a_library_that_is_not_installed_is_left_out_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(peers, "installed_version", lambda package: None)
    vectors = peers.structured(2000)
    assert peers.measure_rows(vectors) == []
    assert "PyNNDescent is not installed, so this row is left out: pip install" in capsys.readouterr().out


@pytest.mark.parametrize("n_wrong", [0, 4])
def test_recall_counts_true_neighbors_and_never_the_image_itself(n_wrong):
    truth = 100 + np.arange(2 * peers.K).reshape(2, peers.K)
    queries = np.array([3, 8])
    found = np.concatenate([queries[:, None], truth], axis=1)
    found[:, 1 : 1 + n_wrong] = -1
    assert peers.measure_recall(found, queries, truth) == pytest.approx(1 - n_wrong / peers.K)

"""The results in docs/results: every study is there, and page and plots say what the JSON says."""

import json
import re
import runpy
from pathlib import Path

import pytest

from cdp.lab.study.catalog import SENTENCES

DOCS = Path(__file__).parents[4] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "make_results_page.py"))
KEPT = {name: json.loads((DOCS / "results" / name / "results.json").read_text()) for name in SCRIPT["ORDER"]}


def test_every_study_has_been_run():
    assert {results["study"] for results in KEPT.values()} == set(SENTENCES)


def test_page_and_plots_are_made_from_the_results():
    for file, text in SCRIPT["make_files"]().items():
        assert file.read_text() == text, f"{file.name}: run python docs/make_results_page.py"


@pytest.mark.parametrize("name", KEPT)
def test_results_say_how_they_were_made_and_name_nobodys_folders(name):
    results = KEPT[name]
    assert re.fullmatch(r"[0-9a-f]{12}", results["commit"]), "of committed code"
    assert results["cores"] > 0
    assert results["seconds"] > 0
    assert results["command"].startswith("cdp study ")
    assert not re.search(r'"(/|[A-Z]:\\)', json.dumps(results))
    assert (DOCS / "results" / name / "remarks.md").is_file(), "agreement with the paper is said in words"

"""The results in docs/results: every study is there, pages and plots say what the JSON says, and links lead somewhere."""

import json
import re
import runpy
from pathlib import Path

import pytest

from cdp_lab.study.catalog import SENTENCES

ROOT = Path(__file__).parents[4]
RESULTS = ROOT / "docs" / "results"
SCRIPT = runpy.run_path(str(ROOT / "docs" / "make_results_page.py"))
KEPT = {name: json.loads((RESULTS / name / "results.json").read_text()) for name in SCRIPT["FOLDERS"]}
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def test_every_study_has_been_run_and_every_result_is_on_the_page_of_its_study():
    assert set(SCRIPT["STUDIES"]) == set(SENTENCES)
    assert sorted(KEPT) == sorted(file.parent.name for file in RESULTS.glob("*/results.json"))
    for study, section in SCRIPT["STUDIES"].items():
        assert {KEPT[name]["study"] for name in section["folders"]} == {study}


def test_pages_and_plots_are_made_from_the_results():
    made = SCRIPT["make_files"]()
    for file, text in made.items():
        assert file.read_text() == text, f"{file.name}: run python docs/make_results_page.py"
    assert {file for file in made if file.suffix == ".svg"} == set(RESULTS.glob("*/*.svg"))


def test_the_front_page_fits_a_screen():
    assert len((RESULTS / "README.md").read_text().split()) <= 600


def test_links_of_the_pages_and_to_them_lead_somewhere():
    pages = [*RESULTS.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    for page in pages:
        for target in LINK.findall(page.read_text()):
            if page.parent == RESULTS or "results/" in target:
                assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_figures_are_quoted_from_the_results():
    quote = SCRIPT["quote_figures"]
    assert quote("F {k: 20: f}.", KEPT) == "F 0.552 ± 0.022."
    assert quote("{runtime: exact: graphs_seconds}", KEPT) == "1.866 ± 0.034", "fitted exponents too"
    with pytest.raises(SystemExit) as caught:
        quote("{k: 50: f}", KEPT)
    assert str(caught.value) == "{k: 50: f}: k/results.json has no such row."


@pytest.mark.parametrize("name", KEPT)
def test_results_say_how_they_were_made_and_name_nobodys_folders(name):
    results = KEPT[name]
    assert re.fullmatch(r"[0-9a-f]{12}", results["commit"]), "of committed code"
    assert results["cores"] > 0
    assert results["seconds"] > 0
    assert results["command"].startswith(("cdp study ", "cdp-lab study "))
    assert not re.search(r'"(/|[A-Z]:\\)', json.dumps(results))
    assert (RESULTS / name / "remarks.md").is_file(), "agreement with the paper is said in words"

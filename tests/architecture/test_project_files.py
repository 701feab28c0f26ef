"""Versions agree wherever they are written, and every page of the documentation is in the navigation."""

import re
import tomllib
from pathlib import Path

import cdp

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_there_is_one_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert set(re.findall(r"^ *version: (.*)$", citation, re.MULTILINE)) == {PROJECT["version"]}
    assert cdp.__version__ == PROJECT["version"]
    assert f"\n## {PROJECT['version']} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_classifiers_are_the_versions_that_are_checked():
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    checked = re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", workflow)[1])
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]
    assert named == checked


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = set(re.findall(r": ([\w/.-]+\.md)$", navigation, re.MULTILINE)) - {"index.md"}
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/results/*.md")]
    there = {str(page.relative_to(ROOT / "docs")) for page in pages} - {"results/remarks.md"}
    of_project = {page.name for page in ROOT.glob("*.md")} - {"README.md"}
    assert listed == there | of_project

import re
import tomllib
from pathlib import Path

import pytest

from cdp.errors import DISTRIBUTION, install_command, name_rows

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_distribution_has_the_name_that_messages_use():
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["scripts"] == {"cdp": "cdp.cli.main:run"}


def test_install_command_works_in_a_checkout():
    assert install_command("nets") == (
        "pip install -c constraints.txt '.[nets]' in the source folder of consensus-driven-propagation"
    )
    assert install_command() == (
        "pip install -c constraints.txt . in the source folder of consensus-driven-propagation"
    )
    assert (ROOT / "constraints.txt").is_file()


def test_messages_take_the_install_command_from_one_place_and_name_extras_that_exist():
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if file.name != "errors.py":
            assert "pip install" not in text, f"{file}: use cdp.errors.install_command"
        for extra in re.findall(r"install_command\('(\w*)'\)", text):
            assert extra in PROJECT["optional-dependencies"], file


@pytest.mark.parametrize(
    "file", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda file: file.name
)
def test_docs_install_from_the_checkout(file):
    for line in file.read_text(encoding="utf-8").splitlines():
        for command in re.findall(r"pip install.*", line):
            assert re.match(r"pip install -c constraints\.txt ('\.\[[\w,]+\]'|\.)(?=[\s`]|$)", command), line


@pytest.mark.parametrize(
    ("rows", "words"),
    [([3], "row 3"), ([3, 17], "rows 3, 17"), (range(8), "rows 0, 1, 2, 3, 4 and 3 more")],
)
def test_rows_are_listed_briefly(rows, words):
    assert name_rows(rows) == words


def test_docs_name_tests_that_exist():
    for page in sorted((ROOT / "docs").glob("*.md")):
        for name in re.findall(r"tests/[\w/]+\.py", page.read_text(encoding="utf-8")):
            assert (ROOT / name).is_file(), f"{page.name} names {name}"

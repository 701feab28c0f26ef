import copy
import pickle
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import check_refusal, refuses

from cdp.errors import (
    DISTRIBUTION,
    BusyError,
    CdpError,
    InputError,
    MissingExtraError,
    NotFittedError,
    OutputExistsError,
    StoreError,
    install_command,
    name_rows,
)
from cdp.faces.align_photos import NoFacesError
from cdp.faces.face import Face
from cdp.storage.files import disk_errors

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_distribution_has_the_name_that_messages_use():
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["scripts"] == {"cdp": "cdp.cli.main:run", "cdp-lab": "cdp_lab.cli.lab_main:run"}


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


KINDS = (CdpError, InputError, OutputExistsError, MissingExtraError, StoreError, NotFittedError, BusyError)
COPIES = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def no_faces():
    return NoFacesError([Face(0, reason="no face")], 3)


def full_disk():
    with pytest.raises(StoreError) as caught, disk_errors("out"):
        raise OSError(28, "No space left on device")
    return caught.value


class TestCodes:
    def test_an_error_has_a_code_and_fields_that_nobody_changes(self):
        error = InputError(
            "row 3 is odd.", code="row-odd", row=np.int64(3), rows=(np.int32(3), 4), file=Path("a")
        )
        assert (str(error), error.code, error.args) == ("row 3 is odd.", "row-odd", ("row 3 is odd.",))
        assert dict(error.fields) == {"row": 3, "rows": (3, 4), "file": Path("a")}
        assert type(error.fields["row"]) is int
        with pytest.raises(TypeError):
            error.fields["row"] = 4

    def test_an_error_without_a_code(self):
        assert (CdpError("no.").code, dict(CdpError("no.").fields)) == ("", {})

    @pytest.mark.parametrize("how", COPIES)
    @pytest.mark.parametrize("kind", KINDS)
    def test_copies_are_the_same(self, kind, how):
        error = kind("a\nb", code="a-b", file="x", name="y")
        error.add_note("more")
        again = COPIES[how](error)
        assert type(again) is kind
        assert (str(again), again.args, again.exit_code) == ("a\\nb", ("a\nb",), kind.exit_code)
        assert (again.code, dict(again.fields), again.__notes__) == (
            "a-b",
            {"file": "x", "name": "y"},
            ["more"],
        )

    @pytest.mark.parametrize("how", COPIES)
    @pytest.mark.parametrize("make", [no_faces, full_disk])
    def test_copies_of_errors_with_constructors_of_their_own(self, make, how):
        error = make()
        again = COPIES[how](error)
        assert (type(again), str(again), again.code) == (type(error), str(error), error.code)
        assert again.fields == error.fields
        assert set(vars(again)) == set(vars(error))

    def test_an_error_that_is_said_again_keeps_what_it_knew(self):
        inner = InputError("row 3 is odd.", code="row-odd", row=3)
        outer = InputError(f"a.csv: {inner}", **inner.details(file="a.csv", row=99))
        check_refusal(outer, "row-odd", row=3, file="a.csv")

    def test_what_refuses_refuses(self):
        def fail():
            raise InputError("row 3 is odd.", code="row-odd", row=3, file=Path("a"))

        with refuses("row-odd", row=3, file="a") as caught:
            fail()
        assert caught.value.code == "row-odd"
        for code, fields in (("row-even", {}), ("row-odd", {"row": 4}), ("row-odd", {"key": 3})):
            with pytest.raises(AssertionError), refuses(code, **fields):
                fail()

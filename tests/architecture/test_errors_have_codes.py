"""Every error has a code: programs and tests tell errors by it, and the wording is free to become better."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import cdp

SOURCE = Path(cdp.__file__).parents[1]

TREES = {
    str(file.relative_to(SOURCE)): ast.parse(file.read_text(encoding="utf-8"))
    for package in ("cdp", "cdp_lab")
    for file in sorted((SOURCE / package).rglob("*.py"))
}
CHECKED = list(TREES)


def error_classes() -> dict[str, set[str]]:
    """CdpError and its children by name, and what each is derived from."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"CdpError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return {name: bases[name] for name in found}


ERRORS = error_classes()


def made_in(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Where errors are made, raised at once or by whoever asked for them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            yield node.func.id, node


@cache
def made_by_itself() -> frozenset[str]:
    """Classes whose own constructor knows the code, such as that of faces that were not found."""
    return frozenset(
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in ERRORS and any(codes_in(node))
    )


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Codes that are written out: `code="a"` in a call, both of `code="a" if found else "b"`, and `code = "a"`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["code"]:
            yield from texts_of(node.value)
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "code":
                    yield from texts_of(keyword.value)


def texts_of(value: ast.expr) -> list[str]:
    """The texts that an expression may be; none for a variable."""
    if isinstance(value, ast.IfExp):
        return texts_of(value.body) + texts_of(value.orelse)
    return [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []


def takes_over_details(call: ast.Call) -> bool:
    """Whether an error is said again with the code and the fields that it had: `**error.details(...)`."""
    return any(
        keyword.arg is None
        and any(
            isinstance(node, ast.Attribute) and node.attr == "details" for node in ast.walk(keyword.value)
        )
        for keyword in call.keywords
    )


def test_the_children_of_cdp_error_are_found():
    assert {"CdpError", "InputError", "StoreError", "BusyError", "NoFacesError", "_DiskError"} <= set(ERRORS)


@pytest.mark.parametrize("name", CHECKED)
def test_every_error_has_a_code(name):
    without = [
        f"{name}:{call.lineno}"
        for kind, call in made_in(TREES[name])
        if kind not in made_by_itself()
        and not takes_over_details(call)
        and "code" not in {keyword.arg for keyword in call.keywords}
    ]
    assert not without, f"give these a code=...: {', '.join(without)}"


def test_errors_are_raised_by_calls():
    bare = [
        f"{name}:{node.lineno}"
        for name in CHECKED
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id in ERRORS
    ]
    assert not bare


def test_codes_are_lower_case_words_with_hyphens():
    for name in CHECKED:
        for code in codes_in(TREES[name]):
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code), f"{name}: {code!r}"


def test_no_code_stands_for_two_classes_of_errors():
    classes = defaultdict(set)
    for tree in TREES.values():
        for kind, call in made_in(tree):
            for keyword in call.keywords:
                if keyword.arg == "code":
                    for code in texts_of(keyword.value):
                        classes[code].add(kind)
    assert {code: kinds for code, kinds in classes.items() if len(kinds) > 1} == {}

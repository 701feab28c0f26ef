"""`cdp eval labels` and `cdp show` as typed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.types import Labels, Views


@pytest.fixture
def cdp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.txt").write_text("0\n0\n1\n-1\n")

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.mark.parametrize(
    ("name", "identities", "kind"),
    [
        ("who.npy", [0.0, 0.0, 1.0, np.nan], "float64"),
        ("who.npy", [0.5, 0.5, 1.0, 1.0], "float64"),
        ("who.txt", "0.000e+00\n0.000e+00\n1.000e+00\nnan\n", "numbers with a fraction"),
        ("who.txt", "0.0\n0.0\n1.0\n-1.0\n", "numbers with a fraction"),
    ],
)
def test_identities_that_are_no_whole_numbers_are_refused(cdp, tmp_path, name, identities, kind):
    if isinstance(identities, str):
        (tmp_path / name).write_text(identities)
    else:
        np.save(tmp_path / name, identities)
    message = cdp("eval", "labels", "labels.txt", "--identities", name, code=2)
    assert message == (
        f"Error: {name}: holds {kind}; identities are whole numbers or names, -1 where unknown. [identities-not-whole]\n"
    )


def test_identities_as_numbers_as_names_and_in_views_are_the_same(cdp, tmp_path):
    np.save(tmp_path / "who.npy", [7, 7, 8, -1])
    (tmp_path / "who.txt").write_text("ann\nann\n1.5\n-1\n")
    Views(np.eye(4), identities=[7, 7, 8, -1]).save(tmp_path / "views")
    numbers, names, views = (
        json.loads(cdp("eval", "labels", "labels.txt", "--identities", name, "--json"))
        for name in ("who.npy", "who.txt", "views")
    )
    assert numbers == names == views
    assert (numbers["images"], numbers["coverage"]) == (3, 1.0)


def test_labels_that_are_no_whole_numbers_are_refused(cdp, tmp_path):
    np.save(tmp_path / "labels.npy", [0.0, 1.0])
    message = cdp("eval", "labels", "labels.npy", "--identities", "labels.txt", code=2)
    assert message == "Error: labels.npy: labels are whole numbers, -1 = discarded. [labels-not-whole]\n"


def test_show_prints_the_card(cdp, tmp_path):
    Labels.from_array([0, 0, -1]).save(tmp_path / "labels")
    assert "labels: Labels (written by cdp " in cdp("show", "labels")
    assert json.loads(cdp("show", "labels", "--json"))["kind"] == "Labels"


def test_labels_with_a_fraction_are_refused_as_text_too(cdp, tmp_path):
    (tmp_path / "floats.txt").write_text("0.0\n-1.0\n")
    message = cdp("eval", "labels", "floats.txt", "--identities", "labels.txt", code=2)
    assert message == "Error: floats.txt: labels are whole numbers, -1 = discarded. [labels-not-whole]\n"


def test_show_takes_no_text_of_a_card_for_markup(cdp, tmp_path):
    Labels.from_array([0, 0, -1]).save(tmp_path / "[red]labels[/blue]")
    file = tmp_path / "[red]labels[/blue]" / "card.json"
    card = json.loads(file.read_text())
    text = "[bold]x[/italic]"
    card |= {
        "kind": text,
        "cdp": text,
        "summary": text,
        "settings": {text: {text: text}},
        "made_from": {text: text},
    }
    card["arrays"] = {text: {"dtype": text, "shape": [3], "sha256": text}}
    file.write_text(json.dumps(card))
    shown = cdp("show", "[red]labels[/blue]")
    assert "[red]labels[/blue]: [bold]x[/italic] (written by cdp [bold]x[/italic])" in shown
    assert shown.count(text) >= 9


def test_a_traceback_is_printed_only_when_it_is_asked_for(cdp, tmp_path, monkeypatch):
    Labels.from_array([0, 0, -1]).save(tmp_path / "labels")
    monkeypatch.setattr("cdp.storage.artifacts.hash_array", lambda array: 1 // 0)
    words = ("eval", "labels", "labels", "--identities", "labels.txt")
    sentence = (
        "Error: labels: cannot be read (ZeroDivisionError: integer division or modulo by zero); it is damaged or has an "
        "unexpected format; write it again. [file-damaged]\n"
    )
    assert cdp(*words, code=2) == sentence
    traced = cdp("--debug", *words, code=2)
    assert "Traceback (most recent call last):" in traced
    assert "monkeypatch.setattr" in traced or "1 // 0" in traced
    assert traced.endswith(sentence)

"""What `--help`, `--help-all`, no words at all, and words that do not exist are answered with."""

import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cdp.cli.app import GUIDE
from cdp.cli.main import app
from cdp_lab.cli.lab_main import app as lab

WORDS = {
    "label", "add", "review", "regroup", "forget", "export", "show", "run", "train", "embed", "eval", "data", "demo",
}  # fmt: skip
IN_DATA, IN_EVAL = {"split", "check", "align", "recipe"}, {"labels", "verification", "identification"}


def leaves(command, path):
    """Every command that does something, by the words that call it."""
    if not hasattr(command, "commands"):
        return {path: command}
    return {
        name: one
        for word, inner in command.commands.items()
        for name, one in leaves(inner, f"{path} {word}").items()
    }


COMMANDS = {**leaves(get_command(app), "cdp"), **leaves(get_command(lab), "cdp-lab")}
GROUPS = ("cdp", "cdp data", "cdp eval", "cdp-lab", "cdp-lab study")


def ask(words, columns=100, code=0):
    """What is printed where the terminal is so wide."""
    program, *rest = words.split()
    result = CliRunner().invoke(
        {"cdp": app, "cdp-lab": lab}[program], rest, env={"COLUMNS": str(columns)}, prog_name=program
    )
    assert result.exit_code == code, result.output
    return result.output


def options_of(command):
    return [one for one in command.params if one.param_type_name == "option" and one.name != "help"]


def entries(text):
    """The rows of all panels, each as one line."""
    joined = re.sub(r"\n {3,}", " ", text).splitlines()
    return [line.strip() for line in joined if re.match(r"  (--|[A-Z])", line)]


def page_of(name):
    return getattr(COMMANDS[name].callback, "help_page", None)


def test_there_are_no_other_commands():
    commands = get_command(app).commands
    assert set(commands) == WORDS
    assert set(commands["data"].commands) == IN_DATA
    assert set(commands["eval"].commands) == IN_EVAL
    assert set(get_command(lab).commands) == {"baselines", "compile", "ensemble", "faces", "study"}


def test_the_help_of_the_program_has_all_commands_in_panels():
    said = ask("cdp --help")
    panels = re.findall(r"^([A-Z][^:\n]*):$", said, re.M)
    assert panels == ["Find identities", "Train a network", "Measure, prepare", "Options"]
    for name in WORDS:
        assert len(re.findall(rf"^  {name} +[A-Z]", said, re.M)) == 1


def test_without_words_there_is_a_guide():
    result = CliRunner().invoke(app, [])
    assert (result.exit_code, result.output) == (0, GUIDE)
    commands = re.findall(r"cdp ([a-z]+)", GUIDE.partition("\n")[2])
    assert set(commands) <= WORDS
    assert max(map(len, GUIDE.splitlines())) <= 120


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_is_short(name):
    said, page = ask(f"{name} --help"), page_of(name)
    shown = entries(said)
    assert shown or not COMMANDS[name].params
    if page is not None and page.panels:
        options = [one for one in shown if one.startswith("--")]
        assert len(options) <= 15, options
        titles = re.findall(r"^([A-Z][A-Za-z ,-]*):$", said, re.M)
        assert [title for title in titles if title != "Examples"] == list(page.panels)
        hidden = len(options_of(COMMANDS[name])) - len(options)
        assert f"{hidden} more options: {name} --help-all" in said
    if page is not None:
        assert "Examples:" in said
        assert len(page.examples) in (1, 2)
        for one in page.examples:
            assert f"  {one}\n" in said
            assert one.startswith(name)


@pytest.mark.parametrize("name", sorted(WORDS - {"data", "eval"}))
def test_every_command_of_its_own_has_two_examples(name):
    assert len(page_of(f"cdp {name}").examples) == 2


@pytest.mark.parametrize("name", [name for name in COMMANDS if page_of(name) is not None])
def test_examples_are_words_that_the_command_takes(name):
    """Parsed, not run."""
    for one in page_of(name).examples:
        words = one.removeprefix(name).split()
        context = COMMANDS[name].make_context(name, words, resilient_parsing=True)
        assert not context.args
        known = {
            spelling
            for option in COMMANDS[name].params
            for spelling in (*option.opts, *option.secondary_opts)
        }
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("name", COMMANDS)
def test_the_long_help_lists_every_option(name):
    said = ask(f"{name} --help-all")
    listed = {word for entry in entries(said) for word in entry.split()[:1]}
    listed_denials = {entry.split()[2] for entry in entries(said) if entry.split()[1:2] == ["/"]}
    for one in options_of(COMMANDS[name]):
        spellings = {*one.opts, *one.secondary_opts}
        assert spellings & listed, one.name
        assert not one.secondary_opts or set(one.secondary_opts) & listed_denials, one.name
    assert len([entry for entry in entries(said) if entry.startswith("--")]) == len(
        options_of(COMMANDS[name])
    )


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("name", [*GROUPS, *COMMANDS])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(name, columns):
    for option in ("--help", "--help-all")[: 1 if name in GROUPS else 2]:
        said = ask(f"{name} {option}", columns)
        text, in_examples = [], False
        for line in said.splitlines():
            in_examples = line == "Examples:" or (in_examples and line.startswith("  "))
            if not in_examples:  # they are there to be copied
                text.append(line)
        # A single word may be as long as it is; it is not broken.
        assert [line for line in text if len(line) > columns and len(line.split()) > 1] == []
        assert set(said.split()) == set(ask(f"{name} {option}", 110).split()), "the same words at any width"


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("cdp lable", "label"),
        ("cdp rewiew", "review"),
        ("cdp eval lables", "labels"),
        ("cdp data splitt", "split"),
        ("cdp-lab baseline", "baselines"),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest(words, suggestion):
    said = ask(words, code=2)
    assert f"No such command '{words.split()[-1]}'" in said
    assert f"Did you mean '{suggestion}'" in said


@pytest.mark.parametrize(
    ("words", "suggestions"),
    [
        ("cdp label x --out y --treshold 1", "--threshold"),
        ("cdp label x --out y --max_cluster_size 9", "--max-cluster-size"),
        ("cdp run --out y --consensus.treshold 1", "--consensus.threshold"),
        ("cdp train x --epoch 3", "--epochs"),
        ("cdp run --out y --epoch 3", "--epochs"),
        ("cdp demo --batsh 3", "--batch"),
    ],
)
def test_an_unknown_option_is_answered_with_those_that_it_may_stand_for(words, suggestions):
    said = " ".join(ask(words, code=2).split())
    option = next(word for word in reversed(words.split()) if word.startswith("--"))
    assert f"No such option: {option}. Did you mean {suggestions}" in said
    path = re.match(r"cdp(?: data)? [a-z]+", words)[0]
    assert said.endswith(f"{path} --help-all lists all.")
    assert said.startswith(f"Usage: {path} ")


def test_an_option_that_resembles_nothing_gets_no_suggestion():
    said = " ".join(ask("cdp label x --out y --qqq", code=2).split())
    assert "No such option: --qqq. cdp label --help-all lists all." in said


def test_a_truth_has_two_spellings_and_takes_no_value():
    assert "does not take a value" in ask("cdp run --out y --disjoint=no", code=2)
    said = ask("cdp run --help-all")
    assert "--disjoint / --no-disjoint" in said


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("cdp la", "label"),
        ("cdp data re", "recipe"),
        ("cdp label --trained", "--trained-mediator"),
        ("cdp eval la", "labels"),
    ],
)
def test_the_shell_completes(typed, offered):
    environment = {
        **os.environ,
        "_CDP_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    code = "import sys; sys.argv = ['cdp']; from cdp.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert offered in done.stdout.split(), done.stderr

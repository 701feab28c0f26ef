"""Every command and every snippet of the README runs as written."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdp.cli.main import app

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = "\n".join(blocks("console")).replace("\\\n", " ").splitlines()
    inline = [" ".join(code.split()) for code in re.findall(r"`(cdp label example[^`]*)`", README)]
    words = [shlex.split(line, comments=True) for line in [*lines, *inline]]
    return [word[1:] for word in words if word and word[0] == "cdp"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """Where `cdp example` has run."""
    folder = tmp_path_factory.mktemp("readme")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, ["example", "--out", "example", "--identities", "80"])
        assert result.exit_code == 0, result.output
        yield folder


def test_the_first_two_commands_are_the_two_that_matter():
    assert re.findall(r"^make \w+", blocks("console")[0], flags=re.MULTILINE) == ["make demo", "make test"]


def test_commands_run(workplace):
    assert len(commands()) >= 5
    for words in commands():
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{words}: {result.output}"


def test_snippets_run(workplace):
    assert len(blocks("python")) >= 2
    for snippet in blocks("python"):
        exec(compile(snippet, "README.md", "exec"), {})  # its own words, not a user's

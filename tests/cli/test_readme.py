"""Every command and every snippet of README.md and docs/embeddings.md runs as printed, in an empty folder."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.architecture.test_architecture import LAYERS
from tests.drawn_images import draw_patterns
from typer.testing import CliRunner

from cdp.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
README, EMBEDDINGS = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/embeddings.md")
)
# Remarks beside results are parts of these pages.
PAGES = [
    page for pattern in ("*.md", "docs/*.md", "docs/results/*.md") for page in sorted(ROOT.glob(pattern))
]
# As printed, a run resamples a thousand times: minutes in all.
QUICKER = {
    "run": ["--train.epochs", "10", "--joint.epochs", "2", "--replicates", "20"],
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The words of every line that calls `cdp`, in console blocks and in sentences that go on from them."""
    lines = "\n".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    inline = [" ".join(code.split()) for code in re.findall(r"`(cdp label example[^`]*)`", page)]
    words = [shlex.split(line, comments=True) for line in [*lines, *inline]]
    return [word[1:] for word in words if word and word[0] == "cdp"]


def call(words: list[str]) -> None:
    result = CliRunner().invoke(app, [*words, *QUICKER.get(words[0], ())])
    assert result.exit_code == 0, f"{words}: {result.output}"


def save_arrays() -> None:
    """130 people of six images as two made-up models see them, 80 of them known."""
    generator = np.random.default_rng(0)
    people = np.repeat(np.arange(130), 6)
    faces = generator.normal(size=(130, 24))[people]
    for name, dimensions in (("arcface", 512), ("sface", 128)):
        seen = faces + 0.5 * generator.normal(size=faces.shape)
        np.save(f"{name}.npy", (seen @ generator.normal(size=(24, dimensions))).astype(np.float32))
    np.save("person.npy", np.where(people < 80, people, -1))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder; networks are trained on one thread, as several tests share the machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    return tmp_path


def test_installing_comes_first():
    assert blocks(README, "console")[0].startswith("pip install -c constraints.txt")
    if shutil.which("make"):
        subprocess.run(["make", "--dry-run", "demo", "test"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.slow
def test_commands_and_snippets_of_the_readme_run(folder):
    pytest.importorskip("onnxruntime", reason="photos need the extra onnx")
    pytest.importorskip("onnx", reason="the toy models are made with it")
    drawn = runpy.run_path(str(ROOT / "tests" / "drawn_photos.py"))  # not imported: a tutorial's test runs it
    drawn["photograph"](folder / "photos")
    drawn["build_models"](folder / "models")
    draw_patterns(folder / "faces", n_identities=35, n_images=7, side=32)
    assert len(commands(README)) >= 6
    for words in commands(README):
        if words[0] != "review":  # a server
            call([*words, *(["--models", "models"] if words[:2] == ["label", "photos"] else [])])
    for name in ("album/report.html", "people/exported.csv", "identities/labels.csv", "work/report.html"):
        assert (folder / name).is_file()
    save_arrays()
    names: dict[str, object] = {}
    (snippet,) = blocks(README, "python")
    exec(compile(snippet, "README.md", "exec"), names)  # its own words, not a user's
    assert len(set(names["labels"])) > 100


@pytest.mark.slow
def test_commands_and_snippets_of_the_page_about_embeddings_run(folder):
    call(["demo", "--embeddings", "--out", "example"])
    for words in commands(EMBEDDINGS):
        call(words)
    assert (folder / "identities" / "report.html").is_file()
    assert (folder / "work" / "labels.csv").is_file()
    save_arrays()
    names = {}
    for snippet in blocks(EMBEDDINGS, "python"):
        exec(compile(snippet, "docs/embeddings.md", "exec"), names)
    assert names["model"].labeling_.expected.precision.value > 0.9
    named = list(names["names"].values())
    assert set().union(*named) == set(range(80))
    assert sum(len(people) > 1 for people in named) <= 2


def anchors(page: Path) -> set[str]:
    """What `#…` may be after a link to a page: its headings, spelled as GitHub does."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        if name.startswith(("http:", "https:")):
            continue
        goal = page.parent / name if name else page
        assert goal.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(goal), f"{page.name}: {link}"


def test_the_architecture_names_every_file_and_the_layers_that_are_tested():
    _, tree, layers = blocks((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), "text")
    source = tree.split("tests/   ")[0]
    there = {
        file.name
        for package in ("cdp", "cdp_lab")
        for file in (ROOT / "src" / package).rglob("*")
        if file.suffix in (".py", ".toml")
    }
    assert set(re.findall(r"\w+\.(?:py|toml)\b", source)) - {"__init__.py"} == there - {"__init__.py"}
    assert tuple(set(layer.split()) for layer in layers.split("◀")) == LAYERS

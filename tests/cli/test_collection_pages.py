"""docs/collections.md, docs/review.md and docs/export.md, typed as they are printed, on a few made-up images."""

import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from cdp import Views
from cdp.cli.main import app
from cdp.collection.collection import open_collection

DOCS = Path(__file__).parents[2] / "docs"
NAMED = ("a/1.jpg", "a/2.jpg", "b/7.jpg", "c/3.jpg")


def blocks(page, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def commands(page, language):
    lines = [
        line.partition("#")[0].split() for block in blocks(page, language) for line in block.splitlines()
    ]
    return [words[1:] for words in lines if words[:1] == ["cdp"]]


def run(words):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (words, result.output)
    return " ".join(result.stdout.split())


@pytest.fixture
def home(tmp_path, small_views, monkeypatch):
    """`views/labeled`, `views/unlabeled` and `views/new`, and the images that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    known = small_views.identities < 25
    small_views.take(known).save("views/labeled")
    others = small_views.take(~known)
    paths = [*NAMED, *(f"d/{row}.jpg" for row in range(len(NAMED), others.n_images))]
    for path in paths:
        Path(path).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    for name, rows in (("unlabeled", slice(0, 80)), ("new", slice(80, None))):
        part = others.take(rows)
        Views(part.base, part.committee, None, paths[rows]).save(f"views/{name}")
    Path("corrections.csv").write_text(blocks("collections.md", "text")[0], encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_pages_run_as_printed(home):
    said = [run(words) for words in commands("collections.md", "bash")]
    assert "Next: cdp review faces, cdp add faces INPUT" in said[0]
    assert "125 images" in said[1]
    assert "kept their number" in said[2]
    faces = open_collection("faces")
    assert faces.names[int(faces.identity[0])] == "Anna"
    assert faces.identity[0] == faces.identity[1] != faces.identity[2]
    assert faces.identity[3] == -1

    *first, export, plan, bring = commands("review.md", "console")
    assert [words[0] for words in first] == ["demo", "label", "review"]
    run(export)
    anna = Path("people") / "Anna"
    moved = next(one for one in Path("people").glob("person-*/*.jpg"))
    moved.rename(anna / moved.name)
    assert "1 image moved to another folder." in run(plan)
    run(bring)
    row = int(moved.name.partition("_")[0])
    faces = open_collection("faces")
    assert faces.names[int(faces.identity[row])] == "Anna"

    run(["label", "views/unlabeled", "--quiet", "--out", "labels"])
    for words in commands("export.md", "console"):
        run([*words, "--force"])
    assert (
        Path("people.csv")
        .read_text(encoding="utf-8")
        .startswith("row,path,identity,identity_name,confidence")
    )


@pytest.mark.slow
def test_the_snippet_about_collections_runs(home):
    (snippet,) = blocks("collections.md", "python")
    names: dict[str, object] = {}
    exec(compile(snippet, "docs/collections.md", "exec"), names)
    faces = names["faces"]
    assert faces.n_images == 125
    assert faces.names[int(faces.identity[3])] == "Anna"
    assert faces.identity[12] == -1

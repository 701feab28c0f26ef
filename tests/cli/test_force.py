"""`--force`: what each command may replace, and that nothing it reads is ever touched."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from cdp import Views
from cdp.cli.main import app
from cdp.types.manifest import Manifest

REFUSED = {
    "label": (
        "label views --mediator vote --out views",
        "label views --mediator vote --out .",
        "label views --mediator vote --out views/committee",
        "label views --mediator vote --out linked",
        "label links --mediator vote --out labels",
        "label views --trained-mediator labels/mediator --out labels",
        "label views --mediator vote --knn base=labels/knn.npz --out labels",
        "label views --mediator vote --cache labels/cache --out labels",
        "label views --mediator vote --out photos",
        "label views --mediator vote --out parts",
    ),
    "collect": ("collect views --mediator vote --out views", "collect views --mediator vote --out photos"),
    "extend": ("extend faces views --out faces", "extend faces views --out views", "extend faces views --out labels"),
    "ensemble": ("ensemble views --models base,small --out views",),
    "split": ("split list.csv --out .", "split photos --out photos", "split parts/list.csv --out parts"),
    "check": ("check list.csv --list list.csv",),
    "align": ("align photos --detector nets/a.onnx --out photos", "align photos --ready all --out nets"),
    "train": ("train photos --network small_vgg --size 8 --out photos",),
    "join": ("join photos photos --true-labels --network small_vgg --size 8 --out photos",),
    "embed": ("embed photos --networks nets --base small --out nets", "embed photos --networks nets --base small --out labels", "embed photos --model nets/a.onnx --out nets"),
    "baselines": ("baselines views --validation views --out views/card.json",),
    "report": ("report run --out run/run.json",),
    "recipe new": ("recipe new list.csv --data.images list.csv",),
    "eval verification": ("eval verification --embeddings views --pairs list.csv --picture views/a.png",),
    "eval identification": ("eval identification --probes views --distractors views --picture views/a.png",),
    "study page": ("study page run --out run/run.json",),
    "export": ("export labels --out labels", "export labels --out photos", "export labels --format list --out parts"),
    "example": ("example --out photos", "example --out views"),
    "demo": ("demo --quick --out photos", "demo --quick --out views"),
}  # fmt: skip
NEEDS_NETWORKS = ("train", "join", "embed")
WITHOUT_INPUTS = {"faces"}


def all_commands(command, path=()):
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


def test_every_command_with_force_is_tried_here():
    found = {
        name
        for name, command in all_commands(get_command(app))
        if any("--force" in one.opts for one in command.params)
    }
    assert found == set(REFUSED) | WITHOUT_INPUTS


def card(folder: Path, kind: str, settings: dict[str, object] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    about = {"kind": kind, "format": 1, "settings": settings or {}, "made_from": {}, "arrays": {}}
    (folder / "card.json").write_text(json.dumps(about))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Inputs of all kinds, in a folder that is the current one and itself looks like labels."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    embeddings = generator.normal(size=(30, 8)).astype(np.float32)
    views = Views(embeddings, {"small": embeddings[:, :4]}, np.arange(30) // 3)
    views.save("views")
    parts = {
        "batches": [1],
        "known": [],
        "judged": 1,
        "groups": 1,
        "next_identity": 0,
        "consensus": {},
        "seed": 0,
        "n_trained": 1,
    }
    card(Path("faces"), "Collection", parts)
    for name, kind in ((".", "Labels"), ("labels", "Labels"), ("parts", "Split"), ("nets", "Views")):
        card(Path(name), kind)
    for name in ("labels/mediator", "labels/cache", "links", "photos/small_vgg", "photos/anne", "run/stages"):
        Path(name).mkdir(parents=True)
    for name in ("labels/knn.npz", "labels/base.npy", "views/a.png", "run/run.json"):
        Path(name).write_text("precious")
    Path("links/base.npy").symlink_to(Path("labels/base.npy").absolute())
    Path("linked").symlink_to("views")
    for person in ("small_vgg", "anne"):
        for number in range(4):
            pixels = generator.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(f"photos/{person}/{number}.png")
    images = Manifest(("photos/anne/0.png", "photos/anne/1.png"), np.array([0, 0]), root=str(tmp_path))
    images.save("list.csv")
    images.save("parts/list.csv")
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    files = (one for one in sorted(folder.rglob("*")) if one.is_file())
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=pytest.mark.slow if name in NEEDS_NETWORKS else ())
        for name, cases in REFUSED.items()
        for words in cases
    ],
)
def test_what_is_read_or_foreign_is_not_replaced(home, words):
    if words.split()[0] in NEEDS_NETWORKS:
        pytest.importorskip("torch", reason="the networks need the extra nets")
    before = contents(home)
    result = CliRunner().invoke(app, [*words.split(), "--force"])
    said = result.stderr.replace("\n", " ")
    assert result.exit_code == 2, result.output
    if words.endswith("--out linked"):
        assert "linked is a link" in said
    else:
        assert "is not replaced, even with --force, because " in said
        assert "; choose another name" in said
    assert contents(home) == before


def test_an_artifact_of_the_same_kind_is_replaced(home):
    (home / "labels" / "old.txt").touch()
    words = "label views --mediator vote --k 3 --quiet --force --out labels"
    for out in ("labels", "labels"):
        result = CliRunner().invoke(app, [*words.split()[:-1], out])
        assert result.exit_code == 0, result.output
    assert json.loads((home / "labels/card.json").read_text())["settings"]["k"] == 3
    assert not (home / "labels/old.txt").exists()


def test_a_run_that_was_stopped_can_be_cleared(tmp_path):
    from cdp.run.run_recipe import clear

    for marks in (("run.json",), ("recipe.toml", "stages/split.json")):
        folder = tmp_path / "run"
        for name in marks:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")
        clear(folder)
        assert not folder.exists()


def test_an_input_inside_a_run_is_not_cleared_by_its_stages(home):
    """`cdp run` has no --force, but a stage clears what an older one left."""
    (home / "run/run.json").unlink()
    given = home / "run/views/labeled"
    Views.load(home / "views").save(given)
    result = CliRunner().invoke(app, ["run", "--embeddings", str(given), "--out", "run", "--quiet"])
    assert result.exit_code == 2, result.output
    assert "lies where this run writes" in result.stderr.replace("\n", " ")
    assert Views.load(given).n_images == 30

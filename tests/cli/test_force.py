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
from cdp.errors import InputError
from cdp.types.manifest import Manifest
from cdp_lab.cli.lab_main import app as lab

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
    "add": ("add made views --out made", "add made views --out views", "add made views --out photos"),
    "data split": ("data split list.csv --out .", "data split photos --out photos", "data split parts/list.csv --out parts"),
    "data check": ("data check list.csv --list list.csv",),
    "data align": ("data align photos --detector nets/a.onnx --out photos", "data align photos --ready all --out nets"),
    "train": ("train photos --network small_vgg --size 16 --out photos", "train photos --unlabeled photos --true-labels --network small_vgg --size 16 --out photos"),
    "embed": ("embed photos --networks nets --base small --out nets", "embed photos --networks nets --base small --out labels", "embed photos --model nets/a.onnx --out nets"),
    "show": ("show made --report made/labels.csv", "show made --report made/report.html"),
    "data recipe": ("data recipe list.csv --data.images list.csv",),
    "eval verification": ("eval verification --embeddings views --pairs list.csv --picture views/a.png",),
    "eval identification": ("eval identification --probes views --distractors views --picture views/a.png",),
    "export": ("export made --out made", "export made --out photos", "export made --format list --out parts"),
    "demo": ("demo --quick --out photos", "demo --quick --out views", "demo --embeddings --out photos", "demo --embeddings --out views"),
}  # fmt: skip
REFUSED_IN_THE_LAB = {
    "ensemble": ("ensemble views --models base,small --out views",),
    "baselines": ("baselines views --validation views --out views/card.json",),
    "study page": ("study page run --out run/run.json",),
}
NEEDS_NETWORKS = ("train", "embed")
WITHOUT_INPUTS = {"faces"}


def all_commands(command, path=()):
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


def test_every_command_with_force_is_tried_here():
    found, found_in_the_lab = (
        {
            name
            for name, command in all_commands(get_command(one))
            if any("--force" in parameter.opts for parameter in command.params)
        }
        for one in (app, lab)
    )
    assert found == set(REFUSED)
    assert found_in_the_lab == set(REFUSED_IN_THE_LAB) | WITHOUT_INPUTS


def card(folder: Path, kind: str) -> None:
    folder.mkdir(exist_ok=True)
    about = {"kind": kind, "format": 1, "settings": {}, "made_from": {}, "arrays": {}}
    (folder / "card.json").write_text(json.dumps(about))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Inputs of all kinds, in a folder that is the current one and itself looks like a collection."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    embeddings = generator.normal(size=(30, 8)).astype(np.float32)
    views = Views(embeddings, {"small": embeddings[:, :4]}, np.arange(30) // 3)
    views.save("views")
    for name, kind in ((".", "Collection"), ("labels", "Collection"), ("parts", "Split"), ("nets", "Views")):
        card(Path(name), kind)
    for name in (
        "labels/mediator",
        "labels/cache",
        "links",
        "photos/small_vgg",
        "photos/anne",
        "run/stages",
        "project/run",
    ):
        Path(name).mkdir(parents=True)
    for name in ("labels/knn.npz", "labels/base.npy", "views/a.png", "run/run.json", "project/run/start.sh"):
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
        for name, cases in (REFUSED | REFUSED_IN_THE_LAB).items()
        for words in cases
    ],
)
def test_what_is_read_or_foreign_is_not_replaced(home, words):
    if words.split()[0] in NEEDS_NETWORKS:
        pytest.importorskip("torch", reason="the networks need the extra nets")
    if " made" in words:
        made = CliRunner().invoke(
            app, ["label", "views", "--mediator", "vote", "--k", "3", "--quiet", "--out", "made"]
        )
        assert made.exit_code == 0, made.output
    before = contents(home)
    is_of_lab = words in sum(REFUSED_IN_THE_LAB.values(), ())
    result = CliRunner().invoke(lab if is_of_lab else app, [*words.split(), "--force"])
    said = result.stderr.replace("\n", " ")
    assert result.exit_code == 2, result.output
    if words.endswith("--out linked"):
        assert "linked is a link" in said
    elif words.startswith("demo --quick"):
        assert "[output-holds-other-things]" in said
    else:
        assert "cannot be replaced, even with --force, because " in said
        assert "; choose another name" in said
        assert "[output-not-replaced]" in said
    assert contents(home) == before


def test_an_artifact_of_the_same_kind_is_replaced(home):
    (home / "labels" / "old.txt").touch()
    words = "label views --mediator vote --k 3 --quiet --force --out labels"
    for out in ("labels", "labels"):
        result = CliRunner().invoke(app, [*words.split()[:-1], out])
        assert result.exit_code == 0, result.output
    assert json.loads((home / "labels/card.json").read_text())["settings"]["consensus"]["k"] == 3
    assert not (home / "labels/old.txt").exists()


def test_a_run_that_was_stopped_can_be_cleared(tmp_path):
    from cdp.run.run_recipe import clear

    for marks in (("run/run.json",), ("run/recipe.toml", "run/stages/split.json"), ("run/drawn/faces.zip",)):
        folder = tmp_path / "run"
        for name in marks:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")
        clear(folder)
        assert not folder.exists()


def test_a_folder_of_others_that_has_a_folder_called_run_is_not_cleared(home):
    from cdp.run.run_recipe import clear

    before = contents(home)
    with pytest.raises(InputError):
        clear(home / "project")
    assert contents(home) == before


def test_an_input_inside_a_run_is_not_cleared_by_its_stages(home):
    """`cdp run` has no --force, but a stage clears what an older one left."""
    given = home / "new/run/views/labeled"
    Views.load(home / "views").save(given)
    (home / "new/run/stages").mkdir()
    result = CliRunner().invoke(app, ["run", "--embeddings", str(given), "--out", "new", "--quiet"])
    assert result.exit_code == 2, result.output
    assert "[input-inside-output]" in result.stderr
    assert Views.load(given).n_images == 30

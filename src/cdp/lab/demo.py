"""`cdp demo`: drawn faces, and the recipe that is run on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from cdp.config.reading import read_recipe
from cdp.config.sections import RunRecipe
from cdp.files import write_json
from cdp.lab.drawn_faces import FaceSettings, write_faces
from cdp.progress import Progress, no_progress

_TRAINING = FaceSettings(identities=2200, images=8, size=36, difficulty=0.25, lookalikes=0.05)
_N_TEST = 800
_QUICK_TRAINING = replace(_TRAINING, identities=440, difficulty=0.15)
_QUICK_N_TEST = 150
_QUICK = ("--train.epochs", "12", "--joint.epochs", "5", "--evaluation.replicates", "200")
_FILES = ("faces.zip", "test_faces.zip")


def demo_file() -> Path:
    """The recipe of `cdp demo`."""
    return Path(__file__).with_name("demo.toml")


def demo_recipe(folder: Path, *, quick: bool = False, overrides: Sequence[str] = ()) -> RunRecipe:
    """The demo's recipe on the faces in a folder, changed as the command line says."""
    images, test = (str(folder.absolute() / "drawn" / name) for name in _FILES)
    recipe = read_recipe(demo_file(), [*(_QUICK if quick else ()), *overrides])
    return replace(recipe, data=replace(recipe.data, images=images, test=test))


def demo_faces(seed: int, *, quick: bool = False) -> tuple[FaceSettings, FaceSettings]:
    """Faces for training, some of them junk or mislabeled, and clean ones of other people for the test."""
    training = replace(_QUICK_TRAINING if quick else _TRAINING, seed=2 * seed)
    n_test = _QUICK_N_TEST if quick else _N_TEST
    return training, replace(training, identities=n_test, seed=2 * seed + 1, junk=0.0, mislabeled=0.0)


def draw_demo_faces(
    folder: Path, recipe: RunRecipe, *, quick: bool = False, progress: Progress = no_progress
) -> None:
    """Draw both sets into `drawn/` of a run's folder, unless they are there already."""
    drawn = folder / "drawn"
    sets = demo_faces(recipe.seed, quick=quick)
    wanted = json.loads(json.dumps([asdict(one) for one in sets]))
    record = drawn / "settings.json"
    try:
        if json.loads(record.read_text(encoding="utf-8")) == wanted and all(
            (drawn / one).is_file() for one in _FILES
        ):
            return
    except (OSError, ValueError):
        pass
    drawn.mkdir(parents=True, exist_ok=True)
    # Marks the folder as one of a run, which a later call may fill.
    (folder / "stages").mkdir(exist_ok=True)
    for settings, name in zip(sets, _FILES, strict=True):
        write_faces(drawn / name, settings, threads=recipe.engine.threads, progress=progress, force=True)
    write_json(record, wanted)

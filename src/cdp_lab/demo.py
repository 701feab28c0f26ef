"""`cdp demo`: drawn faces and their recipe; `cdp demo --embeddings`: four ways to label."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cdp.config.checks import check_recipe
from cdp.config.reading import read_recipe
from cdp.config.sections import DataSection, RunRecipe
from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_labels
from cdp.labeling.estimator import CDP
from cdp.run.plan import make_stages
from cdp.run.run_recipe import RUN, plan_recipe, refuse_other_folder, run_folder
from cdp.run.runner import Planned, plan_stages
from cdp.run.sources import Facts, resolve
from cdp.run.stages import Ledger
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import check_writable, write_json
from cdp.types import Views
from cdp.types.run_record import TrueFigures
from cdp_lab.drawn_faces import FaceSettings, write_faces
from cdp_lab.synthetic import SyntheticSplit

Size = Literal["default", "full", "quick"]
_TRAINING = FaceSettings(identities=2200, images=8, size=36, difficulty=0.25, lookalikes=0.05)


@dataclass(frozen=True)
class _Amount:
    """How much a demo draws and trains: people to learn from, people of the test, and keys of the recipe."""

    people: int
    test_people: int
    difficulty: float = _TRAINING.difficulty
    overrides: Mapping[str, Any] = field(default_factory=dict)


_AMOUNTS: Mapping[Size, _Amount] = {
    "full": _Amount(2200, 800),
    "default": _Amount(700, 300, 0.2, {"joint.epochs": 9}),
    "quick": _Amount(440, 150, 0.15, {"train.epochs": 12, "joint.epochs": 5, "evaluation.replicates": 200}),
}
_ROOM: Mapping[Size, int] = {"full": 500_000_000, "default": 200_000_000, "quick": 100_000_000}
"""Bytes that a demo needs on disk, estimated from above: `--quick` takes 87 MB."""

_FILES = ("faces.zip", "test_faces.zip")
_RECORD = "settings.json"


def demo_file() -> Path:
    """Return the recipe of `cdp demo`."""
    return Path(__file__).with_name("demo.toml")


def demo_recipe(
    folder: Path, size: Size = "default", overrides: Mapping[str, Any] | None = None
) -> RunRecipe:
    """Return the demo's recipe on the faces in a folder, changed as the command line says."""
    images, test = (str(_drawn(folder.absolute()) / name) for name in _FILES)
    recipe = read_recipe(demo_file(), {**_AMOUNTS[size].overrides, **(overrides or {})})
    if recipe.data != DataSection():
        raise InputError(
            "cdp demo draws its own images: leave [data] alone, or use cdp run.", code="demo-data-given"
        )
    return replace(recipe, data=replace(recipe.data, images=images, test=test))


def demo_faces(seed: int, size: Size = "default") -> tuple[FaceSettings, FaceSettings]:
    """Faces for training, some of them junk or mislabeled, and clean ones of other people for the test."""
    amount = _AMOUNTS[size]
    training = replace(_TRAINING, identities=amount.people, difficulty=amount.difficulty, seed=2 * seed)
    return training, replace(
        training, identities=amount.test_people, seed=2 * seed + 1, junk=0.0, mislabeled=0.0
    )


def draw_demo_faces(
    folder: Path, recipe: RunRecipe, size: Size = "default", *, progress: Progress = no_progress
) -> None:
    """Draw both sets into `drawn/` of a run's folder, unless they are there already."""
    if _are_drawn(folder, recipe.seed, size):
        return
    refuse_other_folder(folder, RUN, "cdp demo")
    check_writable(folder, _ROOM[size], "the demo's files")
    _drawn(folder).mkdir(parents=True, exist_ok=True)
    # Marks the folder as one of a run, which a later call may fill or clear.
    (run_folder(folder) / "stages").mkdir(exist_ok=True)
    sets = demo_faces(recipe.seed, size)
    for settings, name in zip(sets, _FILES, strict=True):
        file = _drawn(folder) / name
        write_faces(file, settings, threads=recipe.engine.threads, progress=progress, force=True)
    write_json(_drawn(folder) / _RECORD, [asdict(one) for one in sets])


def plan_demo(folder: Path, recipe: RunRecipe, size: Size = "default") -> list[Planned]:
    """Return what a demo would do, and why; nothing is written or drawn."""
    if _are_drawn(folder, recipe.seed, size):
        return plan_recipe(recipe, folder)
    check_recipe(recipe)
    return plan_stages(
        make_stages(resolve(recipe, Facts("images"))), Ledger(run_folder(folder.absolute())), {}
    )


def _drawn(folder: Path) -> Path:
    """Return where the faces are, so that they move with the folder."""
    return run_folder(folder) / "drawn"


def _are_drawn(folder: Path, seed: int, size: Size) -> bool:
    drawn = _drawn(folder)
    wanted = json.loads(json.dumps([asdict(one) for one in demo_faces(seed, size)]))
    try:
        is_same = json.loads((drawn / _RECORD).read_text(encoding="utf-8")) == wanted
    except (OSError, ValueError):
        return False
    return is_same and all((drawn / name).is_file() for name in _FILES)


def compare_ways(
    split: SyntheticSplit, *, seed: int = 0, progress: Progress = no_progress
) -> list[tuple[str, TrueFigures]]:
    """Return the name of every way and its figures; the last one is the default."""
    alone = _best_similarity(split.labeled)
    ways = {
        f"base alone, > {alone:.2f}": CDP("paper", mediator="vote", min_votes=0, threshold=alone, seed=seed),
        "unanimous vote": CDP("paper", mediator="vote", seed=seed),
        "mediator, as in the paper": CDP("paper", seed=seed),
        "mediator, preset best": CDP(seed=seed),
    }
    rows = []
    for name, model in ways.items():
        model.fit(split.labeled, progress=progress).predict(split.unlabeled, progress=progress)
        assert split.unlabeled.identities is not None
        rows.append((name, measure_labels(model.labeling_.labels, split.unlabeled.identities)))
    return rows


def _best_similarity(labeled: Views) -> float:
    """Return the similarity threshold of the base alone with the best pairwise F on the labeled part."""
    alone = Views(labeled.base)

    def quality(threshold: float) -> float:
        model = CDP("paper", mediator="vote", threshold=threshold).fit(alone)
        assert labeled.identities is not None
        return measure_labels(model.labeling_.labels, labeled.identities).discards_kept.pairwise.f or 0.0

    return float(max(np.arange(0.3, 0.96, 0.05), key=quality))

"""Stages that make parts, networks and embeddings; torch is imported when one of them runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cdp.config.environment import embedding_files
from cdp.config.sections import RunRecipe
from cdp.data.array_files import open_npy
from cdp.data.merge import merge_manifests
from cdp.errors import InputError
from cdp.files import write_json, writing_folder
from cdp.progress import Progress
from cdp.run.parts import fold_of_rows, make_parts, read_sources, require_identities, row_numbers
from cdp.store import save
from cdp.types import Labels, Views
from cdp.types.manifest import Manifest

if TYPE_CHECKING:
    from cdp.nets.loop import LoopOptions


def draw(recipe: RunRecipe, folder: Path, progress: Progress) -> None:
    """Drawn faces for training, some of them junk or mislabeled, and clean ones of other people for the test."""
    from cdp.lab.drawn_faces import FaceSettings, write_faces

    chosen, threads = recipe.drawn, recipe.engine.threads
    (folder / "drawn").mkdir(exist_ok=True)
    training = FaceSettings(
        identities=chosen.identities,
        images=chosen.images,
        size=chosen.size,
        seed=2 * recipe.seed,
        junk=chosen.junk,
        mislabeled=chosen.mislabeled,
        lookalikes=chosen.lookalikes,
        difficulty=chosen.difficulty,
    )
    test = replace(
        training,
        identities=chosen.test_identities,
        images=chosen.test_images,
        seed=2 * recipe.seed + 1,
        junk=0.0,
        mislabeled=0.0,
    )
    for settings, name in ((training, "faces.zip"), (test, "test_faces.zip")):
        write_faces(folder / "drawn" / name, settings, threads=threads, progress=progress, force=True)


def split(recipe: RunRecipe, folder: Path) -> None:
    """Write one table per part."""
    parts = make_parts(recipe, read_sources(recipe, folder))
    tables = {"labeled": parts.labeled, "unlabeled": parts.unlabeled}
    counts: dict[str, dict[str, int | None]] = {}
    if parts.probes is not None and parts.distractors is not None:
        tables |= {"probes": parts.probes, "distractors": parts.distractors}
    for name, table in tables.items():
        counts[name] = _count(table)
    if parts.n_validation:
        rows = np.arange(len(parts.unlabeled))[-parts.n_validation :]
        counts["validation"] = _count(parts.unlabeled.take(rows))
    if recipe.consensus.folds:
        fold_of = fold_of_rows(parts.labeled, recipe.consensus.folds, recipe.seed)
        for fold in range(recipe.consensus.folds):
            tables[f"lesson{fold + 1}"] = parts.labeled.take(fold_of == fold)
            tables[f"without_fold{fold + 1}"] = parts.labeled.take(fold_of != fold)
    with writing_folder(folder / "parts", force=True) as place:
        for name, table in tables.items():
            # The folder is renamed when all is written, so relative locations are told from its final place.
            _anchored(table).save(place / f"{name}.csv")
        write_json(place / "counts.json", counts)


def _anchored(manifest: Manifest) -> Manifest:
    """The same images by absolute locations."""
    return Manifest(
        tuple(os.path.abspath(os.path.join(manifest.root, place)) for place in manifest.locations),
        manifest.identities,
        manifest.names,
        turns=manifest.turns,
    )


def _count(manifest: Manifest) -> dict[str, int | None]:
    known = bool((manifest.identities >= 0).any())
    return {"images": manifest.n_images, "identities": manifest.n_identities if known else None}


def part(folder: Path, name: str) -> Manifest:
    """A part's table."""
    return Manifest.load(folder / "parts" / f"{name.replace(' ', '_')}.csv")


def train(recipe: RunRecipe, folder: Path, room: str, network: str, shown: str, progress: Progress) -> None:
    """One network on a labeled part."""
    options = _options(recipe, progress)
    from cdp.nets.supervised import train_supervised

    train_supervised(
        part(folder, shown),
        [network],
        folder / room,
        recipe=recipe.train.recipe(recipe.seed),
        memory_budget=recipe.engine.memory_budget,
        threads=recipe.engine.threads,
        options=options,
    )


def embed(recipe: RunRecipe, folder: Path, artifact: str, shown: Sequence[str], progress: Progress) -> None:
    """Some parts as one network sees them."""
    _options(recipe, progress)
    from cdp.nets.extract import extract_views

    place = folder / artifact
    for name in shown:
        extract_views(
            place.parent,
            part(folder, name),
            folder / "embeddings" / artifact / name,
            base=place.name,
            members=[],
            threads=recipe.engine.threads,
            force=True,
            progress=_under(f"embed {name}", progress),
        )


def take_rows(recipe: RunRecipe, folder: Path, name: str, shown: Sequence[str]) -> None:
    """Some parts as a network saw them that is not here: its rows of data.embeddings."""
    files = embedding_files(recipe)
    rows, n_images = open_npy(files[name]), len(open_npy(files["identities"]))
    if rows.ndim != 2 or len(rows) != n_images:
        raise InputError(
            f"{files[name]}: shape {rows.shape}, and identities.npy has {n_images:,} rows; both must be about the same "
            "images, one row each."
        )
    for where in shown:
        table = part(folder, where)
        views = Views(np.asarray(rows[row_numbers(table)]), {}, table.identities)
        save(views, folder / "embeddings" / "networks" / name / where, force=True)


def _under(name: str, progress: Progress) -> Progress:
    """The same watch, told another name of the step."""

    def told(step: str, done: int, total: int) -> None:  # noqa: ARG001
        progress(name, done, total)

    return told


def join(recipe: RunRecipe, folder: Path, room: str, network: str, labels: str, progress: Progress) -> None:
    """Stage 3: a network on true and pseudo-labels; the base in the end, all of them between two rounds."""
    options = _options(recipe, progress)
    from cdp.nets.joint import train_joint
    from cdp.nets.label_files import read_pseudo_part

    n_found = Labels.load(folder / labels).n_identities
    if n_found < 2:
        raise InputError(
            "No image got a label: the networks are too weak to agree on any pair. Train them longer, or lower "
            "consensus.threshold."
            if n_found == 0
            else "All labeled images ended in one group; raise consensus.threshold, or lower consensus.max_size."
        )
    share = recipe.joint.labeled_share
    train_joint(
        part(folder, "labeled"),
        [read_pseudo_part(part(folder, "unlabeled"), folder / labels, soft=recipe.joint.soft_depth > 0)],
        network,
        folder / room,
        recipe=recipe.joint.recipe(recipe.seed),
        labeled_share=None if share < 0 else share,
        memory_budget=recipe.engine.memory_budget,
        threads=recipe.engine.threads,
        options=options,
    )


def train_bound(recipe: RunRecipe, folder: Path, progress: Progress) -> None:
    """The base network on all true labels: what could be reached if every label were known."""
    options = _options(recipe, progress)
    from cdp.nets.supervised import train_supervised

    everyone = merge_manifests([part(folder, "labeled"), part(folder, "unlabeled")])
    require_identities(everyone)
    train_supervised(
        everyone,
        [recipe.base.network],
        folder / "bound",
        recipe=recipe.joint.recipe(recipe.seed),
        memory_budget=recipe.engine.memory_budget,
        threads=recipe.engine.threads,
        options=options,
    )


def _options(recipe: RunRecipe, progress: Progress) -> LoopOptions:
    """torch, with the threads the recipe asks for."""
    from cdp.nets.torchvision_guard import require

    torch = require("torch")
    from cdp.nets.loop import LoopOptions

    torch.set_num_threads(recipe.engine.threads or os.cpu_count() or 1)
    return LoopOptions(recipe.engine.checkpoint_every, progress=progress)

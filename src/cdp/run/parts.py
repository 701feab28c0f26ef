"""The parts of a run: who is labeled, who is to be labeled, who is found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.config.environment import embedding_files
from cdp.config.sections import RunRecipe
from cdp.data.array_files import open_npy
from cdp.data.manifests import read_manifest
from cdp.data.merge import merge_manifests
from cdp.data.rotations import families, rotated
from cdp.data.split import split_by_identity
from cdp.errors import InputError
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest


@dataclass(frozen=True, eq=False)
class Parts:
    """The tables that the stages read.

    Attributes:
        labeled: images whose identities may be used.
        unlabeled: all images to be labeled; the validation part comes last, if there is one.
        n_validation: how many rows of `unlabeled` are the validation part, whose identities may be used to
            choose a threshold, as in the paper, where it is one of the unlabeled parts.
        probes: people to be found again; None where nothing is trained.
        distractors: people they must be told from; None where nothing is trained.
    """

    labeled: Manifest
    unlabeled: Manifest
    n_validation: int
    probes: Manifest | None
    distractors: Manifest | None


def source_names(recipe: RunRecipe) -> tuple[str, ...]:
    """The sources that a recipe reads, as artifact names."""
    data = recipe.data
    if data.is_drawn:
        return ("drawn faces", "drawn test faces")
    if data.embeddings:
        return ("images",)
    told = ["images"] if data.images else ["labeled images", "unlabeled images"]
    if data.validation:
        told.append("validation images")
    return (*told, "test images") if data.test else tuple(told)


def read_sources(recipe: RunRecipe, folder: Path) -> dict[str, Manifest]:
    """The manifests behind `source_names`; drawn faces are read from the run's folder."""
    data = recipe.data
    if data.is_drawn:
        return {
            "drawn faces": read_manifest(folder / "drawn" / "faces.zip"),
            "drawn test faces": read_manifest(folder / "drawn" / "test_faces.zip"),
        }
    if data.embeddings:
        return {"images": _rows_of(embedding_files(recipe)["identities"])}
    places = {
        "images": (data.images,),
        "labeled images": (data.labeled,),
        "unlabeled images": data.unlabeled,
        "validation images": (data.validation,),
        "test images": (data.test,),
    }
    return {
        name: merge_manifests([_read(place, recipe) for place in places[name]])
        for name in source_names(recipe)
    }


def _rows_of(file: Path) -> Manifest:
    """Rows of arrays in place of images: `identities.npy!17`."""
    identities = open_npy(file)
    if identities.ndim != 1 or identities.dtype.kind not in "iu":
        raise InputError(
            f"{file}: one whole number per image is needed, this is {identities.dtype} of shape {identities.shape}."
        )
    return Manifest(tuple(f"{file.absolute()}!{row}" for row in range(len(identities))), identities)


def row_numbers(table: Manifest) -> LongArray:
    """The rows that a part of such a table stands for."""
    return np.array([int(place.rpartition("!")[2]) for place in table.locations], np.int64)


def _read(place: str, recipe: RunRecipe) -> Manifest:
    return read_manifest(place, root=recipe.data.root or None, skip=recipe.data.skip or None)


def make_parts(recipe: RunRecipe, sources: Mapping[str, Manifest]) -> Parts:
    """Cut the sources as the recipe says; nobody is on two sides."""
    chosen = recipe.split
    turn = rotated if recipe.data.rotations else _as_it_is
    images = sources.get("images", sources.get("drawn faces"))
    test = sources.get("test images", sources.get("drawn test faces"))
    probes = distractors = None
    if images is not None:
        split = split_by_identity(
            turn(images),
            labeled=chosen.labeled,
            unlabeled_parts=chosen.unlabeled_parts,
            validation=chosen.validation,
            probes=chosen.probes,
            distractors=chosen.distractors,
            seed=recipe.seed,
        )
        labeled, parts = split.labeled, list(split.unlabeled)
        if chosen.use_parts:
            parts = parts[: chosen.use_parts]
        validation = split.validation
        probes, distractors = split.probes, split.distractors
    else:
        labeled = turn(sources["labeled images"])
        parts = [turn(sources["unlabeled images"])]
        validation = turn(sources["validation images"]) if "validation images" in sources else None
    if not recipe.data.truth:
        parts = [without_identities(part) for part in parts]
    if recipe.evaluation.bound and recipe.data.truth and not recipe.data.embeddings:
        for part in parts:
            require_identities(part)
    if validation is not None:
        parts.append(validation)
    if test is not None:
        probes, distractors = _cut_test(test, chosen.test_probes, recipe.seed)
    if (probes is None or distractors is None) and not recipe.data.embeddings:
        raise InputError(
            "Nobody is there to be found again: give data.test, or split.probes and split.distractors."
        )
    return Parts(
        labeled, merge_manifests(parts), 0 if validation is None else len(validation), probes, distractors
    )


def require_identities(manifest: Manifest) -> None:
    """The bound is trained on every image, so it needs to know them all; better said before hours of training."""
    if (manifest.identities < 0).any():
        raise InputError(
            "evaluation.bound = true needs the true identity of every unlabeled image, and some have none; write "
            "evaluation.bound = false."
        )


def without_identities(manifest: Manifest) -> Manifest:
    """The same images, of whom nothing is known."""
    return Manifest(
        manifest.locations, np.full(len(manifest), -1), manifest.names, manifest.root, manifest.turns
    )


def _as_it_is(manifest: Manifest) -> Manifest:
    return manifest


def _cut_test(test: Manifest, share: float, seed: int) -> tuple[Manifest, Manifest]:
    """Probes and distractors of a test set: a share of its people, drawn at random, and the others."""
    known = test.take(test.identities >= 0)
    people = np.unique(known.identities)
    several = people[known.sizes > 1]
    n_probes = round(share * len(people))
    if not 0 < n_probes < len(people) or not len(several):
        raise InputError(
            f"split.test_probes = {share:g} of {len(people):,} people leaves no probes or no distractors; "
            "choose a share such as 0.5, and people with two images or more."
        )
    chosen = np.random.default_rng([seed, 1]).permutation(several)[:n_probes]
    is_probe = np.isin(known.identities, chosen)
    return known.take(is_probe), known.take(~is_probe)


def fold_of_rows(labeled: Manifest, folds: int, seed: int) -> LongArray:
    """Which fold every labeled image is in, int64 (n,); identities that share pictures stay together."""
    family = families(labeled)
    members = np.unique(family)
    if len(members) < 2 * folds:
        raise InputError(
            f"consensus.folds = {folds}: {len(members)} labeled identities make folds of less than two; "
            "use fewer folds, or 0."
        )
    numbers = np.random.default_rng([seed, 2]).permutation(len(members)) % folds
    return numbers[np.searchsorted(members, family)]

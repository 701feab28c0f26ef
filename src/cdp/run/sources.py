"""What a recipe starts from, and what it can do with it: shares, the bar and the figures are settled before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cdp.config.environment import network_files, source_kind
from cdp.config.sections import RunRecipe
from cdp.data.array_files import open_npy
from cdp.data.ijb import TemplateProtocol, read_templates
from cdp.data.image_names import ImageNames
from cdp.data.manifests import read_manifest
from cdp.data.merge import merge_manifests
from cdp.data.views import looks_like_views, read_views
from cdp.types import Views
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest

PROBE_PARTS = ("probes", "distractors")
TEMPLATES = "templates"
TEMPLATE_IMAGES = "template images"
_VALIDATION_SHARE = 1 / 11
_TEST_SHARE = 0.1


@dataclass(frozen=True)
class Facts:
    """What the sources of a recipe hold.

    Attributes:
        kind: images, which networks are trained on, or embeddings.
        unlabeled_known: whether every unlabeled image has a true identity.
        models: the base and the committee as the embeddings name them; empty for images.
    """

    kind: Literal["images", "embeddings"]
    unlabeled_known: bool = True
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settled:
    """A recipe in which nothing is left to be decided, and a sentence for each thing that was left out."""

    recipe: RunRecipe
    facts: Facts
    notes: tuple[str, ...] = ()

    @property
    def test_parts(self) -> tuple[str, ...]:
        """The parts that networks are tested on: probes and distractors, templates, both or none."""
        data = self.recipe.data
        has_probes = bool(data.test or data.probes) or self.recipe.split.probes > 0
        return (*(PROBE_PARTS if has_probes else ()), *((TEMPLATES,) if data.templates else ()))

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation part."""
        return bool(self.recipe.data.validation) or self.recipe.split.validation > 0


def source_names(recipe: RunRecipe) -> tuple[str, ...]:
    """The sources that a recipe reads, as artifact names."""
    return tuple(name for name, paths in _sources(recipe).items() if any(paths))


def source_paths(recipe: RunRecipe, name: str) -> tuple[str, ...]:
    """Where a source lies; the unlabeled one may lie in several places."""
    return _sources(recipe)[name]


def _sources(recipe: RunRecipe) -> dict[str, tuple[str, ...]]:
    data = recipe.data
    return {
        "images": (data.images or data.embeddings,),
        "labeled images": (data.labeled,),
        "unlabeled images": data.unlabeled,
        "validation images": (data.validation,),
        "test images": (data.test,),
        "probe images": (data.probes,),
        "distractor images": (data.distractors,),
        TEMPLATE_IMAGES: (data.template_images,),
    }


def read_source(recipe: RunRecipe, name: str) -> Manifest:
    """The manifest of a source: its images, or the rows of its embeddings, as `FILE!ROW`."""
    if source_kind(recipe) == "embeddings":
        return merge_manifests([_rows_of(recipe, path) for path in source_paths(recipe, name)])
    if name == TEMPLATE_IMAGES:
        return read_template_images(recipe)[0]
    data = recipe.data
    return merge_manifests(
        [
            read_manifest(path, root=data.root or None, skip=data.skip or None)
            for path in source_paths(recipe, name)
        ]
    )


def read_template_images(recipe: RunRecipe) -> tuple[Manifest, list[TemplateProtocol]]:
    """The images that the files of data.templates name, and the protocols with their rows among these images."""
    data = recipe.data
    given = read_manifest(data.template_images, root=data.root or None)
    names = ImageNames(given.locations, f"data.template_images = {data.template_images}")
    protocols = read_templates(data.templates, names)
    used = np.unique(np.concatenate([one.images for one in protocols]))
    images = Manifest(given.take(used).locations, np.full(len(used), -1), root=given.root)
    return images, [replace(one, images=np.searchsorted(used, one.images)) for one in protocols]


def read_given_views(recipe: RunRecipe, path: str) -> Views:
    """The views at a path: in a layout of views, or a folder of NETWORK.npy as the recipe names the networks."""
    if looks_like_views(path):
        return read_views(path)
    identities, base, *members = network_files(recipe).values()
    return Views(
        open_npy(base),
        {member.stem: open_npy(member) for member in members},
        np.asarray(open_npy(identities)),
    )


def views_of_source(recipe: RunRecipe, name: str) -> dict[str, Views]:
    """The views of a source by path, where it is embeddings."""
    return {path: read_given_views(recipe, path) for path in source_paths(recipe, name)}


def _rows_of(recipe: RunRecipe, path: str) -> Manifest:
    views = read_given_views(recipe, path)
    identities = np.full(views.n_images, -1) if views.identities is None else views.identities
    locations = tuple(f"{_row_file(path)}!{row}" for row in range(views.n_images))
    return Manifest(locations, np.maximum(identities, -1))


def _row_file(path: str) -> Path:
    """A file that stands for the embeddings at a path where single rows are named."""
    given = Path(path).absolute()
    names = ("base.npy", "base.bin", "identities.npy")
    return next((given / name for name in names if (given / name).is_file()), given)


def rows_of_part(table: Manifest, sources: Mapping[str, Views]) -> list[tuple[Views, LongArray]]:
    """Which rows of which views a part of embeddings stands for, in order."""
    views = {str(_row_file(path)): one for path, one in sources.items()}
    files = np.array([location.rpartition("!")[0] for location in table.locations])
    rows = np.array([int(location.rpartition("!")[2]) for location in table.locations], np.int64)
    ends = [0, *(np.flatnonzero(files[1:] != files[:-1]) + 1).tolist(), len(files)]
    return [(views[files[start]], rows[start:stop]) for start, stop in pairwise(ends)]


def look_at(recipe: RunRecipe) -> Facts:
    """Read the sources' tables, not their pixels."""
    kind = source_kind(recipe)
    name = "images" if recipe.data.is_split_here else "unlabeled images"
    known = bool((read_source(recipe, name).identities >= 0).all())
    models: tuple[str, ...] = ()
    if kind == "embeddings":
        views = next(iter(views_of_source(recipe, name).values()))
        models = views.names
    return Facts(kind, known, models)


def settle(recipe: RunRecipe, facts: Facts | None = None) -> Settled:
    """Decide what the recipe leaves open (-1 and `auto`), and leave out what cannot be measured, with a sentence."""
    facts = facts or look_at(recipe)
    notes: list[str] = []
    if facts.kind == "embeddings" and recipe.data.templates:
        notes.append("data.templates was not used: its images can be embedded by networks of the run only.")
        recipe = replace(recipe, data=replace(recipe.data, templates="", template_images=""))
    recipe = _settle_shares(recipe, facts, notes)
    consensus: dict[str, Any] = {}
    settled = Settled(recipe, facts)
    if facts.kind == "images":
        if recipe.consensus.train_on == "auto":
            unseen = settled.has_validation and not recipe.train.folds
            consensus["train_on"] = "validation" if unseen else "labeled"
        if recipe.consensus.tune and not settled.has_validation:
            consensus["tune"] = False
            notes.append(
                f"{recipe.consensus.bar_key} = {recipe.consensus.bar:g} was not tuned: there is no validation part; give "
                "data.validation, or split.validation a share."
            )
    elif recipe.consensus.train_on == "auto":
        consensus["train_on"] = "labeled"
    if facts.kind == "images" and PROBE_PARTS[0] not in settled.test_parts:
        missing = "identification" if settled.test_parts else "recognition"
        notes.append(
            f"There are no probe images, so {missing} was not measured; give data.test, data.probes and "
            "data.distractors, or split.probes and split.distractors a share."
        )
    is_tested = facts.kind == "images" and bool(settled.test_parts)
    if recipe.evaluation.bound and not (is_tested and facts.unlabeled_known and recipe.data.truth):
        if is_tested:
            notes.append(
                "The upper bound was left out: not every unlabeled image has a true identity to train on."
            )
        recipe = replace(recipe, evaluation=replace(recipe.evaluation, bound=False))
    recipe = replace(recipe, consensus=replace(recipe.consensus, **consensus))
    return Settled(recipe, facts, tuple(notes))


def _settle_shares(recipe: RunRecipe, facts: Facts, notes: list[str]) -> RunRecipe:
    split, consensus = recipe.split, recipe.consensus
    is_split = recipe.data.is_split_here
    wants_validation = is_split and (consensus.tune or consensus.train_on == "validation")
    wants_test = is_split and not (recipe.data.test or recipe.data.probes) and facts.kind == "images"
    shares: dict[str, Any] = {}
    if split.validation < 0:
        shares["validation"] = _VALIDATION_SHARE if wants_validation else 0.0
    for name in ("probes", "distractors"):
        if getattr(split, name) < 0:
            shares[name] = _TEST_SHARE if wants_test else 0.0
    if facts.kind == "embeddings" and (split.probes > 0 or split.distractors > 0):
        notes.append("split.probes and split.distractors were not used: embeddings are not trained again.")
        shares |= {"probes": 0.0, "distractors": 0.0}
    return replace(recipe, split=replace(split, **shares))

"""Sources of a recipe, and the resolved recipe: shares, threshold and figures are decided first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cdp.config.checks import check_recipe, folder_name, frozen_file, network_names, trained_members
from cdp.config.environment import check_environment, least_size, source_kind
from cdp.config.sections import RunRecipe
from cdp.data.ijb import TemplateProtocol, read_templates
from cdp.data.image_names import ImageNames
from cdp.data.manifests import merge_manifests, read_manifest
from cdp.data.views import looks_like_views, read_identity_names, read_views
from cdp.errors import InputError
from cdp.run import choices
from cdp.run.image_scan import ImageScan, scan_images
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.array_files import naming, open_npy
from cdp.types import Views
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest

Kind = Literal["images", "embeddings"]
PROBE_PARTS = ("probes", "distractors")
TEMPLATES = "templates"
TEMPLATE_IMAGES = "template images"
START = "starting weights"
_TEST_SHARE = 0.1


@dataclass(frozen=True)
class Facts:
    """What the sources of a recipe hold.

    Attributes:
        kind: images, which networks are trained on, or embeddings.
        unlabeled_known: whether every unlabeled image has a true identity.
        models: the base and the committee of given embeddings; empty for images.
        identities: those with two images or more in what is to be split; None if it is split already, or not
            known.
        least_size: pixels a side that the networks need at least.
        scan: what was seen of the images; None if they were not looked at.
    """

    kind: Kind
    unlabeled_known: bool = True
    models: tuple[str, ...] = ()
    identities: int | None = None
    least_size: int = 0
    scan: ImageScan | None = field(default=None, compare=False, repr=False)


class Sources:
    """What a recipe starts from, each read once, when it is first asked for."""

    def __init__(self, recipe: RunRecipe, scan: ImageScan | None = None) -> None:
        self._recipe = recipe
        self._read = cache(partial(read_source, recipe))
        self._scan = scan
        self.views = cache(partial(views_of_source, recipe))
        self.templates = cache(partial(read_template_images, recipe))

    def manifest(self, name: str) -> Manifest:
        """Return the images of a source, without those that cannot be read."""
        return self._read(name) if self._scan is None else self._scan.readable(name, self._read(name))

    def scanned(self, memory: Path | None, progress: Progress) -> tuple[Sources, ImageScan]:
        """Scan the sources for unreadable images; `memory` is the file of an earlier scan."""
        manifests = {name: self._read(name) for name in self.names}
        scan = scan_images(manifests, memory, self._recipe.engine.threads, progress)
        if lost := scan.unreadable.get(TEMPLATE_IMAGES):
            raise InputError(
                f"data.template_images: {lost[0].location}: {lost[0].reason} The protocol names it, so it "
                "cannot be left out.",
                code="template-image-unreadable",
                file=lost[0].location,
                count=len(lost),
            )
        fresh = Sources(self._recipe, scan)
        fresh._read = self._read
        return fresh, scan

    @property
    def names(self) -> tuple[str, ...]:
        """As artifact names."""
        return source_names(self._recipe)

    @property
    def has_templates(self) -> bool:
        """Whether there are protocols of templates."""
        return bool(self._recipe.data.templates)


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe in which nothing is left to be decided, and a sentence for each thing that was left out.

    Attributes:
        notes: what was left out, for who reads the result.
        said: what was chosen and found, for who waits.
        given: what was read of the sources already.
    """

    recipe: RunRecipe
    facts: Facts
    notes: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    given: Sources | None = field(default=None, compare=False, repr=False)

    @cached_property
    def sources(self) -> Sources:
        """What the recipe starts from."""
        return self.given or Sources(self.recipe)

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation part."""
        return bool(self.recipe.data.validation) or self.recipe.split.validation > 0

    @property
    def test_parts(self) -> tuple[str, ...]:
        """The parts that networks are tested on: probes and distractors, templates, both or none."""
        data = self.recipe.data
        has_probes = bool(data.test or data.probes) or self.recipe.split.probes > 0
        return (*(PROBE_PARTS if has_probes else ()), *((TEMPLATES,) if data.templates else ()))

    @property
    def has_bound(self) -> bool:
        """Whether a network can be trained on all true labels and measured."""
        is_known = self.facts.unlabeled_known and self.recipe.data.truth
        return (
            self.recipe.evaluation.bound
            and self.facts.kind == "images"
            and frozen_file(self.recipe.base.network) is None
            and bool(self.test_parts)
            and is_known
        )


def source_names(recipe: RunRecipe) -> tuple[str, ...]:
    """Return the sources that a recipe reads, as artifact names."""
    return tuple(name for name, paths in _sources(recipe).items() if any(paths))


def model_source(network: str) -> str:
    """Return the artifact name of a model that is used as it is."""
    return f"model {folder_name(network)}"


def source_paths(recipe: RunRecipe, name: str) -> tuple[str, ...]:
    """Return where a source is stored; the unlabeled one may be several files or folders."""
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
    """Return the manifest of a source: its images, or the rows of its embeddings, as `FILE!ROW`."""
    paths = source_paths(recipe, name)
    if source_kind(recipe) == "embeddings":
        return merge_manifests([_rows_of(recipe, path) for path in paths])
    if name == TEMPLATE_IMAGES:
        return read_template_images(recipe)[0]
    root, skip = recipe.data.root or None, recipe.data.skip or None
    return merge_manifests([read_manifest(path, root=root, skip=skip) for path in paths])


def read_template_images(recipe: RunRecipe) -> tuple[Manifest, list[TemplateProtocol]]:
    """Read the images of data.templates, and the protocols with their rows among these images."""
    data = recipe.data
    given = read_manifest(data.template_images, root=data.root or None)
    names = ImageNames(given.locations, f"data.template_images = {data.template_images}")
    protocols = read_templates(data.templates, names)
    used = np.unique(np.concatenate([one.images for one in protocols]))
    images = Manifest(given.take(used).locations, np.full(len(used), -1), root=given.root)
    return images, [replace(one, images=np.searchsorted(used, one.images)) for one in protocols]


def read_given_views(recipe: RunRecipe, path: str) -> Views:
    """Read views at a path, or a folder of NETWORK.npy named as the recipe's networks."""
    if looks_like_views(path):
        return read_views(path)
    folder, names = Path(path), network_names(recipe)
    for name in ("identities", *names):
        if not (folder / f"{name}.npy").is_file():
            raise InputError(
                f"{folder / name}.npy does not exist; give views (base.npy, committee/NAME.npy), or a "
                "folder with identities.npy and one .npy per network.",
                code="network-embeddings-missing",
                file=f"{folder / name}.npy",
            )
    base, *committee = (open_npy(folder / f"{name}.npy") for name in names)
    with naming(folder, folder=folder):
        return Views(
            base,
            dict(zip(names[1:], committee, strict=True)),
            np.asarray(open_npy(folder / "identities.npy")),
        )


def views_of_source(recipe: RunRecipe, name: str) -> dict[str, Views]:
    """Return the views of a source by path, where it is embeddings."""
    return {path: read_given_views(recipe, path) for path in source_paths(recipe, name)}


def _rows_of(recipe: RunRecipe, path: str) -> Manifest:
    views = read_given_views(recipe, path)
    identities = np.full(views.n_images, -1) if views.identities is None else views.identities
    locations = tuple(f"{_row_file(path)}!{row}" for row in range(views.n_images))
    # Views number the names of each file by themselves; people are the same across files by name only.
    texts = read_identity_names(path) if looks_like_views(path) else None
    names = None
    if texts is not None:
        name_of = dict(zip(identities.tolist(), texts.tolist(), strict=True))
        names = tuple(name_of.get(number, "") for number in range(identities.max() + 1))
    return Manifest(locations, np.maximum(identities, -1), names)


def _row_file(path: str) -> Path:
    """Return a file that stands for the embeddings at a path where single rows are named."""
    given = Path(path).absolute()
    if given.is_file():
        return given
    names = ("base.npy", "base.bin", "identities.npy")
    known = (given / name for name in names if (given / name).is_file())
    return next(known, None) or next(file for file in sorted(given.rglob("*")) if file.is_file())


def rows_of_part(table: Manifest, sources: Mapping[str, Views]) -> list[tuple[Views, LongArray]]:
    """Return which rows of which views a part of embeddings stands for, in order."""
    views = {str(_row_file(path)): one for path, one in sources.items()}
    files = np.array([location.rpartition("!")[0] for location in table.locations])
    rows = np.array([int(location.rpartition("!")[2]) for location in table.locations], np.int64)
    ends = [0, *(np.flatnonzero(files[1:] != files[:-1]) + 1).tolist(), len(files)]
    return [(views[files[start]], rows[start:stop]) for start, stop in pairwise(ends)]


def look_at(recipe: RunRecipe, given: Sources | None = None) -> Facts:
    """Read the sources' tables, not their pixels."""
    sources = given or Sources(recipe)
    identities = None
    if recipe.data.is_split_here:
        table = sources.manifest("images")
        identities = int((table.sizes > 1).sum()) * (4 if recipe.data.rotations else 1)
    if source_kind(recipe) == "images":
        name = "images" if recipe.data.is_split_here else "unlabeled images"
        is_known = bool((sources.manifest(name).identities >= 0).all())
        return Facts("images", is_known, identities=identities, least_size=least_size(recipe))
    models = {
        path: views.names for name in source_names(recipe) for path, views in sources.views(name).items()
    }
    first, *others = models
    for other in others:
        if models[other] != models[first]:
            raise InputError(
                f"{other} has the models {', '.join(models[other])}, and {first} has "
                f"{', '.join(models[first])}: embed all parts with the same models.",
                code="sources-models-differ",
                expected=tuple(models[first]),
                found=tuple(models[other]),
            )
    own_names = tuple(network_names(recipe)) if not looks_like_views(first) else models[first]
    return Facts("embeddings", models=own_names, identities=identities)


def prepare(
    recipe: RunRecipe, memory: Path | None = None, progress: Progress = no_progress
) -> ResolvedRecipe:
    """Check a recipe, look at its images and decide what it leaves open; nothing is written.

    Args:
        memory: file of an earlier scan of the images.
        progress: of the scan.
    """
    check_recipe(recipe)
    check_environment(recipe)
    sources = Sources(recipe)
    facts = look_at(recipe, sources)
    if facts.kind == "images":
        sources, scan = sources.scanned(memory, progress)
        facts = replace(look_at(recipe, sources), scan=scan)
    resolved = replace(resolve(recipe, facts), given=sources)
    check_recipe(resolved.recipe)
    return resolved


def embedding_bytes(resolved: ResolvedRecipe) -> int:
    """Estimate the size of the embeddings that a run writes; what earlier stages wrote is not subtracted."""
    recipe, sources = resolved.recipe, resolved.sources
    if resolved.facts.scan is None:
        views = [one for name in sources.names for one in sources.views(name).values()]
        return sum(4 * one.n_images * sum(model.dimensions for model in one) for one in views)
    return 4 * resolved.facts.scan.n_images * recipe.train.dimensions * len(network_names(recipe))


def resolve(recipe: RunRecipe, facts: Facts) -> ResolvedRecipe:
    """Decide what the recipe leaves open (-1, `auto`) and drop unmeasurable figures, with sentences."""
    is_trained = facts.kind == "images" and bool(trained_members(recipe))
    chosen = resolve_shares(recipe, is_trained, facts.identities)
    said = choices.split_sentences(recipe.split, chosen.split, facts.identities)
    pixels: list[str] = []
    if is_trained:
        chosen = choices.with_sizes(chosen, facts.scan, facts.least_size)
    if facts.scan is not None:
        pixels = choices.image_sentences(chosen, facts.scan, is_trained)
        sizes = choices.size_sentences(recipe, chosen, facts.scan) if is_trained else []
        said = [*pixels, *said, *sizes]
    resolved = _resolve_consensus(recipe, ResolvedRecipe(chosen, facts), is_trained)
    return replace(resolved, notes=(*pixels, *resolved.notes), said=tuple(said))


def _resolve_consensus(recipe: RunRecipe, resolved: ResolvedRecipe, is_trained: bool) -> ResolvedRecipe:
    """Fill in the mediator's training images and the threshold, with notes on what is left out."""
    notes: list[str] = []
    consensus = resolved.recipe.consensus
    by_similarity = consensus.mediator == "similarity"
    if consensus.train_on == "auto":
        is_unseen = is_trained and resolved.has_validation and not recipe.train.folds
        consensus = replace(consensus, train_on="validation" if is_unseen else "labeled")
    if is_trained and consensus.threshold is None and not resolved.has_validation and not by_similarity:
        # Of given embeddings some labeled identities are held out; here the networks were trained on all of
        # them.
        consensus = replace(consensus, threshold=consensus.default_threshold)
        where = "split.validation a share" if recipe.data.is_split_here else "data.validation"
        notes.append(
            f"threshold = {consensus.threshold:g}, the default, was not chosen on labeled identities: there "
            f"is no validation part; give {where}."
        )
    if is_trained and PROBE_PARTS[0] not in resolved.test_parts:
        missing = "identification" if resolved.test_parts else "recognition"
        notes.append(
            f"There are no probe images, so {missing} was not measured; give data.test"
            f"{', or split.probes and split.distractors a share' if recipe.data.is_split_here else ''}."
        )
    if is_trained and resolved.test_parts and recipe.evaluation.bound and not resolved.has_bound:
        notes.append(
            "The upper bound was left out: not every unlabeled image has a true identity to train on."
        )
    return replace(resolved, recipe=replace(resolved.recipe, consensus=consensus), notes=tuple(notes))


def resolve_shares(recipe: RunRecipe, is_trained: bool, identities: int | None = None) -> RunRecipe:
    """Set open shares of the split: validation if it is used, test if networks are trained.

    Args:
        identities: how many there are to split; None = enough.
    """
    split, consensus = recipe.split, recipe.consensus
    shares: dict[str, Any] = {
        "validation": split.validation,
        "probes": split.probes,
        "distractors": split.distractors,
    }
    if not recipe.data.is_split_here:
        shares = dict.fromkeys(shares, 0.0)
    is_given = bool(recipe.data.test or recipe.data.probes)
    is_tested = is_trained and not is_given and 0 not in (split.probes, split.distractors)
    for name in ("probes", "distractors"):
        if shares[name] < 0:
            given = max(shares["probes"], shares["distractors"])
            shares[name] = given if given > 0 else _TEST_SHARE if is_tested else 0.0
    if shares["validation"] < 0:
        is_used = consensus.threshold is None or consensus.train_on == "validation"
        rest = 1 - shares["probes"] - shares["distractors"]
        shares["validation"] = choices.validation_share(identities, rest) if is_used else 0.0
    chosen = replace(split, **shares)
    return replace(
        recipe, split=choices.choose_parts(chosen, identities) if recipe.data.is_split_here else chosen
    )

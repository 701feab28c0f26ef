"""Stage 1: the base model and the committee, each trained on the labeled part."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cdp.errors import InputError, name_rows
from cdp.nets.loop import LoopOptions, train_network
from cdp.nets.losses import check_classes
from cdp.nets.pixels import Look, decode_pixels, fingerprint
from cdp.nets.processes import World
from cdp.nets.recipe import Recipe
from cdp.nets.spaces import Space
from cdp.nets.trunks import find_trunk
from cdp.types.arrays import ByteArray
from cdp.types.manifest import Manifest


@dataclass(frozen=True)
class Member:
    """A network to train: `NAME`, or `NAME:SEED` for one of several of the same architecture."""

    network: str
    seed: int | None = None

    @classmethod
    def parse(cls, text: str) -> Member:
        """From what was typed."""
        network, colon, seed = text.partition(":")
        if colon and not seed.isdecimal():
            raise InputError(
                f"--network {text}: write NAME or NAME:SEED with a whole number, e.g. resnet18:1."
            )
        return cls(network, int(seed) if colon else None)

    @property
    def name(self) -> str:
        """Of its folder, and of its embeddings in Views."""
        return self.network if self.seed is None else f"{self.network}-{self.seed}"

    def own(self, recipe: Recipe) -> Recipe:
        """The recipe with this member's seed: its own, moved by the recipe's.

        Moved, so that `vgg` and `vgg:1` are never the same network, whatever the recipe's seed, and a repetition with
        another seed is one for all members.
        """
        return recipe if self.seed is None else replace(recipe, seed=self.seed + 1000 * recipe.seed)


def train_supervised(
    manifest: Manifest,
    networks: Sequence[str],
    out: str | Path,
    *,
    recipe: Recipe | None = None,
    memory_budget: int | float | str = "2GB",
    threads: int = 0,
    world: World | None = None,
    options: LoopOptions | None = None,
) -> list[Path]:
    """Train networks on a labeled manifest, one after another; the images are decoded once.

    Args:
        manifest: images with identities; images without one (-1) are not used.
        networks: `NAME` or `NAME:SEED`; the same name with several seeds makes a homogeneous committee.
        out: folder; each network gets a folder of its name in it.
        recipe: settings; a network's own seed is added to a thousand times the recipe's.
        memory_budget: most memory for decoded images; beyond it they are kept on disk in `out`.
        threads: decoding threads.
        world: the processes that train together.
        options: checkpoints, log, progress.

    Returns:
        One folder per network.
    """
    recipe, world, options = recipe or Recipe(), world or World(), options or LoopOptions()
    members = [Member.parse(text) for text in networks]
    names = [member.name for member in members]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--network {name} is given twice; add seeds, e.g. {name}:1 and {name}:2.")
    for member in members:
        find_trunk(member.network)
    space = labeled_space(manifest, None)
    place = Path(out)
    pixels = shared_pixels(manifest, recipe, place, memory_budget, threads, world, options)
    space = replace(space, pixels=pixels)
    folders = []
    for member in members:
        own = member.own(recipe)
        folders.append(
            train_network(
                place / member.name,
                member.network,
                own,
                [space],
                made_from={"manifest": fingerprint(manifest)},
                world=world,
                options=options,
            )
        )
    return folders


def labeled_space(manifest: Manifest, pixels: ByteArray | None, name: str = "labeled") -> Space:
    """The label space of a manifest's own identities."""
    classes = manifest.classes
    rows = np.flatnonzero(classes >= 0)
    if not len(rows):
        raise InputError(f"{name}: no image of the manifest has an identity; fill in its identity column.")
    check_classes(manifest.n_identities)
    alone = manifest.sizes == 1
    if alone.any():
        numbers = np.unique(manifest.identities[rows])[alone]
        where = np.flatnonzero(np.isin(manifest.identities, numbers))
        warnings.warn(
            f"{name}: {int(alone.sum()):,} of {manifest.n_identities:,} identities have one image only "
            f"({name_rows(where)}); they are trained on, but teach little.",
            stacklevel=2,
        )
    held = np.empty((0, 1, 1, 1), np.uint8) if pixels is None else pixels
    return Space(name, held, rows, classes[rows], manifest.n_identities, 1.0, fingerprint(manifest))


def shared_pixels(
    manifest: Manifest,
    recipe: Recipe,
    place: Path,
    memory_budget: int | float | str,
    threads: int,
    world: World,
    options: LoopOptions,
) -> ByteArray:
    """The decoded images; several processes share one file, which the first one writes."""
    budget = 0 if world.is_shared else memory_budget
    folder, look = place / ".pixels", Look.of(recipe)
    if world.is_first:
        pixels = decode_pixels(
            manifest, look, folder=folder, memory_budget=budget, threads=threads, progress=options.progress
        )
    world.wait()
    if not world.is_first:
        pixels = decode_pixels(manifest, look, folder=folder, memory_budget=budget, threads=threads)
    return pixels

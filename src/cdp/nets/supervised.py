"""Stage 1: the base model and the committee, each trained on the labeled part."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from cdp.errors import InputError, name_rows
from cdp.nets.embedding import count_parameters
from cdp.nets.label_spaces import NO_PIXELS, LabelSpace
from cdp.nets.loop import LoopOptions, train_network
from cdp.nets.losses import check_classes
from cdp.nets.pixels import PixelFormat, check_headers, decode_pixels
from cdp.nets.processes import joined_world
from cdp.nets.recipe import Recipe
from cdp.nets.trunks import find_trunk
from cdp.storage.files import LEAST_ROOM, check_writable
from cdp.types.manifest import Manifest

_CHECKPOINT_BYTES = 16
"""Per parameter: weights and momentum as float32, in a checkpoint and the one before it."""


@dataclass(frozen=True)
class Member:
    """A network to train: `NAME`, or `NAME:SEED` for one of several of the same architecture."""

    network: str
    seed: int | None = None

    @classmethod
    def parse(cls, text: str) -> Member:
        """Parse the text of an option."""
        network, colon, seed = text.partition(":")
        if colon and not seed.isdecimal():
            raise InputError(
                f"--network {text}: write NAME or NAME:SEED with a whole number, e.g. resnet18:1.",
                code="network-text-wrong",
                option="--network",
                value=text,
            )
        return cls(network, int(seed) if colon else None)

    @property
    def name(self) -> str:
        """Of its folder, and of its embeddings in Views."""
        return self.network if self.seed is None else f"{self.network}-{self.seed}"

    def with_seed(self, recipe: Recipe) -> Recipe:
        """Return the recipe with this member's seed: its own, moved by the recipe's.

        Moved, so that `vgg` and `vgg:1` are never the same network, whatever the recipe's seed, and a
        repetition with another seed is one for all members.
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
    device: str = "auto",
    options: LoopOptions | None = None,
) -> list[Path]:
    """Train networks on a labeled manifest, one after another; the images are decoded once.

    Under torchrun all processes call this, each with a part of every batch.

    Args:
        manifest: images with identities; images without one (-1) are not used.
        networks: `NAME` or `NAME:SEED`; the same name with several seeds makes a homogeneous committee.
        out: folder; each network gets a folder of its name in it.
        recipe: settings; a network's own seed is added to a thousand times the recipe's.
        memory_budget: most memory for decoded images; beyond it they are kept in `out`.

    Returns:
        The networks' folders, in order.
    """
    members = [Member.parse(text) for text in networks]
    names = [member.name for member in members]
    for member in members:
        if names.count(member.name) > 1:
            raise InputError(
                f"--network {member.name} is given twice; add seeds, e.g. {member.network}:1 and "
                f"{member.network}:2.",
                code="network-given-twice",
                option="--network",
                network=member.name,
            )
        find_trunk(member.network)
    parts = [(labeled_space(manifest), manifest)]
    return train_members(members, parts, Path(out), recipe, memory_budget, threads, device, options)


def train_members(
    members: Sequence[Member],
    parts: Sequence[tuple[LabelSpace, Manifest]],
    out: Path,
    recipe: Recipe | None,
    memory_budget: int | float | str,
    threads: int,
    device: str,
    options: LoopOptions | None,
) -> list[Path]:
    """Train networks one after another on shared, once-decoded images; return their folders."""
    recipe, options = recipe or Recipe(), options or LoopOptions()
    spaces = []
    with joined_world(device) as world:
        if world.is_first and not all((out / member.name / "card.json").exists() for member in members):
            _check_room(members, parts, out, recipe)
            for _, manifest in parts:
                check_headers(manifest, options.progress)
        world.wait()
        decode = partial(
            decode_pixels,
            pixel_format=PixelFormat.of(recipe),
            folder=out / ".pixels",
            memory_budget=0 if world.is_shared else memory_budget,
            threads=threads,
        )
        for space, manifest in parts:
            # Several processes share one file, which the first one writes.
            pixels = decode(manifest, progress=options.progress) if world.is_first else None
            world.wait()
            spaces.append(replace(space, pixels=decode(manifest) if pixels is None else pixels))
        return [
            train_network(
                out / member.name,
                member.network,
                member.with_seed(recipe),
                spaces,
                world=world,
                options=options,
            )
            for member in members
        ]


def _check_room(
    members: Sequence[Member], parts: Sequence[tuple[LabelSpace, Manifest]], out: Path, recipe: Recipe
) -> None:
    """Refuse a disk without room for one network's checkpoints and the weights of all."""
    classes = sum(space.n_classes for space, _ in parts)
    counts = [
        count_parameters(
            member.network,
            size=recipe.size,
            classes=classes,
            channels=recipe.channels,
            dimensions=recipe.dimensions,
        )
        for member in members
    ]
    n_bytes = 4 * sum(counts) + _CHECKPOINT_BYTES * max(counts)
    check_writable(out, max(LEAST_ROOM, n_bytes), "the networks and their checkpoints")


def labeled_space(manifest: Manifest) -> LabelSpace:
    """Return the label space of a manifest's own identities; its images are not decoded yet."""
    classes = manifest.classes
    rows = np.flatnonzero(classes >= 0)
    if not len(rows):
        raise InputError(
            "labeled: no image of the manifest has an identity; fill in its identity column.",
            code="manifest-identities-missing",
        )
    check_classes(manifest.n_identities)
    single = manifest.sizes == 1
    if single.any():
        numbers = np.unique(manifest.identities[rows])[single]
        where = np.flatnonzero(np.isin(manifest.identities, numbers))
        warnings.warn(
            f"labeled: {int(single.sum()):,} of {manifest.n_identities:,} identities have one image only "
            f"({name_rows(where)}); they help little.",
            stacklevel=2,
        )
    return LabelSpace("labeled", NO_PIXELS, rows, classes[rows], manifest.n_identities, 1.0, manifest.digest)

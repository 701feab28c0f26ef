"""Label spaces and the batches drawn from them: which images, in which order, with which targets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import sparse

from cdp.errors import InputError
from cdp.nets.augment import augment, draw_numbers
from cdp.nets.losses import SoftTargets, Targets, teacher_rows
from cdp.nets.processes import World
from cdp.nets.recipe import Recipe, seed_for
from cdp.storage.artifacts import hash_array, hash_views
from cdp.storage.hashes import hash_values
from cdp.types import Views
from cdp.types.arrays import ByteArray, LongArray

NO_PIXELS: ByteArray = np.empty((0, 1, 1, 1), np.uint8)
"""Of a label space whose images are not decoded yet."""


@dataclass(frozen=True, eq=False)
class LabelSpace:
    """Images that share a classifier.

    Attributes:
        name: `labeled`, `pseudo`, … in logs and cards.
        pixels: uint8 (n, channels, side, side), the decoded images.
        rows: int64 (m,), the rows of `pixels` that are used; discarded images are not among them.
        targets: int64 (m,) classes, or a sparse (m, n_classes) matrix of soft labels.
        weight: this space's share of the loss.
        source: a hash of the manifest the pixels came from.
        siblings: sparse (n_classes, n_classes), classes that may be one identity; None if all are different.
        teachers: what other networks saw in the same images, row = row of `pixels`; None = no distillation.
        distill: weight of the distillation, in addition to the loss of the labels.
    """

    name: str
    pixels: ByteArray
    rows: LongArray
    targets: LongArray | sparse.csr_array
    n_classes: int
    weight: float = 1.0
    source: str = ""
    siblings: sparse.csr_array | None = None
    teachers: Views | None = None
    distill: float = 0.0

    def __post_init__(self) -> None:
        if self.targets.shape[0] != len(self.rows):
            raise InputError(
                f"{self.name}: {self.targets.shape[0]:,} targets for {len(self.rows):,} images; one each is "
                "needed.",
                code="targets-differ",
                part=self.name,
                expected=len(self.rows),
                found=self.targets.shape[0],
            )
        if not len(self.rows):
            raise InputError(
                f"{self.name}: no image carries a label, so there is nothing to learn from.",
                code="targets-empty",
                part=self.name,
            )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def key(self) -> str:
        """A hash of everything that bears on the training."""
        soft: Any = self.targets
        if isinstance(soft, sparse.csr_array):
            targets = [hash_array(part) for part in (soft.data, soft.indices, soft.indptr)]
        else:
            targets = [hash_array(soft)]
        if self.siblings is not None:
            targets += [hash_array(self.siblings.indices), hash_array(self.siblings.indptr)]
        if self.teachers is not None:
            targets += [*hash_views(self.teachers).values(), str(self.distill)]
        return hash_values(self.source, self.pixels.shape, hash_array(self.rows), targets, self.weight)

    def take_targets(self, positions: LongArray) -> Targets:
        """Return the targets of some of the rows, as tensors."""
        if not isinstance(self.targets, sparse.csr_array):
            return torch.from_numpy(self.targets[positions])
        part = self.targets[positions].tocoo()
        rows, columns = (torch.from_numpy(one.astype(np.int64)) for one in (part.row, part.col))
        return SoftTargets(rows, columns, torch.from_numpy(part.data.astype(np.float32)), len(positions))

    def take_teachers(self, positions: LongArray) -> torch.Tensor | None:
        """Return what the teachers saw in some of the rows."""
        return None if self.teachers is None else teacher_rows(self.teachers, self.rows[positions])


@dataclass(frozen=True)
class Batch:
    """What one process sees in one step: the images of all spaces one after another."""

    step: int
    images: torch.Tensor
    counts: tuple[int, ...]
    targets: tuple[Targets, ...]
    teachers: tuple[torch.Tensor | None, ...]


class Plan:
    """Which images make up step 0, 1, 2, …: a function of the seed, so any step can be had at any time.

    An epoch sees every image of every space once. Each space's shuffled images are spread evenly over the
    epoch's steps, so every batch holds the spaces in proportion and none is a leftover of a few images.
    """

    def __init__(self, spaces: Sequence[LabelSpace], recipe: Recipe, world: World) -> None:
        self.spaces, self.recipe, self.world = tuple(spaces), recipe, world
        self.n_images = sum(len(space) for space in spaces)
        self.steps_per_epoch = math.ceil(self.n_images / recipe.batch)
        self.n_steps = max(1, round(recipe.epochs * self.steps_per_epoch))
        self.order = lru_cache(2 * len(self.spaces))(self._order)

    @property
    def smallest_batch(self) -> int:
        """Fewest images that any step has, on all processes together."""
        return sum(len(space) // self.steps_per_epoch for space in self.spaces)

    def expected_count(self, index: int) -> float:
        """Return the mean number of images of a space per step."""
        return len(self.spaces[index]) / self.steps_per_epoch

    def _order(self, index: int, epoch: int) -> LongArray:
        generator = np.random.default_rng(seed_for(self.recipe.seed, "order", index, epoch))
        return generator.permutation(len(self.spaces[index]))

    def positions(self, index: int, step: int) -> LongArray:
        """Positions among the space's rows that a step uses, on all processes together."""
        epoch, within = divmod(step, self.steps_per_epoch)
        n_images = len(self.spaces[index])
        start = within * n_images // self.steps_per_epoch
        stop = (within + 1) * n_images // self.steps_per_epoch
        return self.order(index, epoch)[start:stop]

    @property
    def _mine(self) -> slice:
        return slice(self.world.rank, None, self.world.n_processes)

    def gather(self, step: int) -> tuple[list[LongArray], list[ByteArray]]:
        """Return this process's positions and raw images of a step, per space."""
        mine = [self.positions(index, step)[self._mine] for index in range(len(self.spaces))]
        return mine, [
            np.asarray(space.pixels[space.rows[own]]) for space, own in zip(self.spaces, mine, strict=True)
        ]

    def finish(self, step: int, positions: list[LongArray], images: list[ByteArray]) -> Batch:
        """Augment, on this process's device, what `gather` fetched."""
        augmented = []
        for index, raw in enumerate(images):
            seed = seed_for(self.recipe.seed, "augment", index, step)
            numbers = draw_numbers(seed, len(self.positions(index, step)))[self._mine]
            augmented.append(augment(torch.from_numpy(raw).to(self.world.device), numbers, self.recipe))
        targets = [space.take_targets(own) for space, own in zip(self.spaces, positions, strict=True)]
        teachers = [space.take_teachers(own) for space, own in zip(self.spaces, positions, strict=True)]
        whole = torch.cat(augmented) if len(augmented) > 1 else augmented[0]
        return Batch(step, whole, tuple(map(len, positions)), tuple(targets), tuple(teachers))

    @contextmanager
    def batches(self, first_step: int) -> Iterator[Iterator[Batch]]:
        """Yield the batches from a step on; the disk is read one step ahead, on another thread."""
        with ThreadPoolExecutor(1) as pool:
            yield self._stream(pool, first_step)

    def _stream(self, pool: ThreadPoolExecutor, first_step: int) -> Iterator[Batch]:
        ahead: Future[tuple[list[LongArray], list[ByteArray]]] | None = None
        for step in range(first_step, self.n_steps):
            fetched = ahead.result() if ahead else self.gather(step)
            ahead = pool.submit(self.gather, step + 1) if step + 1 < self.n_steps else None
            yield self.finish(step, *fetched)

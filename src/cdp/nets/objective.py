"""What is minimized: one shared trunk, one classifier per label space, a weighted sum of their losses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cdp.errors import InputError
from cdp.nets.label_spaces import LabelSpace, Plan
from cdp.nets.losses import LOSSES, Distillation, Targets, teacher_dimensions
from cdp.nets.processes import World, share_batch_norm
from cdp.nets.recipe import Recipe, seed_for
from cdp.nets.sharded import PartialSoftmax, whole_tensor
from cdp.nets.weights import build_for


class Objective(nn.Module):
    """Weighted sum of the losses of all label spaces.

    L = sum over label spaces s of weight_s * (mean loss of the images of s + distill_s * mean distance from
    the teachers).

    The mean is taken over the expected number of images of s in a batch rather than the actual one, which
    differs by at most one: so each image counts alike over an epoch, and with weights equal to the shares of
    images the sum is the plain mean over all images.
    """

    def __init__(self, name: str, recipe: Recipe, plan: Plan, world: World) -> None:
        super().__init__()
        self.network = share_batch_norm(build_for(name, recipe), world)
        self.classifiers = nn.ModuleList(
            [_make_classifier(space, index, recipe, world) for index, space in enumerate(plan.spaces)]
        )
        self.distillations = nn.ModuleDict(
            {
                str(index): Distillation(
                    recipe.dimensions,
                    teacher_dimensions(space.teachers),
                    seed_for(recipe.seed, "distillation", index),
                )
                for index, space in enumerate(plan.spaces)
                if space.teachers is not None
            }
        )
        self.distill = [space.distill for space in plan.spaces]
        self.world = world
        self.factors = [space.weight / plan.expected_count(index) for index, space in enumerate(plan.spaces)]

    def forward(
        self,
        images: Tensor,
        counts: Sequence[int],
        targets: Sequence[Targets],
        teachers: Sequence[Tensor | None],
    ) -> tuple[Tensor, Tensor]:
        """Return the loss to differentiate, and the share of each space in it on this process."""
        embeddings = self.network(images).float()
        parts = []
        for index, (classifier, factor, own, target, seen) in enumerate(
            zip(
                self.classifiers, self.factors, embeddings.split(list(counts)), targets, teachers, strict=True
            )
        ):
            loss = factor * classifier(own, target, reduction="sum")
            # Gradients are averaged over processes; a loss over this process's images is one part of the sum.
            is_whole = isinstance(classifier, PartialSoftmax)
            loss = loss if is_whole else self.world.n_processes * loss
            if seen is not None:
                apart = self.distillations[str(index)](own, seen)
                loss = loss + self.world.n_processes * factor * self.distill[index] * apart
            parts.append(loss)
        return torch.stack(parts).sum(), torch.stack(parts).detach()

    def update_partial(self, rate: float, recipe: Recipe) -> None:
        """Do one SGD step for the classifiers outside the optimizer, after the backward pass."""
        for _, classifier in self._partial():
            classifier.update(rate, recipe.momentum, recipe.weight_decay)

    def set_step(self, step: int) -> None:
        """Tell the sampling classifiers how many steps are done."""
        for _, classifier in self._partial():
            classifier.step = step

    def whole_state(self) -> dict[str, Tensor]:
        """Return all tensors, sharded ones put together: the same whatever the number of processes."""
        state = dict(self.state_dict())
        for name, part in self._shards():
            state[name] = whole_tensor(state[name], part.n_classes, part.first, self.world)
        return state

    def own_state(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what of the whole state is on this process."""
        own = dict(state)
        for name, part in self._shards():
            if name in own and len(own[name]) == part.n_classes:
                own[name] = own[name][part.first : part.last]
        return own

    def _partial(self) -> list[tuple[str, PartialSoftmax]]:
        return [(name, one) for name, one in self.named_modules() if isinstance(one, PartialSoftmax)]

    def _shards(self) -> list[tuple[str, PartialSoftmax]]:
        return [(f"{name}.{one}", part) for name, part in self._partial() for one in ("weight", "velocity")]


def _make_classifier(space: LabelSpace, index: int, recipe: Recipe, world: World) -> nn.Module:
    seed = seed_for(recipe.seed, "classifier", index)
    is_soft = space.targets.ndim == 2
    if is_soft and (recipe.loss != "softmax" or recipe.is_partial):
        raise InputError(
            f"{space.name}: soft labels go with the plain softmax loss; choose --loss softmax without "
            "sampling or sharding, or leave out --soft.",
            code="soft-labels-need-softmax",
            part=space.name,
        )
    if recipe.is_partial:
        return PartialSoftmax(
            recipe.dimensions, space.n_classes, sample=recipe.sample_classes, seed=seed, world=world
        )
    options: dict[str, float] = {"label_smoothing": recipe.label_smoothing}
    if recipe.loss != "softmax":
        options |= {"margin": recipe.margin} if recipe.margin else {}
        options |= {"scale": recipe.logit_scale} if recipe.logit_scale else {}
    classifier = LOSSES[recipe.loss](recipe.dimensions, space.n_classes, **options)
    if space.siblings is not None:
        classifier.set_siblings(space.siblings)
    generator = torch.Generator().manual_seed(seed)
    nn.init.xavier_uniform_(classifier.weight, generator=generator)
    return classifier

"""How long a network takes per image on this machine, by a few timed steps; for a forecast of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cdp.nets.label_spaces import LabelSpace, Plan
from cdp.nets.loop import make_optimizer, train_step
from cdp.nets.objective import Objective
from cdp.nets.processes import joined_world
from cdp.nets.recipe import Recipe

_FIRST_IMAGES = 8


@dataclass(frozen=True)
class StepTimes:
    """Seconds per image.

    Attributes:
        train: of a training step.
        embed: of the forward pass alone.
    """

    train: float
    embed: float


def time_steps(
    network: str, recipe: Recipe, n_classes: int, device: str = "auto", budget: float = 1.0
) -> StepTimes:
    """Time a few training steps of a fresh network on noise, without effect on later training.

    Args:
        network: name without a seed.
        n_classes: of the classifier.
        budget: seconds to spend, about; the first step of a large network may take more.
    """
    # Compiling takes longer than it saves here.
    recipe = replace(recipe, compile=False)
    with joined_world(device) as world:

        def make(batch: int) -> Callable[[], None]:
            shape = (batch, recipe.channels, recipe.stored_size, recipe.stored_size)
            pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
            classes = np.arange(batch) % max(2, n_classes)
            space = LabelSpace("noise", pixels, np.arange(batch), classes, max(2, n_classes))
            plan = Plan([space], replace(recipe, batch=batch, epochs=1), world)
            objective = Objective(network, recipe, plan, world).to(world.device)
            optimizer = make_optimizer(objective, recipe)
            objective.train()

            def step() -> None:
                train_step(
                    objective, objective, optimizer, plan.finish(0, *plan.gather(0)), 0.0, recipe
                ).cpu()

            return step

        few = min(_FIRST_IMAGES, recipe.batch)
        first = make(few)
        first()
        small = _time(first) / few
        batch = int(min(recipe.batch, max(few, budget / 4 / small)))
        if batch <= few:
            per_image = small
        else:
            step = make(batch)
            step()
            per_image = min(_time(step) for _ in range(2)) / batch
    # Backward costs about twice as much as forward.
    return StepTimes(per_image, per_image / 3)


def _time(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start

"""The one training loop: seeded, resumable to the bit, the same for supervised and joint training."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from cdp.errors import CdpError, InputError
from cdp.files import disk_errors, refuse_link
from cdp.nets.checkpoints import RunKey, discard_checkpoints, load_checkpoint, save_checkpoint
from cdp.nets.devices import World
from cdp.nets.journal import Journal, last_loss, read_journal
from cdp.nets.objective import Objective
from cdp.nets.recipe import Recipe, key_of
from cdp.nets.schedules import SCHEDULES
from cdp.nets.seeds import seed_for
from cdp.nets.spaces import Batch, Plan, Space
from cdp.nets.weights import (
    WEIGHTS,
    NetworkSettings,
    SpaceSettings,
    read_network_settings,
    write_tensors,
)
from cdp.progress import Progress, no_progress
from cdp.store import write_card


@dataclass(frozen=True)
class LoopOptions:
    """How a run behaves, with no bearing on its result.

    Attributes:
        checkpoint_every: steps between checkpoints; 0 = one per epoch, and one every 1000 steps of long epochs.
        log_every: steps between lines of the log.
        tensorboard: write TensorBoard files too.
        force: throw away what is in the folder.
        progress: told how many images of how many are done.
    """

    checkpoint_every: int = 0
    log_every: int = 20
    tensorboard: bool = False
    force: bool = False
    progress: Progress = no_progress


def train_network(
    folder: Path,
    name: str,
    recipe: Recipe,
    spaces: Sequence[Space],
    *,
    made_from: Mapping[str, str],
    world: World | None = None,
    options: LoopOptions | None = None,
) -> Path:
    """Train one network from scratch, or go on where a killed run stopped; its folder.

    A finished folder with the same settings is left as it is. Checkpoints are written atomically, all
    randomness is a function of seed and step, so on CPU a rerun after `kill -9` gives the same weights as an
    uninterrupted run with the same number of threads.
    """
    world, options = world or World(), options or LoopOptions()
    run = RunKey(
        key_of(name, recipe.as_dict(), [space.key for space in spaces]),
        tuple(space.n_classes for space in spaces),
    )
    if world.is_first:
        _make_room(folder, options.force)
    world.wait()
    if _is_finished(folder, run):
        return folder
    with disk_errors(folder, "the last checkpoint is kept"):
        _train(folder, name, recipe, spaces, made_from, world, options, run)
    return folder


def _train(
    folder: Path,
    name: str,
    recipe: Recipe,
    spaces: Sequence[Space],
    made_from: Mapping[str, str],
    world: World,
    options: LoopOptions,
    run: RunKey,
) -> None:
    plan = Plan(spaces, recipe, world)
    if plan.smallest_batch < 2 * world.n_processes:
        raise InputError(
            f"batch={recipe.batch}: some steps would have {plan.smallest_batch} of the {plan.n_images:,} images, and "
            f"normalization needs two on each of {world.n_processes} processes; choose a larger --batch."
        )
    objective = Objective(name, recipe, plan, world).to(world.device)
    optimizer = make_optimizer(objective, recipe)
    first_step = load_checkpoint(folder, objective, optimizer, run)
    objective.set_step(first_step)
    _run_steps(folder, name, recipe, plan, objective, optimizer, first_step, run, options)
    state = objective.whole_state()
    if world.is_first:
        state = {name: tensor for name, tensor in state.items() if not name.endswith(".velocity")}
        write_tensors(folder / WEIGHTS, state, {"key": run.key})
        n_parameters = sum(tensor.numel() for tensor in objective.network.parameters())
        _write_card(folder, name, recipe, plan, made_from, run, world, n_parameters)
        discard_checkpoints(folder)
    world.wait()


def make_optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    """SGD with momentum; weight decay for weights, not for biases and normalizations."""
    parameters = list(module.parameters())
    return torch.optim.SGD(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=recipe.rate,
        momentum=recipe.momentum,
    )


def _run_steps(
    folder: Path,
    name: str,
    recipe: Recipe,
    plan: Plan,
    objective: Objective,
    optimizer: torch.optim.SGD,
    first_step: int,
    run: RunKey,
    options: LoopOptions,
) -> None:
    world = objective.world
    model = _prepare(objective, recipe)
    journal = Journal(folder, first_step, options.tensorboard) if world.is_first else None
    every = options.checkpoint_every or min(plan.steps_per_epoch, 1000)
    n_all, seen = plan.n_steps * plan.n_images // plan.steps_per_epoch, 0
    since, clock = _Interval(len(plan.spaces)), time.perf_counter()
    objective.train()
    with plan.batches(first_step) as batches:
        for batch in batches:
            done = batch.step + 1
            rate = SCHEDULES[recipe.schedule](batch.step, plan.n_steps, recipe.rate)
            parts = train_step(model, objective, optimizer, batch, rate, recipe)
            since.add(parts, len(batch.images))
            is_checkpoint = done % every == 0 and done < plan.n_steps
            if done % options.log_every == 0 or is_checkpoint or done == plan.n_steps:
                losses, n_images = since.close(world)
                _refuse_divergence(losses, done, folder)
                now = time.perf_counter()
                seen += n_images
                if journal is not None:
                    line = _line(plan, done, losses, rate, n_images / (now - clock))
                    journal.write(line)
                    options.progress(f"train {name}", n_all * done // plan.n_steps, n_all)
                clock = now
            if is_checkpoint:
                save_checkpoint(folder, objective, optimizer, done, run)
    if journal is not None:
        journal.close()


def train_step(
    model: nn.Module,
    objective: Objective,
    optimizer: torch.optim.SGD,
    batch: Batch,
    rate: float,
    recipe: Recipe,
) -> Tensor:
    """Forward, backward, update; the loss per label space."""
    device = objective.world.device
    # Dropout draws from torch's own generator; seeding it per step makes any step repeatable.
    torch.manual_seed(seed_for(recipe.seed, "dropout", batch.step, objective.world.rank))
    images = batch.images.to(device, non_blocking=True)
    if recipe.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    with _precision(recipe, device):
        loss, parts = model(images, batch.counts, [target.to(device) for target in batch.targets])
    loss.backward()
    optimizer.step()
    objective.learn(rate, recipe)
    answer: Tensor = parts
    return answer


def _prepare(objective: Objective, recipe: Recipe) -> nn.Module:
    if recipe.channels_last:
        objective.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if recipe.compile:
        objective.network.compile()
    if not objective.world.is_shared:
        return objective
    on_gpu = objective.world.device.type == "cuda"
    ignored = [name for name, _ in objective.named_buffers()]
    # Running statistics are equal everywhere, and shards differ: neither is to be copied between processes.
    distributed_type: Any = DistributedDataParallel
    distributed_type._set_params_and_buffers_to_ignore_for_model(objective, ignored)
    return DistributedDataParallel(
        objective, device_ids=[objective.world.device] if on_gpu else None, broadcast_buffers=False
    )


def _precision(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    if recipe.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


class _Interval:
    """Losses and images since the last line of the log."""

    def __init__(self, n_spaces: int) -> None:
        self.n_spaces = n_spaces
        self.parts: list[Tensor] = []
        self.n_images = 0

    def add(self, parts: Tensor, n_images: int) -> None:
        self.parts.append(parts)
        self.n_images += n_images

    def close(self, world: World) -> tuple[list[float], int]:
        told = torch.cat([torch.stack(self.parts).mean(dim=0).double().cpu(), torch.tensor([self.n_images])])
        if world.is_shared:
            told = told.to(world.device)
            distributed.all_reduce(told)
            told[:-1] /= world.n_processes
        self.parts, self.n_images = [], 0
        return told[:-1].tolist(), int(told[-1])


def _line(plan: Plan, done: int, losses: list[float], rate: float, speed: float) -> dict[str, Any]:
    return {
        "step": done,
        "epoch": round(done / plan.steps_per_epoch, 4),
        "loss": sum(losses),
        "losses": dict(zip([space.name for space in plan.spaces], losses, strict=True)),
        "rate": rate,
        "images_per_second": round(speed, 1),
    }


def _refuse_divergence(losses: list[float], step: int, folder: Path) -> None:
    if not all(math.isfinite(loss) for loss in losses):
        raise CdpError(
            f"{folder}: the loss is no longer a number at step {step}; start again with a lower --rate and --force."
        )


def _make_room(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder; choose another --out.")
    with disk_errors(folder):
        if force and folder.exists():
            refuse_link(folder)
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)


def _is_finished(folder: Path, run: RunKey) -> bool:
    if not (folder / "card.json").exists():
        return False
    settings = read_network_settings(folder)
    if settings.key == run.key:
        return True
    classes = settings.classes
    what = "other settings or images"
    if classes != run.classes:
        what = (
            f"{' and '.join(map(str, classes))} classes, there are {' and '.join(map(str, run.classes))} now"
        )
    raise InputError(
        f"{folder}: holds a network trained with {what}; choose another --out, or replace it with --force."
    )


def _write_card(
    folder: Path,
    name: str,
    recipe: Recipe,
    plan: Plan,
    made_from: Mapping[str, str],
    run: RunKey,
    world: World,
    n_parameters: int,
) -> None:
    settings = NetworkSettings(
        network=name,
        parameters=n_parameters,
        recipe=recipe,
        spaces={
            space.name: SpaceSettings(len(space), space.n_classes, space.weight) for space in plan.spaces
        },
        classes=run.classes,
        key=run.key,
        loss=last_loss(read_journal(folder)),
        processes=world.n_processes,
        threads=torch.get_num_threads(),
    )
    summary = (
        f"Network {name}: {recipe.dimensions} dimensions, {plan.n_images:,} images, {plan.n_steps:,} steps"
    )
    write_card(folder, "Network", summary, msgspec.to_builtins(settings), made_from)

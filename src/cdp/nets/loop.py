"""The one training loop: seeded, resumable to the bit, the same for supervised and joint training."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from cdp.errors import CdpError, InputError
from cdp.nets.checkpoints import (
    RunKey,
    TrainingLog,
    discard_checkpoints,
    load_checkpoint,
    read_log,
    save_checkpoint,
)
from cdp.nets.label_spaces import Batch, LabelSpace, Plan
from cdp.nets.objective import Objective
from cdp.nets.processes import World
from cdp.nets.recipe import Recipe, seed_for
from cdp.nets.weights import (
    WEIGHTS,
    NetworkSettings,
    SpaceSettings,
    hash_start,
    load_start,
    read_network_settings,
    read_start,
    write_tensors,
)
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.artifacts import write_card
from cdp.storage.files import check_output, disk_errors, refuse_link, remove_folder
from cdp.storage.hashes import hash_values


@dataclass(frozen=True)
class LoopOptions:
    """How a run behaves, with no bearing on its result, except for what it starts from.

    Attributes:
        checkpoint_every: steps between checkpoints; 0 = one per epoch, and one every 1000 steps of long
            epochs.
        log_every: steps between lines of the log.
        force: throw away what is in the folder, if it is a network.
        inputs: what is read, and is never thrown away.
        start_from: weights to start from instead of chance, see `cdp.nets.weights`.
    """

    checkpoint_every: int = 0
    log_every: int = 20
    tensorboard: bool = False
    force: bool = False
    inputs: tuple[str | Path, ...] = ()
    progress: Progress = no_progress
    start_from: str = ""


@dataclass(frozen=True)
class _Run:
    """The training of one network: what all its steps share."""

    folder: Path
    name: str
    recipe: Recipe
    plan: Plan
    key: RunKey
    world: World
    options: LoopOptions


def train_network(
    folder: Path,
    name: str,
    recipe: Recipe,
    spaces: Sequence[LabelSpace],
    *,
    world: World,
    options: LoopOptions,
) -> Path:
    """Train one network, from scratch or from given weights, or go on where a killed run stopped; its folder.

    A finished folder with the same settings is left as it is. Checkpoints are written atomically, all
    randomness is a function of seed and step, so on CPU a rerun after `kill -9` gives the same weights as an
    uninterrupted run with the same number of threads.
    """
    # The device is not part of the key: a run may go on elsewhere.
    start = [hash_start(options.start_from, name)] if options.start_from else []
    key = RunKey(
        hash_values(name, recipe.key_values(), [space.key for space in spaces], *start),
        tuple(space.n_classes for space in spaces),
    )
    if world.is_first:
        _make_folder(folder, options)
    world.wait()
    if _is_finished(folder, key):
        discard_checkpoints(folder)  # a run that was killed right after its last step has left them
    else:
        with disk_errors(folder, "the last checkpoint is kept"):
            _train(_Run(folder, name, recipe, Plan(spaces, recipe, world), key, world, options))
    return folder


def _train(run: _Run) -> None:
    plan, world = run.plan, run.world
    if plan.smallest_batch < 2 * world.n_processes:
        raise InputError(
            f"batch={run.recipe.batch}: the smallest step has {plan.smallest_batch} images, and each "
            f"of {world.n_processes} processes needs two for normalization; choose a larger --batch.",
            code="batch-too-small",
            value=run.recipe.batch,
            found=plan.smallest_batch,
            processes=world.n_processes,
        )
    objective = Objective(run.name, run.recipe, plan, world)
    if run.options.start_from:
        source = run.options.start_from
        load_start(objective.network, read_start(source, run.name), source)
    objective = objective.to(world.device)
    optimizer = make_optimizer(objective, run.recipe)
    first_step = load_checkpoint(run.folder, objective, optimizer, run.key)
    objective.set_step(first_step)
    _run_steps(run, objective, optimizer, first_step)
    state = objective.whole_state()
    if world.is_first:
        state = {name: tensor for name, tensor in state.items() if _is_kept(name)}
        write_tensors(run.folder / WEIGHTS, state, {"key": run.key.key})
        _write_card(run, sum(tensor.numel() for tensor in objective.network.parameters()))
        discard_checkpoints(run.folder)
    world.wait()


def _is_kept(name: str) -> bool:
    """Return whether a tensor is of use after training."""
    return not (name.endswith(".velocity") or name.startswith("distillations."))


def make_optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    """Return SGD with momentum; weight decay for weights, not for biases and normalizations."""
    parameters = list(module.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.rate, momentum=recipe.momentum)


def _run_steps(run: _Run, objective: Objective, optimizer: torch.optim.SGD, first_step: int) -> None:
    plan, recipe, options = run.plan, run.recipe, run.options
    model = prepare_model(objective, recipe)
    log = TrainingLog(run.folder, first_step, options.tensorboard) if run.world.is_first else None
    every = options.checkpoint_every or min(plan.steps_per_epoch, 1000)
    n_all = plan.n_steps * plan.n_images // plan.steps_per_epoch
    losses: list[Tensor] = []
    n_images, clock = 0, time.perf_counter()
    objective.train()
    with plan.batches(first_step) as batches:
        for batch in batches:
            done = batch.step + 1
            rate = SCHEDULES[recipe.schedule](batch.step, plan.n_steps, recipe.rate)
            losses.append(train_step(model, objective, optimizer, batch, rate, recipe))
            n_images += len(batch.images)
            is_checkpoint = done % every == 0 and done < plan.n_steps
            if done % options.log_every == 0 or is_checkpoint or done == plan.n_steps:
                means, n_images = _over_processes(losses, n_images, run.world)
                if not all(math.isfinite(loss) for loss in means):
                    raise CdpError(
                        f"{run.folder}: the loss is no longer a number at step {done}; start again with a "
                        "lower --rate and --force.",
                        code="loss-not-finite",
                        folder=run.folder,
                        step=done,
                    )
                now = time.perf_counter()
                if log is not None:
                    log.write(_line(plan, done, means, rate, n_images / (now - clock)))
                    options.progress(f"train {run.name}", n_all * done // plan.n_steps, n_all)
                losses, n_images, clock = [], 0, now
            if is_checkpoint:
                save_checkpoint(run.folder, objective, optimizer, done, run.key)
    if log is not None:
        log.close()


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
        targets = [target.to(device) for target in batch.targets]
        teachers = [None if seen is None else seen.to(device) for seen in batch.teachers]
        loss, parts = model(images, batch.counts, targets, teachers)
    loss.backward()
    optimizer.step()
    objective.update_partial(rate, recipe)
    losses: Tensor = parts
    return losses


def prepare_model(objective: Objective, recipe: Recipe) -> nn.Module:
    """Return the objective as a step calls it: its memory order, compiled, shared between processes."""
    if recipe.channels_last:
        objective.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if recipe.compile:
        objective.network.compile()
    if not objective.world.is_shared:
        return objective
    on_gpu = objective.world.device.type == "cuda"
    # Running statistics are equal everywhere, and shards differ: neither is to be copied between processes.
    distributed_type: Any = DistributedDataParallel
    distributed_type._set_params_and_buffers_to_ignore_for_model(
        objective, [name for name, _ in objective.named_buffers()]
    )
    return DistributedDataParallel(
        objective, device_ids=[objective.world.device] if on_gpu else None, broadcast_buffers=False
    )


def _precision(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    if recipe.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def _over_processes(losses: Sequence[Tensor], n_images: int, world: World) -> tuple[list[float], int]:
    """Average the loss per label space over some steps and all processes; also sum their images."""
    # To the CPU first: not every device has double precision.
    totals = torch.cat([torch.stack(list(losses)).mean(dim=0).cpu().double(), torch.tensor([n_images])])
    if world.is_shared:
        totals = totals.to(world.device)
        distributed.all_reduce(totals)
        totals[:-1] /= world.n_processes
    return totals[:-1].tolist(), int(totals[-1])


def _line(plan: Plan, done: int, losses: list[float], rate: float, speed: float) -> dict[str, Any]:
    return {
        "step": done,
        "epoch": round(done / plan.steps_per_epoch, 4),
        "loss": sum(losses),
        "losses": dict(zip([space.name for space in plan.spaces], losses, strict=True)),
        "rate": rate,
        "images_per_second": round(speed, 1),
    }


def _make_folder(folder: Path, options: LoopOptions) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{folder} is a file, not a folder; choose another --out.", code="output-is-a-file", file=folder
        )
    with disk_errors(folder):
        if options.force and folder.exists():
            refuse_link(folder)
            check_output(folder, force=True, kind="Network", inputs=options.inputs)
            remove_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)


def _is_finished(folder: Path, key: RunKey) -> bool:
    if not (folder / "card.json").exists():
        return False
    settings = read_network_settings(folder)
    if settings.key != key.key:
        raise InputError(
            f"{folder}: holds a network trained {key.difference(settings.classes)}; choose another --out, or "
            "replace it with --force.",
            code="network-trained-differently",
            folder=folder,
        )
    return True


def _write_card(run: _Run, n_parameters: int) -> None:
    plan, log = run.plan, read_log(run.folder)
    settings = NetworkSettings(
        network=run.name,
        parameters=n_parameters,
        recipe=run.recipe,
        spaces={
            space.name: SpaceSettings(len(space), space.n_classes, space.weight) for space in plan.spaces
        },
        classes=run.key.classes,
        key=run.key.key,
        loss=float(log[-1]["loss"]) if log else None,
        device=str(run.world.device),
        processes=run.world.n_processes,
        threads=torch.get_num_threads(),
    )
    summary = (
        f"Network {run.name}: {run.recipe.dimensions} dimensions, {plan.n_images:,} images, {plan.n_steps:,} "
        "steps"
    )
    made_from = {space.name: space.source for space in plan.spaces}
    write_card(run.folder, "Network", summary, msgspec.to_builtins(settings), made_from)


def paper_rate(step: int, n_steps: int, rate: float) -> float:
    """Return the paper's schedule: a tenth from 2/3.5 of the run on, a hundredth from 3/3.5 on."""
    if step * 3.5 >= 3 * n_steps:
        return rate / 100
    if step * 3.5 >= 2 * n_steps:
        return rate / 10
    return rate


def one_cycle_rate(step: int, n_steps: int, rate: float, warm: float = 0.25) -> float:
    """One-cycle schedule: a cosine rise from rate/25 to rate and a cosine fall to rate/10000."""
    top = warm * n_steps
    low, last = rate / 25, rate / 10_000
    if step < top:
        return low + (rate - low) * (1 - math.cos(math.pi * step / top)) / 2
    part = (step - top) / max(1.0, n_steps - 1 - top)
    return last + (rate - last) * (1 + math.cos(math.pi * min(1.0, part))) / 2


SCHEDULES = {"paper": paper_rate, "one_cycle": one_cycle_rate}

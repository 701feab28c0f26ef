"""Checkpoints and training log on disk, written atomically; the previous checkpoint is kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cdp.errors import InputError
from cdp.nets.objective import Objective
from cdp.nets.torchvision_guard import require
from cdp.nets.weights import load_strictly, read_tensors, write_tensors
from cdp.storage.artifacts import read_json_lines
from cdp.storage.files import replacing, write_text

CHECKPOINT = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"
_MODEL, _MOMENTUM = "model.", "momentum."


@dataclass(frozen=True)
class RunKey:
    """What a checkpoint must have in common with the run that continues it."""

    key: str
    classes: tuple[int, ...]

    def difference(self, classes: Sequence[int]) -> str:
        """Return how a run of another key differs, for an error message."""
        if tuple(classes) == self.classes:
            return "with other settings or images"
        there, here = (
            " and ".join(f"{one:,}" for one in some) or "no" for some in (tuple(classes), self.classes)
        )
        return f"for {there} classes, there are {here} now"


def save_checkpoint(
    folder: Path, objective: Objective, optimizer: torch.optim.SGD, step: int, run: RunKey
) -> None:
    """Write the state after `step` steps; every process takes part, the first one writes."""
    state = objective.whole_state()
    if not objective.world.is_first:
        return
    tensors = {_MODEL + name: tensor for name, tensor in state.items()}
    for name, parameter in objective.named_parameters():
        momentum = optimizer.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            tensors[_MOMENTUM + name] = momentum
    current = folder / CHECKPOINT
    if current.exists():
        with replacing(folder / PREVIOUS, "the last checkpoint is kept") as partial:
            partial.unlink()
            try:
                os.link(current, partial)
            except OSError:  # not every file system has hard links
                shutil.copy2(current, partial)
    write_tensors(current, tensors, {"step": step, "key": run.key, "classes": run.classes})


def load_checkpoint(folder: Path, objective: Objective, optimizer: torch.optim.SGD, run: RunKey) -> int:
    """Fill network, classifiers and momenta from the folder's checkpoint; the number of steps done.

    Tensors are read to main memory and copied from there, so it does not matter which device wrote them.
    """
    file = folder / CHECKPOINT
    if not file.exists():
        return 0
    way_out = "start again with --force"
    if (folder / PREVIOUS).exists():
        way_out = f"rename {folder / PREVIOUS} to {CHECKPOINT} to go on from the one before, or {way_out}"
    tensors, about = read_tensors(file, way_out)
    if about.get("key") != run.key:
        raise InputError(
            f"{file}: trained {run.difference(about.get('classes', ()))}; use the same settings, "
            "images and labels, choose another --out, or start again with --force.",
            code="checkpoint-trained-differently",
            file=file,
        )
    model = {name.removeprefix(_MODEL): tensor for name, tensor in tensors.items() if name.startswith(_MODEL)}
    load_strictly(objective, objective.own_state(model), file)
    for name, parameter in objective.named_parameters():
        momentum = tensors.get(_MOMENTUM + name)
        if momentum is not None:
            optimizer.state[parameter]["momentum_buffer"] = momentum.to(parameter.device)
    return int(about["step"])


def discard_checkpoints(folder: Path) -> None:
    """Remove what a finished run no longer needs."""
    for name in (CHECKPOINT, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


LOG = "log.jsonl"


class TrainingLog:
    """One line per interval; lines after the checkpoint that a run goes on from are taken back."""

    def __init__(self, folder: Path, first_step: int, tensorboard: bool = False) -> None:
        self.file = folder / LOG
        kept = [line for line in read_log(folder) if line["step"] <= first_step]
        write_text(self.file, "".join(json.dumps(line) + "\n" for line in kept))
        self._board: Any = None
        if tensorboard:
            require("tensorboard", "tensorboard")
            board = require("torch.utils.tensorboard")
            self._board = board.SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

    def write(self, line: dict[str, Any]) -> None:
        """Append a line; it is on disk when this returns."""
        with self.file.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")
        if self._board is not None:
            for name in ("loss", "rate", "images_per_second"):
                self._board.add_scalar(name, line[name], line["step"])

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """Return the valid lines of a run's log; damaged ones are skipped.

    A warning reports a half-written last line.
    """
    lines = read_json_lines(Path(folder) / LOG, dict[str, Any]).values.values()
    return [line for line in lines if type(line.get("step")) is int and type(line.get("loss")) is float]

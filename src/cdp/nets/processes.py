"""Process rank, number of processes and device; the process group opens on request, not at import."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed, nn

from cdp.errors import InputError
from cdp.runtime.devices import resolve_device


@dataclass(frozen=True)
class World:
    """One of `n_processes` processes that train together."""

    rank: int = 0
    n_processes: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and draws bars."""
        return self.rank == 0

    @property
    def is_shared(self) -> bool:
        """Whether there are others."""
        return self.n_processes > 1

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.is_shared:
            distributed.barrier()


@contextmanager
def joined_world(device: str = "auto") -> Iterator[World]:
    """Join the processes that torchrun describes (gloo on CPUs, nccl on GPUs), or run alone."""
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    own = _own_device(device, n_processes)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    if n_processes == 1:
        yield World(device=own)
        return
    opened_here = not distributed.is_initialized()
    if opened_here:
        distributed.init_process_group("nccl" if own.type == "cuda" else "gloo")
    try:
        yield World(distributed.get_rank(), n_processes, own)
        # Whoever left first would take the connections away that others still answer on, and abort them.
        if opened_here and distributed.is_initialized():
            distributed.barrier()
    finally:
        if opened_here:
            gc.collect()
            distributed.destroy_process_group()


def _own_device(name: str, n_processes: int) -> torch.device:
    """Return the device of this process: a GPU each, or the CPU for all."""
    device = resolve_device(name)
    if n_processes == 1 or device.type in ("cpu", "meta"):
        return device
    if device.type != "cuda" or name.startswith("cuda:"):
        raise InputError(
            f"device={name!r}: {n_processes} processes cannot share one device; choose cuda, where each has "
            "a GPU of its own, or cpu.",
            code="device-shared",
            device=name,
            processes=n_processes,
        )
    return resolve_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")


class _Sum(torch.autograd.Function):
    """A sum over processes that can be differentiated: each summand gets the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total


def summed(values: Tensor) -> Tensor:
    """Return the sum over all processes; gradients flow back to each."""
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm(nn.Module):
    """Batch normalization over the images of all processes; torch's own exists for GPUs only.

    Two passes, mean first, so that the rounding stays near that of one process.
    """

    def __init__(self, inner: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias = inner.weight, inner.bias
        self.eps, self.momentum = inner.eps, inner.momentum
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(inner, name))

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, values: Tensor) -> Tensor:
        """Normalize values, whichever process they are on."""
        if not self.training:
            return nn.functional.batch_norm(
                values, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        axes = [axis for axis in range(values.ndim) if axis != 1]
        shape = [1, -1] + [1] * (values.ndim - 2)
        n_local = values.new_tensor([values.numel() // values.shape[1]])
        sums = summed(torch.cat([values.sum(axes), n_local]))
        n_values = sums[-1].detach()
        mean = sums[:-1] / n_values
        centered = values - mean.view(shape)
        variance = summed(centered.square().sum(axes)) / n_values
        with torch.no_grad():
            momentum = 0.1 if self.momentum is None else self.momentum
            unbiased = variance * n_values / (n_values - 1).clamp(min=1)
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(unbiased, momentum)
            self.num_batches_tracked += 1
        normalized: Tensor = centered * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            normalized = normalized * self.weight.view(shape) + self.bias.view(shape)
        return normalized


def share_batch_norm(module: nn.Module, world: World) -> nn.Module:
    """Return the module with every batch normalization looking at all processes; names of tensors stay."""
    if not world.is_shared:
        return module
    if world.device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return converted
    for name, part in list(module.named_children()):
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            # timm fuses activations into subclasses; their own activation must survive the exchange.
            shared: nn.Module = SharedBatchNorm(part)
            if type(part) not in (nn.BatchNorm1d, nn.BatchNorm2d):
                shared = _with_activation(part, shared)
            setattr(module, name, shared)
        else:
            share_batch_norm(part, world)
    return module


def _with_activation(part: nn.Module, shared: nn.Module) -> nn.Module:
    """Return what BatchNormAct2d of timm does after normalizing: it drops and activates."""

    def then_activate(_: nn.Module, __: object, answer: Tensor) -> Tensor:
        for follower in ("drop", "act"):
            if isinstance(getattr(part, follower, None), nn.Module):
                answer = getattr(part, follower)(answer)
        return answer

    shared.register_forward_hook(then_activate)
    return shared

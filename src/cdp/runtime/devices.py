"""Where to compute: one text for the whole product, `auto`, `cpu`, `cuda`, `cuda:1` or `mps`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cdp.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import torch


def resolve_device(name: str) -> torch.device:
    """Return the device that a name stands for; `auto` is the first GPU, or the CPU where there is none."""
    if find_spec("torch") is None:
        raise MissingExtraError(
            f"device={name!r}: this needs torch, which is not installed; install the extra `nets`, or choose "
            "cpu.",
            code="torch-missing",
            device=name,
        )
    import torch

    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    gpus += ["mps"] if torch.backends.mps.is_available() else []
    # `meta` computes shapes only: with it a test sees what was sent where.
    known = {"auto": (gpus or ["cpu"])[0], "cpu": "cpu", "meta": "meta"} | {gpu: gpu for gpu in gpus}
    if gpus and gpus[0] != "mps":
        known["cuda"] = gpus[0]
    if name not in known:
        there = ", ".join(one for one in known if one != "meta")
        raise InputError(
            f"device={name!r}: no such device; choose from {there}.",
            code="device-unknown",
            device=name,
        )
    return torch.device(known[name])


def find_accelerator(name: str) -> torch.device | None:
    """Return the GPU of a name, or None for the CPU; torch is imported only if it can have one."""
    if name == "cpu" or (name == "auto" and not _may_have_gpu()):
        return None
    device = resolve_device(name)
    return None if device.type == "cpu" else device


def count_gpus() -> int:
    """Return how many GPUs this machine has; torch is not imported where it cannot have one."""
    if not _may_have_gpu():
        return 0
    import torch

    return torch.cuda.device_count()


def _may_have_gpu() -> bool:
    """Test by its version, without importing it, whether torch can use a GPU."""
    if find_spec("torch") is None:
        return False
    try:
        return not version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return True

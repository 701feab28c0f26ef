"""Weights that training starts from instead of chance: of a trained network, a safetensors file, or those timm publishes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from cdp.errors import InputError
from cdp.nets.backbones import TimmTrunk
from cdp.nets.torchvision_guard import import_timm
from cdp.nets.weights import WEIGHTS, checksum_of, read_tensors

TIMM = "timm"
_OWN = "network."


def hash_start(source: str, network: str) -> str:
    """What tells whether training starts from the same numbers."""
    return f"{checksum_of(read_start(source, network)):08x}"


def read_start(source: str, network: str) -> dict[str, Tensor]:
    """Tensors by the names of a cdp network (`trunk.…`, `head.…`), or by those of its trunk alone.

    Args:
        source: a folder that `cdp train` or `cdp join` wrote, a .safetensors file, or `timm` for the weights that timm
            publishes for the network of this name (they are fetched by timm).
        network: name of the architecture.
    """
    if source == TIMM:
        return dict(import_timm().create_model(network, pretrained=True).state_dict())
    file = Path(source) / WEIGHTS if Path(source).is_dir() else Path(source)
    if file.suffix != ".safetensors":
        raise InputError(
            f"{source}: weights to start from are a .safetensors file, a trained network's folder or {TIMM!r}."
        )
    tensors, _ = read_tensors(file, "check the path of the weights to start from")
    if any(name.startswith(_OWN) for name in tensors):
        # Classifiers of the earlier training stand beside the network.
        return {name.removeprefix(_OWN): one for name, one in tensors.items() if name.startswith(_OWN)}
    return tensors


def load_start(network: nn.Module, tensors: Mapping[str, Tensor], source: str) -> list[str]:
    """Fill a fresh network; answers with the parts that stay fresh, by name.

    Every tensor of the trunk must be there in its shape. The head is filled where it fits: another image size or length of an
    embedding has another head. What the trunk has no place for, such as a published classifier, is left out.
    """
    prefix = "trunk.model." if isinstance(network.trunk, TimmTrunk) else "trunk."
    is_whole = any(name.startswith("trunk.") for name in tensors)
    given = tensors if is_whole else {f"{prefix}{name}": one for name, one in tensors.items()}
    wanted = network.state_dict()
    fresh, filled = [], {}
    for name, tensor in wanted.items():
        if name in given and given[name].shape == tensor.shape:
            filled[name] = given[name]
            continue
        # Counts of batches have no bearing on anything, and older files lack them.
        if name.startswith("trunk.") and not name.endswith("num_batches_tracked"):
            problem = f"has shape {tuple(given[name].shape)}" if name in given else "is missing"
            raise InputError(
                f"{source}: tensor {name.removeprefix(prefix)!r} {problem}, {tuple(tensor.shape)} is needed; these weights "
                "belong to another network, or to other channels."
            )
        fresh.append(name)
    network.load_state_dict({**wanted, **filled})
    return fresh

"""Weights on disk: safetensors, written atomically and hashed."""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from cdp.errors import InputError, StoreError
from cdp.nets.backbones import TimmTrunk
from cdp.nets.embedding import EmbeddingNetwork, build_network
from cdp.nets.recipe import Recipe
from cdp.nets.torchvision_guard import import_timm, require
from cdp.storage.artifacts import read_card, read_settings
from cdp.storage.files import replacing

WEIGHTS = "weights.safetensors"


def write_tensors(file: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write next to the file, flush, then take its place; on any failure the old file stays."""
    damage = require("safetensors").SafetensorError
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One entry, because the order of several is random and equal weights should be equal files.
    description = {"cdp": json.dumps({**about, "crc32": checksum_of(on_cpu)}, sort_keys=True)}
    with replacing(file, "the last checkpoint is kept") as partial:
        try:
            require("safetensors.torch").save_file(on_cpu, str(partial), description)
        except damage as error:
            raise OSError(errno.EIO, str(error)) from None


def read_tensors(file: Path, way_out: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, on the CPU, and their description; a damaged file is an error that names the way out."""
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(str(file), framework="pt") as opened:
            about: dict[str, Any] = json.loads((opened.metadata() or {}).get("cdp", "{}"))
            if not isinstance(about, dict):
                raise ValueError("its description is not a table")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; {way_out}.", code="weights-missing", file=file) from None
    except MemoryError:
        raise
    except Exception as error:
        raise StoreError(
            f"{file} is damaged ({error}); {way_out}.", code="weights-damaged", file=file
        ) from None
    if "crc32" in about and about["crc32"] != checksum_of(tensors):
        raise StoreError(
            f"{file} is damaged (its contents changed after it was written); {way_out}.",
            code="weights-changed",
            file=file,
        )
    return tensors, about


def load_strictly(module: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Fill a module; a missing, superfluous or misshapen tensor is named."""
    wanted, another = module.state_dict(), "these weights belong to another network"
    for name, tensor in wanted.items():
        if name not in tensors:
            raise InputError(
                f"{file}: tensor {name!r} is missing; {another}.",
                code="tensor-missing",
                file=file,
                tensor=name,
            )
        shape, needed = tuple(tensors[name].shape), tuple(tensor.shape)
        if shape != needed:
            raise InputError(
                f"{file}: tensor {name!r} has shape {shape}, {needed} is needed; {another} or size.",
                code="tensor-shape-differs",
                file=file,
                tensor=name,
                expected=needed,
                found=shape,
            )
    extra = next((name for name in tensors if name not in wanted), None)
    if extra is not None:
        raise InputError(
            f"{file}: tensor {extra!r} has no place here; {another}.",
            code="tensor-unknown",
            file=file,
            tensor=extra,
        )
    module.load_state_dict(dict(tensors), strict=True)


class SpaceSettings(msgspec.Struct, frozen=True):
    """One label space that a network was trained on."""

    images: int
    classes: int
    weight: float


class NetworkSettings(msgspec.Struct, frozen=True):
    """What the card of a trained network says.

    Attributes:
        recipe: how it was trained.
        spaces: the label spaces by name.
        classes: how many each space has.
        key: of settings and images, to tell whether a folder holds this run.
        parameters: how many the network has; None in old cards.
        device, processes, threads: that trained it; the key does not depend on them.
    """

    network: str
    recipe: Recipe
    spaces: dict[str, SpaceSettings]
    classes: tuple[int, ...]
    key: str
    loss: float | None
    parameters: int | None = None
    device: str = "cpu"
    processes: int = 1
    threads: int = 1


@dataclass(frozen=True)
class TrainedNetwork:
    """A network from its folder, ready to embed; the folder's name is that of the model in Views."""

    name: str
    network: EmbeddingNetwork
    recipe: Recipe
    checksum: str


def load_network(folder: str | Path, device: torch.device | str = "cpu") -> TrainedNetwork:
    """Return a trained network, on the device, from the folder that `cdp train` wrote."""
    settings = read_network_settings(folder)
    file = Path(folder) / WEIGHTS
    tensors, about = read_tensors(file, "train this network again")
    network = build_for(settings.network, settings.recipe)
    own = {name[8:]: tensor for name, tensor in tensors.items() if name.startswith("network.")}
    load_strictly(network, own, file)
    checksum = str(about.get("crc32", ""))
    return TrainedNetwork(file.parent.name, network.eval().to(device), settings.recipe, checksum)


def read_network_settings(folder: str | Path) -> NetworkSettings:
    """Return how the network of a folder was trained, from its card."""
    card = read_card(folder, "Network")
    recipe = card.settings.get("recipe")
    if isinstance(recipe, dict) and not set(recipe) <= set(Recipe.__dataclass_fields__):
        raise InputError(
            f"{folder}: its card names settings this cdp does not know; update cdp.",
            code="network-settings-unknown",
            folder=folder,
        )
    return read_settings(folder, card, NetworkSettings)


def build_for(name: str, recipe: Recipe) -> EmbeddingNetwork:
    """Return the network that a recipe asks for, freshly initialized; ArcFace stands on output E."""
    return build_network(
        name,
        size=recipe.size,
        channels=recipe.channels,
        dimensions=recipe.dimensions,
        output="E" if recipe.loss == "arcface" else "paper",
        dropout=recipe.dropout,
        seed=recipe.seed,
    )


def checksum_of(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 of the names and contents of tensors."""
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        total = zlib.crc32(name.encode(), total)
        if tensor.numel():
            total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return total


TIMM = "timm"
_OWN = "network."


def hash_start(source: str, network: str) -> str:
    """Return what tells whether training starts from the same numbers."""
    return f"{checksum_of(read_start(source, network)):08x}"


def read_start(source: str, network: str) -> dict[str, Tensor]:
    """Read tensors by the names of a cdp network (`trunk.…`, `head.…`), or by those of its trunk alone.

    Args:
        source: a folder that `cdp train` wrote, a .safetensors file, or `timm` for the weights that timm
            publishes for the network of this name (they are fetched by timm).
    """
    if source == TIMM:
        return dict(import_timm().create_model(network, pretrained=True).state_dict())
    file = Path(source) / WEIGHTS if Path(source).is_dir() else Path(source)
    if file.suffix != ".safetensors":
        raise InputError(
            f"{source}: weights to start from are a .safetensors file, a trained network's folder or "
            f"{TIMM!r}.",
            code="weights-source-unknown",
            file=source,
        )
    tensors, _ = read_tensors(file, "check the path of the weights to start from")
    if any(name.startswith(_OWN) for name in tensors):
        # Classifiers of the earlier training are stored next to the network.
        return {name.removeprefix(_OWN): one for name, one in tensors.items() if name.startswith(_OWN)}
    return tensors


def load_start(network: nn.Module, tensors: Mapping[str, Tensor], source: str) -> list[str]:
    """Fill a fresh network; answers with the parts that stay fresh, by name.

    Every tensor of the trunk must be there in its shape. The head is filled where it fits: another image size
    or length of an embedding has another head. What the trunk has no place for, such as a published
    classifier, is left out.
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
                f"{source}: tensor {name.removeprefix(prefix)!r} {problem}, {tuple(tensor.shape)} is needed; "
                "the weights belong to another network or other channels.",
                code="start-tensor-differs",
                file=source,
                tensor=name.removeprefix(prefix),
                expected=tuple(tensor.shape),
            )
        fresh.append(name)
    network.load_state_dict({**wanted, **filled})
    return fresh

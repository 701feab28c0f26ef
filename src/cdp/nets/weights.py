"""Tensors on disk: safetensors, written atomically, checked by their contents, loaded strictly."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cdp.errors import InputError, StoreError
from cdp.nets.embedding import EmbeddingNetwork, build_network
from cdp.nets.recipe import Recipe
from cdp.nets.torchvision_guard import require
from cdp.store import read_card

WEIGHTS = "weights.safetensors"
_FULL = ("No space left", "Disk quota", "File too large")


def write_tensors(file: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write beside the file, flush, then take its place; on any failure the old file stays."""
    safetensors = require("safetensors.torch")
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    partial = file.with_name(f".{file.name}.partial")
    try:
        # One entry, because the order of several is random and equal weights should be equal files.
        told = json.dumps({**about, "crc32": _checksum(held)}, sort_keys=True)
        safetensors.save_file(held, str(partial), {"cdp": told})
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        partial.replace(file)
        _flush_folder(file.parent)
    except Exception as error:
        partial.unlink(missing_ok=True)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or any(word in str(error) for word in _FULL):
            raise StoreError(
                f"{file}: the disk is full; the last checkpoint is kept. Free space and run the same command "
                "again to go on from there."
            ) from None
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise StoreError(f"{file}: cannot be written ({error}); the last checkpoint is kept.") from None
        raise


def read_tensors(file: Path, way_out: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and what was said about them; a damaged file is an error that names the way out."""
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(str(file), framework="pt") as opened:
            about: dict[str, Any] = json.loads((opened.metadata() or {}).get("cdp", "{}"))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file; {way_out}.") from None
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        raise StoreError(f"{file} is damaged ({error}); {way_out}.") from None
    if "crc32" in about and about["crc32"] != _checksum(tensors):
        raise StoreError(f"{file} is damaged (its contents changed after it was written); {way_out}.")
    return tensors, about


def load_strictly(module: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Fill a module; a missing, superfluous or misshapen tensor is named."""
    wanted = module.state_dict()
    for name, tensor in wanted.items():
        if name not in tensors:
            raise InputError(f"{file}: tensor {name!r} is missing; these weights belong to another network.")
        if tensors[name].shape != tensor.shape:
            hint = "these weights belong to another network or size"
            if name.startswith("classifiers."):
                hint = (
                    f"they were trained for {tensors[name].shape[0]:,} classes, there are {tensor.shape[0]:,} "
                    "here; use the manifest they were trained on, or another folder"
                )
            raise InputError(
                f"{file}: tensor {name!r} has shape {tuple(tensors[name].shape)}, {tuple(tensor.shape)} is "
                f"needed; {hint}."
            )
    extra = next((name for name in tensors if name not in wanted), None)
    if extra is not None:
        raise InputError(
            f"{file}: tensor {extra!r} has no place here; these weights belong to another network."
        )
    module.load_state_dict(dict(tensors), strict=True)


@dataclass(frozen=True)
class TrainedNetwork:
    """A network from its folder, ready to embed.

    Attributes:
        name: of the folder; it names the model in Views.
        network: in evaluation mode.
        recipe: how it was trained.
        card: all that the folder says about itself.
        checksum: of the weights.
    """

    name: str
    network: EmbeddingNetwork
    recipe: Recipe
    card: Mapping[str, Any]
    checksum: str


def load_network(folder: str | Path) -> TrainedNetwork:
    """A trained network from the folder that `cdp train` or `cdp join` wrote."""
    place = Path(folder)
    card = read_card(place)
    if card["kind"] != "Network":
        raise InputError(f"{place}: this folder holds {card['kind']}, not a trained network.")
    settings = card["settings"]
    try:
        recipe = Recipe(**settings["recipe"])
    except (TypeError, KeyError):
        raise InputError(f"{place}: its card names settings this cdp does not know; update cdp.") from None
    file = place / WEIGHTS
    tensors, about = read_tensors(file, "train this network again")
    network = build_for(settings["network"], recipe)
    prefix = "network."
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    load_strictly(network, own, file)
    return TrainedNetwork(place.name, network.eval(), recipe, card, str(about.get("crc32", "")))


def build_for(name: str, recipe: Recipe) -> EmbeddingNetwork:
    """The network that a recipe asks for, freshly initialized; ArcFace stands on output E."""
    return build_network(
        name,
        size=recipe.size,
        channels=recipe.channels,
        dimensions=recipe.dimensions,
        output="E" if recipe.loss == "arcface" else "paper",
        dropout=recipe.dropout,
        seed=recipe.seed,
    )


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        total = zlib.crc32(name.encode(), total)
        if tensor.numel():
            total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return total


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

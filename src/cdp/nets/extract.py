"""Trained networks as embedders: a manifest seen by them, as a folder of views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from cdp.errors import InputError
from cdp.nets.augment import center_crop
from cdp.nets.embed_images import embed_images
from cdp.nets.pixels import PixelFormat
from cdp.nets.weights import TrainedNetwork, load_network
from cdp.runtime.devices import resolve_device
from cdp.runtime.runtime import Runtime
from cdp.storage.files import check_output
from cdp.types import Views
from cdp.types.arrays import ByteArray, FloatArray
from cdp.types.manifest import Manifest

_BATCH = 256


class NetworkEmbedder:
    """A trained network as `cdp.nets.embed_images.Embedder`; torch uses its own threads."""

    is_concurrent = False
    batch = _BATCH
    assumed = ""

    def __init__(self, trained: TrainedNetwork, device: torch.device, folder: Path) -> None:
        self.trained, self.folder = trained, folder.absolute()
        self.name, self.checksum = trained.name, f"crc32 {trained.checksum}"
        self.dimensions = trained.network.dimensions
        self.pixel_format = PixelFormat.of(trained.recipe)
        self.device = str(device)
        self.inputs: Mapping[str, Any] = {}

    def embed(self, pixels: ByteArray, flip: bool = False) -> FloatArray:
        """Embed decoded images as unit vectors."""
        return embed_block(self.trained, pixels, flip)

    def stop(self) -> bool:
        """Nothing: blocks take a moment, and one thread computes them."""
        return False

    def __reduce__(self) -> tuple[Callable[..., NetworkEmbedder], tuple[str, str]]:
        """Another process is sent the folder's name, not the weights."""
        return _open_once, (str(self.folder), self.checksum)


@lru_cache(maxsize=16)
def _open_once(folder: str, checksum: str) -> NetworkEmbedder:
    """Load a network once per worker process, on its GPU or on one core."""
    torch.set_num_threads(1)
    (opened,) = open_networks(Path(folder).parent, Path(folder).name, [])
    if opened.checksum != checksum:
        raise InputError(
            f"{folder}: the network changed since embedding began; start again, with storage that all "
            "nodes see under the same path.",
            code="network-changed",
            folder=folder,
        )
    return opened


def open_networks(
    networks: str | Path, base: str | None, members: Sequence[str] | None = None, device: str = "auto"
) -> list[NetworkEmbedder]:
    """Trained networks ready to embed, the base first.

    Args:
        networks: folder with one folder per trained network.
        base: which of them is the base; None = none, the base is another model.
        members: committee, in order; None = all others, by name.
    """
    on = resolve_device(device)
    names = choose_members(Path(networks), base, members)
    return [
        NetworkEmbedder(load_network(Path(networks) / name, on), on, Path(networks) / name)
        for name in ([base] if base is not None else []) + names
    ]


def extract_views(
    networks: str | Path,
    manifest: Manifest,
    out: str | Path,
    *,
    base: str,
    members: Sequence[str] | None = None,
    flip: bool = False,
    batch: int = 256,
    force: bool = False,
    inputs: Iterable[str | Path | None] = (),
    runtime: Runtime | None = None,
) -> Views:
    """Embed a manifest's images: row = manifest row, one unit vector per image and network.

    What is half done is kept next to `out` and gone on with when the same command runs again.

    Args:
        networks: folder with one folder per trained network.
        members: committee, in order; None = all others, by name.
        batch: images per forward pass; the rows of a file are cut into such blocks.
        inputs: what else is read, in addition to the networks, and is never replaced.
        runtime: how it runs: threads decode, workers of Ray decode and embed.
    """
    runtime, inputs = runtime or Runtime(), [networks, *inputs]
    # An output that may not be replaced is found out before networks are loaded.
    check_output(out, force=force, kind="Views", inputs=inputs)
    return embed_images(
        manifest,
        open_networks(networks, base, members, runtime.settings.device),
        out,
        flip=flip,
        batch=batch,
        force=force,
        inputs=inputs,
        runtime=runtime,
    ).views


def choose_members(networks: Path, base: str | None, members: Sequence[str] | None) -> list[str]:
    """Choose the committee: the names asked for, or every trained network except the base."""
    if not networks.is_dir():
        raise InputError(
            f"{networks}: no such folder; give the --out of cdp train.",
            code="networks-folder-missing",
            folder=networks,
        )
    trained = sorted(card.parent.name for card in networks.glob("*/card.json"))
    wanted = [name for name in trained if name != base] if members is None else list(members)
    for name in wanted if base is None else [base, *wanted]:
        if name not in trained:
            half = " (its training is not finished)" if (networks / name).is_dir() else ""
            listed = ", ".join(trained) or "none"
            raise InputError(
                f"{networks}: no trained network {name!r}{half}; trained are {listed}.",
                code="network-not-trained",
                folder=networks,
                network=name,
            )
    return wanted


def embed_block(trained: TrainedNetwork, pixels: ByteArray, flip: bool) -> FloatArray:
    """Embed decoded images as unit vectors, float32 (b, dimensions), where the network is."""
    device = next(trained.network.parameters()).device
    with torch.inference_mode():
        images = center_crop(torch.from_numpy(pixels), trained.recipe.size).to(device)
        if trained.recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        vectors = functional.normalize(trained.network(images))
        if flip:
            vectors = functional.normalize(vectors + functional.normalize(trained.network(images.flip(-1))))
        on_cpu: FloatArray = vectors.cpu().numpy()
    return on_cpu

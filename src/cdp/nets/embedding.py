"""A trunk and the head that turns its last map into one vector per image."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from cdp.errors import InputError
from cdp.nets.backbones import make_trunk
from cdp.nets.recipe import seed_for
from cdp.nets.trunks import HeadKind, TrunkEntry, find_trunk

Output = Literal["paper", "E"]
_CONV_WIDTH = 256


class EmbeddingNetwork(nn.Module):
    """Map images (b, channels, size, size), roughly in [-1, 1], to unnormalized vectors (b, dimensions)."""

    def __init__(self, trunk: nn.Module, head: nn.Module, dimensions: int) -> None:
        super().__init__()
        self.trunk, self.head, self.dimensions = trunk, head, dimensions

    def forward(self, images: Tensor) -> Tensor:
        """Compute one vector per image."""
        vectors: Tensor = self.head(self.trunk(images))
        return vectors


def build_network(
    name: str,
    *,
    size: int,
    channels: int = 3,
    dimensions: int = 256,
    output: Output = "paper",
    dropout: float = 0.4,
    seed: int | None = 0,
) -> EmbeddingNetwork:
    """Return a fresh network for images of size x size, Xavier-initialized from the seed.

    Args:
        name: a registered trunk or any of timm's.
        size: pixels a side; the head's fully connected layer depends on it.
        channels: 1 for grey, 3 for color.
        output: `paper` (1x1 convolution, fully connected) or `E` (BN-Dropout-FC-BN, for ArcFace).
        dropout: of output E.
        seed: of the initialization; None leaves the library's own.
    """
    entry = find_trunk(name)
    trunk = make_trunk(entry, channels, size)
    shape = _map_shape(entry, trunk, channels, size)
    head = _make_head(entry.head if output == "paper" else "E", shape, dimensions, dropout)
    network = EmbeddingNetwork(trunk, head, dimensions)
    if seed is not None:
        initialize(network, seed_for(seed, "network"))
    return network


def count_parameters(name: str, *, size: int, classes: int, channels: int = 3, dimensions: int = 256) -> int:
    """Learned numbers of the network with its classifier, without allocating any of them."""
    with torch.device("meta"):
        network = build_network(name, size=size, channels=channels, dimensions=dimensions, seed=None)
        classifier = nn.Linear(dimensions, classes)
    return sum(one.numel() for module in (network, classifier) for one in module.parameters())


def initialize(module: nn.Module, seed: int) -> None:
    """Xavier for every weight, zero for every bias, the same numbers for the same seed.

    Glorot and Bengio: uniform in +-sqrt(6 / (fan_in + fan_out)).
    """
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(part.weight, generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm):
            for tensor, value in ((part.weight, 1.0), (part.bias, 0.0)):
                if tensor is not None:
                    nn.init.constant_(tensor, value)
        else:
            # Class tokens, position tables and the like: their library drew them from the global generator.
            for parameter in part.parameters(recurse=False):
                if parameter.ndim > 1:
                    nn.init.trunc_normal_(parameter, std=0.02, generator=generator)


def _map_shape(entry: TrunkEntry, trunk: nn.Module, channels: int, size: int) -> tuple[int, int, int]:
    """Shape (c, h, w) of the trunk's map, found by sending one empty image through."""
    device = next(trunk.parameters()).device
    was_training = trunk.training
    try:
        with torch.no_grad():
            features: Any = trunk.eval()(torch.zeros(1, channels, size, size, device=device))
    except RuntimeError as error:
        raise InputError(
            f"network {entry.name!r} cannot take images of {size} x {size} x {channels} ({error}); "
            "choose another --size.",
            code="network-size-not-taken",
            network=entry.name,
            size=size,
            channels=channels,
        ) from None
    trunk.train(was_training)
    if not isinstance(features, Tensor) or features.ndim != 4 or min(features.shape) < 1:
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise InputError(
            f"network {entry.name!r} gives {shape} for one image; a trunk gives a map (b, c, h, w).",
            code="network-map-wrong",
            network=entry.name,
            found=shape,
        )
    return features.shape[1], features.shape[2], features.shape[3]


def _make_head(
    kind: HeadKind | Literal["E"], shape: tuple[int, int, int], dimensions: int, dropout: float
) -> nn.Module:
    width, height, length = shape
    if kind in ("conv", "conv_stride2"):
        stride = 2 if kind == "conv_stride2" else 1
        cells = -(-height // stride) * -(-length // stride)
        squeeze = nn.Conv2d(width, _CONV_WIDTH, 1, stride, bias=False), nn.BatchNorm2d(_CONV_WIDTH)
        last = nn.Linear(_CONV_WIDTH * cells, dimensions)
        return nn.Sequential(*squeeze, nn.ReLU(inplace=True), nn.Flatten(), last)
    flat = nn.Flatten(), nn.Linear(width * height * length, 2048 if kind == "fc2048" else dimensions)
    if kind == "E":
        return nn.Sequential(nn.BatchNorm2d(width), nn.Dropout(dropout), *flat, nn.BatchNorm1d(dimensions))
    if kind == "fc2048":
        return nn.Sequential(*flat, nn.ReLU(inplace=True), nn.Linear(2048, dimensions))
    return nn.Sequential(*flat)


def count_all_parameters(classes: int, size: int, channels: int, dimensions: int) -> list[dict[str, Any]]:
    """Count the parameters of every network by name, with classifier; None if images are too small."""
    from cdp.nets.trunks import network_names

    rows: list[dict[str, Any]] = []
    for name in network_names():
        entry, count = find_trunk(name), None
        if size >= entry.least_size:
            count = count_parameters(
                name, size=size, classes=classes, channels=channels, dimensions=dimensions
            )
        facts = {"least_size": entry.least_size, "about": entry.about}
        rows.append({"name": name, "group": entry.group, "parameters": count, **facts})
    return rows

"""Stages 1 and 3 of the paper on the user's own images, with torch.

Names are loaded on first use, so importing this package imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "ArcFace": "cdp.nets.losses",
    "CosFace": "cdp.nets.losses",
    "EmbeddingNetwork": "cdp.nets.embedding",
    "PartialSoftmax": "cdp.nets.sharded",
    "Recipe": "cdp.nets.recipe",
    "Softmax": "cdp.nets.losses",
    "build_network": "cdp.nets.embedding",
    "count_parameters": "cdp.nets.embedding",
    "ensemble": "cdp.nets.ensemble",
    "extract_views": "cdp.nets.extract",
    "load_network": "cdp.nets.weights",
    "network_names": "cdp.nets.trunks",
    "register_trunk": "cdp.nets.trunks",
    "train_joint": "cdp.nets.joint",
    "train_supervised": "cdp.nets.supervised",
}

_WITHOUT_TORCH = {"Recipe", "ensemble", "network_names", "register_trunk"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cdp.nets' has no attribute {name!r}")
    if name not in _WITHOUT_TORCH:
        from cdp.nets.torchvision_guard import require

        require("torch")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

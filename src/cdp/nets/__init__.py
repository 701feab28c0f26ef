"""Stages 1 and 3 of the paper on the user's own images, with torch.

Names are loaded on first use, so importing this package imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "embedding": ("EmbeddingNetwork", "build_network", "count_parameters"),
    "ensemble": ("ensemble",),
    "extract": ("extract_views",),
    "joint": ("train_joint",),
    "losses": ("ArcFace", "CosFace", "Softmax"),
    "recipe": ("Recipe",),
    "sharded": ("PartialSoftmax",),
    "supervised": ("train_supervised",),
    "trunks": ("network_names", "register_trunk"),
    "weights": ("load_network",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_WITHOUT_TORCH = ("recipe", "ensemble", "trunks")

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cdp.nets' has no attribute {name!r}")
    if _HOMES[name] not in _WITHOUT_TORCH:
        from cdp.nets.torchvision_guard import require

        require("torch")
    value = getattr(import_module(f"cdp.nets.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""All settings of a training run: typed, checked, written to the card."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cdp.errors import InputError

_RANGES: dict[str, tuple[float, float, str]] = {
    "epochs": (0.0, 1e6, "a number of passes over the images"),
    "batch": (1, 1e7, "a number of images per step"),
    "rate": (0.0, 1e3, "the highest learning rate"),
    "momentum": (0.0, 1.0, "the momentum of SGD, below 1"),
    "weight_decay": (0.0, 1.0, "the weight decay"),
    "dimensions": (1, 1e5, "the length of an embedding"),
    "dropout": (0.0, 1.0, "the share of dropped inputs"),
    "label_smoothing": (0.0, 1.0, "the share of the label spread over all classes"),
    "shift": (0.0, 0.5, "a share of the image's side"),
    "rotate": (0.0, 180.0, "degrees"),
    "zoom": (0.0, 0.9, "a share of the image's side"),
    "sample_classes": (0.0, 1.0, "a share of the classes"),
}
_CHOICES = {
    "schedule": ("paper", "one_cycle"),
    "loss": ("softmax", "arcface", "cosface"),
    "precision": ("float32", "bfloat16"),
}


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        epochs: passes over the images.
        batch: images per step, over all processes together.
        rate: highest learning rate; momentum, weight_decay: of SGD.
        schedule: `paper` (a tenth at 2/3.5 and 3/3.5 of the run) or `one_cycle` for short runs.
        size: pixels a side the network sees; scale: pixels a side the image is brought to before a crop of
            `size` is taken, 0 = the same.
        color: color or grey input.
        dimensions: length of an embedding.
        loss: softmax, arcface (with output E) or cosface; margin and logit_scale: 0 = the loss's own.
        flip: mirror half of the images; shift, rotate, zoom: most that an image is moved (share of its side),
            turned (degrees) and scaled.
        enlarge: allow images smaller than the crop.
        sample_classes: share of the classes that one step sees; 1 = all of them.
        shard_classes: keep a part of every classifier on each process instead of all of it on all.
        seed: of initialization, order and augmentation.
    """

    epochs: float = 20
    batch: int = 128
    rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["paper", "one_cycle"] = "one_cycle"
    size: int = 32
    scale: int = 0
    color: bool = True
    dimensions: int = 256
    loss: Literal["softmax", "arcface", "cosface"] = "softmax"
    margin: float = 0.0
    logit_scale: float = 0.0
    dropout: float = 0.4
    label_smoothing: float = 0.0
    flip: bool = False
    shift: float = 0.0
    rotate: float = 0.0
    zoom: float = 0.0
    enlarge: bool = False
    sample_classes: float = 1.0
    shard_classes: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = True
    compile: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (low, high, meaning) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"Recipe({name}={value}): {name} is {meaning}, from {low:g} to {high:g}.")
        for name in ("epochs", "sample_classes"):
            if getattr(self, name) <= 0:
                raise InputError(f"Recipe({name}=0): {name} must be greater than 0.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(
                    f"Recipe({name}={getattr(self, name)!r}): choose one of {', '.join(choices)}."
                )
        if self.size < 8:
            raise InputError(f"Recipe(size={self.size}): the network sees images of 8 pixels a side or more.")
        if self.scale and self.scale < self.size:
            raise InputError(
                f"Recipe(scale={self.scale}, size={self.size}): a crop of {self.size} does not fit into "
                f"{self.scale}; scale is 0 or at least size."
            )
        if self.is_partial and (self.loss != "softmax" or self.label_smoothing):
            raise InputError(
                "Recipe(sample_classes, shard_classes): these work with the softmax loss without smoothing only."
            )

    @property
    def stored_size(self) -> int:
        """Pixels a side of the stored images, before the crop."""
        return self.scale or self.size

    @property
    def channels(self) -> int:
        """1 or 3."""
        return 3 if self.color else 1

    @property
    def is_partial(self) -> bool:
        """Whether classifiers are sharded or sampled."""
        return self.sample_classes < 1 or self.shard_classes

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def key_of(*parts: Any) -> str:
    """A short name for a set of settings, to tell whether a half-done run is this run."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]

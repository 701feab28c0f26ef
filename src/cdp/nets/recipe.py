"""Settings of a training run: typed, checked, stored on the network's card. Without torch."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from cdp.errors import InputError
from cdp.settings import setting, settings_of, share


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained, except for the seed; also the training sections of `cdp run`."""

    section: ClassVar[str] = ""

    epochs: float = setting(
        20, "Passes over the images.", meaning="a number of passes over the images", above=0, high=1e6
    )
    batch: int = setting(
        128, "Images per step, over all processes together.", meaning="a number of images", low=1, high=1e7
    )
    rate: float = setting(
        0.05, "Highest learning rate.", meaning="the highest learning rate", low=0, high=1e3
    )
    momentum: float = setting(0.9, "Momentum of SGD.", meaning="the momentum of SGD", low=0, high=1)
    weight_decay: float = setting(5e-4, "Weight decay of SGD.", meaning="the weight decay", low=0, high=1)
    schedule: Literal["paper", "one_cycle"] = setting(
        "one_cycle", "A tenth of the rate at 2/3.5 and 3/3.5 of the run (paper), or one_cycle for short runs."
    )
    size: int = setting(32, "Input size of the network, in pixels.", meaning="pixels a side", low=8)
    scale: int = setting(0, "Size in pixels to scale images to before cropping to `size`; 0 = no crop.")
    color: bool = setting(True, "Color input; false = grey.")
    dimensions: int = setting(
        256, "Length of an embedding.", meaning="the length of an embedding", low=1, high=1e5
    )
    loss: Literal["softmax", "arcface", "cosface"] = setting(
        "softmax", "The loss; arcface comes with output E."
    )
    margin: float = setting(0.0, "Margin of arcface and cosface; 0 = the loss's own.")
    logit_scale: float = setting(0.0, "Scale of the logits of arcface and cosface; 0 = the loss's own.")
    dropout: float = share(0.4, "Share of inputs dropped in the head of arcface (output E).")
    label_smoothing: float = setting(
        0.0, "Share of the label spread over all classes.", meaning="a share of the label", low=0, high=1
    )
    flip: bool = setting(False, "Mirror half of the images.")
    shift: float = share(0.0, "Maximum shift, as a share of the side.", high=0.5)
    rotate: float = setting(0.0, "Maximum rotation, in degrees.", meaning="degrees", low=0, high=180)
    zoom: float = share(0.0, "Maximum change of scale, as a share of the side.", high=0.9)
    sample_classes: float = share(1.0, "Share of the classes compared in a step; 1 = all.", above=0)
    shard_classes: bool = setting(False, "Divide every classifier among the processes.")
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "Precision of the forward and backward pass."
    )
    channels_last: bool = setting(True, "Memory order that suits convolutions on most processors.")
    compile: bool = setting(False, "Compile the network with torch.compile before training.")

    def __post_init__(self) -> None:
        before = f"{self.section}." if self.section else ""
        for name, known in settings_of(type(self)).items():
            # Checked, not converted: the hashes of unfinished runs hold the values as they were given.
            known.convert(getattr(self, name), f"{before}{name}")
        if self.scale and self.scale < self.size:
            raise InputError(
                f"{before}scale = {self.scale} is smaller than {before}size = {self.size}; set scale "
                "to 0 or to at least size.",
                code="scale-below-size",
                scale=self.scale,
                size=self.size,
            )
        if self.is_partial and (self.loss != "softmax" or self.label_smoothing):
            raise InputError(
                f"{before}sample_classes, {before}shard_classes: these work with the softmax loss without "
                "smoothing only.",
                code="sampling-needs-softmax",
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

    @property
    def idle(self) -> frozenset[str]:
        """Name the settings that cannot affect the trained network, given the others.

        Memory order and compilation are among them as threads and devices are: with another, networks round
        differently.
        """
        idle = {"channels_last", "compile"}
        idle |= {"margin", "logit_scale"} if self.loss == "softmax" else set()
        return frozenset(idle if self.loss == "arcface" else idle | {"dropout"})

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def key_values(self) -> dict[str, Any]:
        """Plain values of the settings that are not idle."""
        return {name: value for name, value in self.as_dict().items() if name not in self.idle}


@dataclass(frozen=True)
class Recipe(TrainingSettings):
    """How a network is trained, with the seed; see `TrainingSettings` for the fields."""

    seed: int = setting(0, "Random seed.", low=0, below=2**63)


@dataclass(frozen=True)
class JointLoss:
    """How true labels, pseudo-labels and teachers are weighed in stage 3."""

    labeled_share: float = share(
        -1.0, "Lambda, the weight of the labeled loss; -1 = the share of the labeled images.", also=-1
    )
    one_classifier: bool = setting(
        False,
        "One classifier for labeled and pseudo-identities, if parts are disjoint; false = one each (paper).",
    )
    siblings: float = setting(
        1.0,
        "Probability above which two groups do not repel each other in training; 1 = all do (the paper).",
        meaning="a probability",
        above=0,
        high=1,
    )
    distill: float = setting(
        0.0,
        "Weight of distillation from the embeddings of all networks of the last round; 0 = none (the paper).",
        meaning="a weight",
        low=0,
        high=1e3,
    )


def seed_for(*purpose: int | str) -> int:
    """Return a seed in 0..2**63-1, a function of all parts of its purpose.

    So nothing random has to be saved in a checkpoint, and a rerun draws the same numbers.
    """
    digest = hashlib.sha256(repr(purpose).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1

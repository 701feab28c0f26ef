"""Embedding models that are known by the SHA-256 of their file, and how each wants its images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KnownModel:
    """A published file.

    Attributes:
        title: what the model is called.
        color: order of the channels.
        mean, std: a pixel of 0..255 becomes (pixel - mean) / std; one number per channel, in the order of
            `color`.
        size: height and width of its images.
    """

    title: str
    color: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    size: tuple[int, int] = (112, 112)

    def as_card(self) -> dict[str, Any]:
        """Return the same as the keys of a card next to a file."""
        return {
            "size": list(self.size),
            "color": self.color,
            "mean": list(self.mean),
            "std": list(self.std),
        }


IMAGENET_MEAN, IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Of the channels red, green and blue, for pixels of 0..255."""

# Each as the project that publishes the weights prepares its own images:
#   SFace: objdetect/src/face_recognize.cpp of opencv/opencv has blobFromImage with scale 1, mean 0 and swapRB
#   on an image in BGR, so the network sees RGB.
#   MobileFaceNet: data_gen.py of foamliu/MobileFaceNet has ToTensor and Normalize with ImageNet's mean and
#   std on RGB. Faceplugin: its package aligns an image in BGR, and subtracts 127 and divides by 128. On pairs
#   of LFW, BGR is the better order too (tests/quality/test_lfw_accuracy.py).
KNOWN_MODELS = {
    "0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79": KnownModel(
        "SFace", "RGB", (0.0,) * 3, (1.0,) * 3
    ),
    "b7120c095d60094f28a4a54ba6a8bf51b297a6273fb40ef6350dfec1f63d9507": KnownModel(
        "MobileFaceNet of foamliu", "RGB", IMAGENET_MEAN, IMAGENET_STD
    ),
    "87aacdfe57510db2af90c0251df680e8eec88f122ee94712121d09bcaaaf3581": KnownModel(
        "Faceplugin", "BGR", (127.0,) * 3, (128.0,) * 3
    ),
}

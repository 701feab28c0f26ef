"""How an ONNX model wants its images: from a card next to the file, from the model itself, or from its family's name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdp.errors import InputError
from cdp.settings import did_you_mean

KEYS = ("size", "color", "mean", "std", "output")
_TEXTS = ("color", "output")
_COLORS = ("RGB", "BGR", "gray")


@dataclass(frozen=True)
class Family:
    """Published models that want their images the same way.

    Attributes:
        names: a pattern that is looked for in the file's name, in small letters.
        color: order of the channels.
        mean, std: a pixel of 0..255 becomes (pixel - mean) / std.
    """

    title: str
    names: str
    color: str
    mean: float
    std: float


# Each as the project that publishes the weights prepares its own images, at 112 x 112 pixels:
#   AdaFace: inference.py of mk-minchul/AdaFace reverses RGB, then (x / 255 - 0.5) / 0.5.
#   EdgeFace: the README of otroshi/edgeface has ToTensor and Normalize(0.5, 0.5) on an RGB image.
#   SFace: objdetect/src/face_recognize.cpp of opencv/opencv has blobFromImage with scale 1, mean 0 and swapRB.
#   InsightFace: model_zoo/arcface_onnx.py of deepinsight/insightface has 127.5, 127.5 and swapRB, or 0 and 1 where the
#   graph starts with a subtraction and a multiplication.
FAMILIES = (
    Family("AdaFace", r"adaface", "BGR", 127.5, 127.5),
    Family("EdgeFace", r"edgeface", "RGB", 127.5, 127.5),
    Family("SFace", r"(?<![a-z])sface", "RGB", 0.0, 1.0),
    Family(
        "InsightFace", r"w600k|glintr100|glint360k|arcface|mobilefacenet|mobile_facenet", "RGB", 127.5, 127.5
    ),
)
FACE_SIZE = 112
# docs/MetadataProps.md of onnx/onnx.
_PIXEL_FORMATS = {"Rgb8": "RGB", "Bgr8": "BGR", "Gray8": "gray"}
_PIXEL_RANGES = {
    "NominalRange_0_255": (0.0, 1.0),
    "Normalized_0_1": (0.0, 255.0),
    "Normalized_1_1": (127.5, 127.5),
}


@dataclass(frozen=True)
class InputConventions:
    """What becomes of an image before a model sees it.

    Attributes:
        color: RGB, BGR or gray.
        mean, std: per channel in that order; a pixel of 0..255 becomes (pixel - mean) / std.
        output: name of the output that holds the embedding; empty = the only one that can.
        known_from: key -> `card`, `model` or the title of a family.
    """

    size: int
    color: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    output: str
    known_from: Mapping[str, str]


def find_conventions(
    file: Path,
    metadata: Mapping[str, str],
    own_size: int | None,
    channels: int | None,
    is_scaled_inside: bool,
) -> InputConventions:
    """How a model wants its images; what the card says counts most, then the model, then the family.

    Args:
        file: the model; `NAME.toml` next to it is its card.
        own_size: pixels a side by the shape of its input, None if that leaves it open.
        channels: the same for its channels.
        is_scaled_inside: whether the graph itself subtracts a mean and divides.
    """
    card = file.with_suffix(".toml")
    name = file.stem.lower()
    family = next((one for one in FAMILIES if re.search(one.names, name)), None)
    sources: list[tuple[str, dict[str, Any]]] = [
        ("card", _read_card(card)),
        ("model", _of_metadata(metadata, file)),
    ]
    sources.append(("model", {"size": own_size} if own_size else {}))
    sources.append(("model", {"mean": 0.0, "std": 1.0} if is_scaled_inside else {}))
    sources.append(("model", {"color": "gray"} if channels == 1 else {}))
    if family is not None:
        about = {"color": family.color, "mean": family.mean, "std": family.std, "size": FACE_SIZE}
        sources.append((family.title, about))
    sources.append(("", {"output": ""}))
    found: dict[str, Any] = {}
    known_from: dict[str, str] = {}
    for source, values in sources:
        for key, value in values.items():
            if key not in found:
                found[key], known_from[key] = value, source
    missing = [key for key in ("size", "color", "mean", "std") if key not in found]
    if missing:
        raise InputError(
            f"{file}: neither the model nor its name says its {', '.join(missing)}; write them into {card}, for example "
            'size = 112, color = "RGB", mean = 127.5 and std = 127.5, each on a line of its own.',
            code="onnx-conventions-missing",
            file=file,
            keys=tuple(missing),
            card=card,
        )
    n_channels = 1 if found["color"] == "gray" else 3
    if channels not in (None, n_channels):
        raise InputError(
            f"{file}: takes {channels} channels, and {known_from['color']} says {found['color']}; correct {card}.",
            code="onnx-channels-differ",
            file=file,
            expected=channels,
            found=found["color"],
        )
    _check_size(file, card, own_size, found["size"])
    mean, std = (_per_channel(found[key], n_channels, key, file) for key in ("mean", "std"))
    return InputConventions(found["size"], found["color"], mean, std, found["output"], known_from)


def _check_size(file: Path, card: Path, own_size: int | None, size: int) -> None:
    if own_size and size != own_size:
        raise InputError(
            f"{file}: takes images of {own_size} pixels a side, and {card} says {size}; correct the card.",
            code="onnx-size-differs",
            file=file,
            expected=own_size,
            found=size,
        )


def _read_card(card: Path) -> dict[str, Any]:
    if not card.is_file():
        return {}
    try:
        values = tomllib.loads(card.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            f"{card}: cannot be read as TOML ({error}); write KEY = VALUE on each line.",
            code="onnx-card-syntax-wrong",
            file=card,
        ) from None
    return _check(values, str(card))


def _of_metadata(metadata: Mapping[str, str], file: Path) -> dict[str, Any]:
    """What the model's own metadata say: ONNX's names for images, or the keys of a card as TOML values."""
    found: dict[str, Any] = {}
    for key in KEYS:
        text = metadata.get(key, "")
        with suppress(tomllib.TOMLDecodeError):  # another program's use of the word
            found |= (
                tomllib.loads(f"{key} = {text}" if key not in _TEXTS else f"{key} = '{text}'") if text else {}
            )
    color = _PIXEL_FORMATS.get(metadata.get("Image.BitmapPixelFormat", ""))
    pixels = _PIXEL_RANGES.get(metadata.get("Image.NominalPixelRange", ""))
    if color:
        found.setdefault("color", color)
    if pixels:
        found.setdefault("mean", pixels[0])
        found.setdefault("std", pixels[1])
    return _check(found, f"{file}, metadata")


def _check(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key, value in values.items():
        if key not in KEYS:
            raise InputError(
                f"{where}: {key} is not a key of a card; there are {', '.join(KEYS)}.{did_you_mean(key, KEYS)}",
                code="onnx-card-key-unknown",
                file=where,
                key=key,
            )
        if key == "size" and not (type(value) is int and 1 <= value <= 10_000):
            raise InputError(
                f"{where}: size = {value!r}: pixels a side from 1 to 10,000 are needed.",
                code="onnx-card-size-wrong",
                file=where,
                key="size",
                value=value,
            )
        if key == "color" and value not in _COLORS:
            raise InputError(
                f"{where}: color = {value!r}: choose one of {', '.join(_COLORS)}.",
                code="onnx-card-color-unknown",
                file=where,
                key="color",
                value=value,
            )
        if key == "output" and not isinstance(value, str):
            raise InputError(
                f"{where}: output = {value!r}: the name of an output is needed.",
                code="onnx-card-output-wrong",
                file=where,
                key="output",
                value=value,
            )
    return dict(values)


def _per_channel(value: Any, n_channels: int, key: str, file: Path) -> tuple[float, ...]:
    many = value if isinstance(value, list) else [value] * n_channels
    numbers = [float(one) for one in many if type(one) in (int, float) and abs(one) < 1e6]
    if len(numbers) != len(many) or len(many) != n_channels or (key == "std" and min(numbers) <= 0):
        wanted = "a number above 0" if key == "std" else "a number"
        raise InputError(
            f"{file}: {key} = {value!r}: {wanted} is needed, or a list with one for each of {n_channels} channels.",
            code="onnx-card-numbers-wrong",
            file=file,
            key=key,
            value=value,
        )
    return tuple(numbers)

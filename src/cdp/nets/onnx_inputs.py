"""Input conventions of ONNX models: from a card, the file's hash, the model, or its family's name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cdp.errors import InputError
from cdp.nets.model_cards import IMAGENET_MEAN, KNOWN_MODELS
from cdp.settings import did_you_mean

KEYS = ("size", "color", "mean", "std", "output")
_TEXTS = ("color", "output")
_COLORS = ("RGB", "BGR", "gray")
CARD, MODEL, HASH, TRIAL, USUAL, KEPT = "card", "model", "hash", "trial", "usual", "kept"
"""Where a fact about a model is known from; else it is the title of a family."""


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


# Only families in which every published file wants the same, as the project that publishes the weights
# prepares its own images, at 112 x 112 pixels. "MobileFaceNet" is none: it is an architecture, and projects
#   train it on images of their own kind. AdaFace: inference.py of mk-minchul/AdaFace reverses RGB, then (x /
#   255 - 0.5) / 0.5. EdgeFace: the README of otroshi/edgeface has ToTensor and Normalize(0.5, 0.5) on an RGB
#   image. SFace: objdetect/src/face_recognize.cpp of opencv/opencv has blobFromImage with scale 1, mean 0 and
#   swapRB. InsightFace: model_zoo/arcface_onnx.py of deepinsight/insightface has 127.5, 127.5 and swapRB, or
#   0 and 1 where the graph starts with a subtraction and a multiplication.
FAMILIES = (
    Family("AdaFace", r"adaface", "BGR", 127.5, 127.5),
    Family("EdgeFace", r"edgeface", "RGB", 127.5, 127.5),
    Family("SFace", r"(?<![a-z])sface", "RGB", 0.0, 1.0),
    Family("InsightFace", r"w600k|glintr100|glint360k|arcface", "RGB", 127.5, 127.5),
)
FACE_SIZE = 112
_USUAL: dict[str, Any] = {"color": "RGB", "mean": 127.5, "std": 127.5, "size": FACE_SIZE}
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
        size: height and width in pixels.
        color: RGB, BGR or gray.
        mean, std: per channel in that order; a pixel of 0..255 becomes (pixel - mean) / std.
        output: name of the output that holds the embedding; empty = the only one that can.
        known_from: key -> `card`, `hash`, `model`, the title of a family, `trial` (tried on faces), `usual`
            (assumed) or `kept` (assumed for earlier images).
    """

    size: tuple[int, int]
    color: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    output: str
    known_from: Mapping[str, str]

    @property
    def open_keys(self) -> tuple[str, ...]:
        """What nothing says, and so is to be tried on faces."""
        return tuple(key for key in ("color", "mean", "std") if self.known_from[key] == USUAL)

    @property
    def assumed(self) -> str:
        """What was taken for granted, in words; empty where the card, the model or its hash says all."""
        found = [self.known_from[key] for key in ("color", "mean", "std")]
        sources = [one for one in dict.fromkeys(found) if one not in (CARD, HASH, MODEL)]
        if not sources:
            return ""
        why = " and ".join(_REASONS.get(one, f"taken for {one} by the file's name") for one in sources)
        return f"{self.in_words} is assumed ({why})"

    @property
    def in_words(self) -> str:
        """`RGB, (pixel - 127.5) / 127.5`."""
        mean, std = ("/".join(f"{one:g}" for one in dict.fromkeys(many)) for many in (self.mean, self.std))
        scale = "pixels of 0 to 255" if (mean, std) == ("0", "1") else f"(pixel - {mean}) / {std}"
        if {self.mean, self.mean[::-1]} & {IMAGENET_MEAN}:
            scale = "ImageNet's mean and std"
        return f"{self.color}, {scale}"

    def kept(self) -> InputConventions:
        """Return the same settings for later images, with nothing left open."""
        known_from = {key: KEPT if one == USUAL else one for key, one in self.known_from.items()}
        return replace(self, known_from=known_from)

    def as_plain(self) -> dict[str, Any]:
        """Convert to JSON values for a card of views."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> InputConventions:
        """Restore from the result of `as_plain`."""
        many = {key: tuple(values[key]) for key in ("size", "mean", "std")}
        return cls(**(dict(values) | many))


_REASONS = {
    TRIAL: "tried on these faces",
    USUAL: "the usual; too few faces to try others",
    KEPT: "as for the first faces",
}


@dataclass(frozen=True)
class InputFacts:
    """What a model's file and graph say of its input.

    Attributes:
        checksum: SHA-256 of the file.
        metadata: the model's own.
        size: height and width by the shape of the input, None where that leaves them open.
        channels: the same for the channels.
        is_scaled_inside: whether the graph itself subtracts a mean and divides, or takes whole numbers.
    """

    checksum: str
    metadata: Mapping[str, str]
    size: tuple[int, int] | None
    channels: int | None
    is_scaled_inside: bool


def find_conventions(file: Path, facts: InputFacts) -> InputConventions:
    """Find a model's input conventions; the card wins, then the hash, the model and its family.

    What none of them says is the usual, and `open_keys` names it.

    Args:
        file: the model; `NAME.toml` next to it is its card.
        facts: what its file and graph say.
    """
    card = file.with_suffix(".toml")
    found: dict[str, Any] = {}
    known_from: dict[str, str] = {}
    for source, values in _sources(file, card, facts):
        for key, value in values.items():
            if key not in found:
                found[key], known_from[key] = value, source
    n_channels = 1 if found["color"] == "gray" else 3
    if facts.channels not in (None, n_channels):
        raise InputError(
            f"{file}: takes {facts.channels} channels, and {known_from['color']} says {found['color']}; "
            f"correct {card}.",
            code="onnx-channels-differ",
            file=file,
            expected=facts.channels,
            found=found["color"],
        )
    size = found["size"]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    _check_size(file, card, facts.size, (height, width))
    mean, std = (_per_channel(found[key], n_channels, key, file) for key in ("mean", "std"))
    return InputConventions((height, width), found["color"], mean, std, found["output"], known_from)


def _sources(file: Path, card: Path, facts: InputFacts) -> list[tuple[str, dict[str, Any]]]:
    """Whatever says something of a model's input, what counts most first."""
    published = KNOWN_MODELS.get(facts.checksum)
    name = file.stem.lower()
    family = next((one for one in FAMILIES if re.search(one.names, name)), None)
    return [
        (CARD, _read_card(card)),
        (HASH, published.as_card() if published else {}),
        (MODEL, _of_metadata(facts.metadata, file)),
        (MODEL, {"size": facts.size} if facts.size else {}),
        (MODEL, {"mean": 0.0, "std": 1.0} if facts.is_scaled_inside else {}),
        (MODEL, {"color": "gray"} if facts.channels == 1 else {}),
        (
            family.title if family else "",
            {"color": family.color, "mean": family.mean, "std": family.std, "size": FACE_SIZE}
            if family
            else {},
        ),
        (USUAL, _USUAL),
        ("", {"output": ""}),
    ]


def refuse_open(file: Path, about: InputConventions) -> None:
    """Refuse a model of which not all is known, where nothing can be tried."""
    if about.open_keys:
        card = file.with_suffix(".toml")
        raise InputError(
            f"{file}: unknown {', '.join(about.open_keys)}; write each into {card}, for example size = "
            '112, color = "RGB", mean = 127.5, std = 127.5 (one per line).',
            code="onnx-conventions-missing",
            file=file,
            keys=about.open_keys,
            card=card,
        )


def _check_size(file: Path, card: Path, own: tuple[int, int] | None, size: tuple[int, int]) -> None:
    if own and size != own:
        raise InputError(
            f"{file}: takes images of {own[0]} x {own[1]} pixels (height x width), and {card} says {size[0]} "
            f"x {size[1]}; correct the card.",
            code="onnx-size-differs",
            file=file,
            expected=own,
            found=size,
        )


def _read_card(card: Path) -> dict[str, Any]:
    if not card.is_file():
        return {}
    try:
        values = tomllib.loads(card.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{card}: cannot be read as TOML ({error}); write KEY = VALUE on each line.",
            code="onnx-card-syntax-wrong",
            file=card,
        ) from None
    return _check(values, str(card))


def _of_metadata(metadata: Mapping[str, str], file: Path) -> dict[str, Any]:
    """Read the model's own metadata: ONNX's names for images, or the keys of a card as TOML values."""
    found: dict[str, Any] = {}
    for key in KEYS:
        text = metadata.get(key, "")
        with suppress(ValueError, RecursionError):  # another program's use of the word
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
                f"{where}: {key} is not a key of a card; there are "
                f"{', '.join(KEYS)}.{did_you_mean(key, KEYS)}",
                code="onnx-card-key-unknown",
                file=where,
                key=key,
            )
        if key == "size" and not _is_size(value):
            raise InputError(
                f"{where}: size = {value!r}: pixels a side from 1 to 10,000 are needed, or a list of height "
                "and width.",
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


def _is_size(value: Any) -> bool:
    sides = value if isinstance(value, list) else [value, value]
    return len(sides) == 2 and all(type(side) is int and 1 <= side <= 10_000 for side in sides)


def _per_channel(value: Any, n_channels: int, key: str, file: Path) -> tuple[float, ...]:
    many = value if isinstance(value, list) else [value] * n_channels
    numbers = [float(one) for one in many if type(one) in (int, float) and abs(one) < 1e6]
    if len(numbers) != len(many) or len(many) != n_channels or (key == "std" and min(numbers) <= 0):
        wanted = "a number above 0" if key == "std" else "a number"
        raise InputError(
            f"{file}: {key} = {value!r}: {wanted} is needed, or a list with one for each of {n_channels} "
            "channels.",
            code="onnx-card-numbers-wrong",
            file=file,
            key=key,
            value=value,
        )
    return tuple(numbers)

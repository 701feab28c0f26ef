"""Inputs of the report besides the record: labels, accepted pairs, images, mediator weights."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import numpy as np
from PIL import Image

from cdp.data.archives import split_location
from cdp.data.images import open_images
from cdp.errors import InputError
from cdp.scoring.mediator import Mediator
from cdp.scoring.mlp import PaperMLP
from cdp.types import ConsensusGraph, KnnGraph, Labels, Manifest
from cdp.types.arrays import FloatArray, LongArray
from cdp.web.collection_faces import short_photo_names
from cdp.web.person_names import PersonNames

SIDE = 56
_TRIED = 16
SPLITS_SHOWN = 4
Loaded = TypeVar("Loaded")
Thumbnail = Callable[[int], str | None]


class SplitGroups(NamedTuple):
    """Two groups, and how probable it is that they are one identity."""

    one: int
    other: int
    probability: float


@dataclass(frozen=True, eq=False)
class Artifacts:
    """What was made of n images; each may be missing, and the page says so.

    Attributes:
        base_graph: the base model's neighbors.
        weights: float32 (inputs, hidden), the first layer of the mediator.
        images: where the images are stored, and their true identities, where known.
        identities: int64 (n,), the true identities where the images are not known by path; -1 = unknown.
        split_groups: pairs of groups that are most probably one identity, with that probability, the first of
            `split_groups.csv`.
        numbers: int64 (groups,), the number of every label's identity; the label itself unless given.
        people: number of an identity -> name.
        photos: the photo that every image was cut from, as it is found from the page, empty where there is
            none; None unless the images are faces of photos.
    """

    labels: Labels | None = None
    consensus: ConsensusGraph | None = None
    base_graph: KnnGraph | None = None
    weights: FloatArray | None = None
    images: Manifest | None = None
    identities: LongArray | None = None
    split_groups: tuple[SplitGroups, ...] = ()
    numbers: LongArray | None = None
    people: Mapping[int, str] = field(default_factory=dict)
    photos: Sequence[str] | None = None

    def __post_init__(self) -> None:
        parts = {
            "images": self.images,
            "labels": self.labels,
            "consensus": self.consensus,
            "base graph": self.base_graph,
        }
        counts = {name: part.n_images for name, part in parts.items() if part is not None}
        counts |= {} if self.identities is None else {"identities": len(self.identities)}
        counts |= {} if self.photos is None else {"photos": len(self.photos)}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} {number:,}" for name, number in counts.items())
            raise InputError(
                f"The folder has different numbers of images ({found}); make it again.",
                code="images-counts-differ",
            )

    @property
    def truth(self) -> LongArray | None:
        """The true identities, -1 = unknown."""
        return (
            self.identities if self.identities is not None or self.images is None else self.images.identities
        )

    def number(self, label: int) -> int:
        """Return the number that labels.csv has for a group."""
        return label if self.numbers is None else int(self.numbers[label])

    def group(self, label: int) -> str:
        """Return what a group is called: its name, else its number."""
        return self._called.called(self.number(label))

    @cached_property
    def _called(self) -> PersonNames:
        return PersonNames(self.people)

    @cached_property
    def _photo_names(self) -> Sequence[str]:
        return () if self.photos is None else short_photo_names(self.photos)

    def path(self, row: int) -> str:
        """Return the photo of an image, else where it is stored; `row 17` if that is not known."""
        if self._photo_names and self._photo_names[row]:
            return self._photo_names[row]
        return f"row {row}" if self.images is None else self.images.locations[row]

    def photo_link(self, row: int) -> str:
        """Return the address of an image's photo relative to the page; empty without one or in an archive."""
        photo = "" if self.photos is None else self.photos[row]
        return "" if split_location(photo)[0] is not None else quote(photo)

    def identity(self, number: int) -> str:
        """Return the name of an identity, else its number."""
        names = None if self.images is None else self.images.names
        return (names[number] if names is not None and number < len(names) else "") or str(number)


def first_layer(mediator: Mediator) -> FloatArray | None:
    """Return the mediator's first-layer weights, float32 (inputs, hidden); None for others."""
    if not isinstance(mediator.classifier, PaperMLP):
        return None
    weights: FloatArray = mediator.classifier.weights_[0][0]
    return weights


def thumbnails(images: Manifest | None, side: int = SIDE) -> Thumbnail | None:
    """Return a function from rows to thumbnails as data URIs, `side` pixels wide, None if unreadable.

    None instead of a function if there are no pictures at all: the images are not known by path, or not one
    of a sample can be read.
    """
    if images is None:
        return None
    reader = open_images(images)

    @cache
    def thumbnail(row: int) -> str | None:
        try:
            pixels = reader.image(row, size=side)
        except InputError:
            return None
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG", quality=78, optimize=True)
        return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")

    sample = np.unique(np.linspace(0, images.n_images - 1, _TRIED).astype(np.int64)).tolist()
    return thumbnail if any(thumbnail(row) is not None for row in sample) else None

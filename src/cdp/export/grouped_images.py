"""GroupedImages: what an export writes, from a collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cdp.collection.collection import open_collection
from cdp.collection.image_root import find_image_root
from cdp.errors import InputError
from cdp.types import Manifest
from cdp.types.arrays import FloatArray, LongArray, read_only


@dataclass(frozen=True, eq=False)
class GroupedImages:
    """n images and who is on them.

    Attributes:
        identity: int64 (n,), the number of the person; -1 = in no group.
        confidence: float32 (n,), as in `Labels`.
        names: number -> name, for those who have one.
        images: where the images lie; None if only embeddings are known.
    """

    identity: LongArray
    confidence: FloatArray
    names: Mapping[int, str] = field(default_factory=dict)
    images: Manifest | None = None

    def __post_init__(self) -> None:
        identity, confidence = np.asarray(self.identity), np.asarray(self.confidence)
        lengths = {len(identity), len(confidence)} | ({len(self.images)} if self.images else set())
        if len(lengths) != 1:
            raise InputError(
                "The folder speaks of different numbers of images; make it again.",
                code="images-counts-differ",
            )
        object.__setattr__(self, "identity", read_only(identity, np.int64))
        object.__setattr__(self, "confidence", read_only(confidence, np.float32))

    @property
    def n_images(self) -> int:
        """Number of images, those in no group included."""
        return len(self.identity)

    @property
    def people(self) -> LongArray:
        """The numbers that occur, int64, ascending."""
        return np.unique(self.identity[self.identity >= 0])

    @property
    def classes(self) -> LongArray:
        """The people as 0, 1, 2, … in the order of their numbers, as training wants them, int64 (n,); -1 = none."""
        classes = np.full(self.n_images, -1, np.int64)
        kept = self.identity >= 0
        classes[kept] = np.searchsorted(self.people, self.identity[kept])
        return classes

    def name(self, identity: int) -> str:
        """The name of a person; empty if there is none."""
        return self.names.get(int(identity), "")

    def located(self, wanted_for: str) -> Manifest:
        """Where the images lie.

        Raises:
            InputError: that is not known, or the images are to be turned first.
        """
        if self.images is None:
            raise InputError(
                f"{wanted_for} needs the images, and only embeddings are known here; export csv or parquet, or label "
                "views that have a paths.txt.",
                code="export-needs-images",
            )
        if self.images.turns is not None and self.images.turns.any():
            raise InputError(
                f"{wanted_for} copies images as they are, and these are to be turned; export csv.",
                code="export-of-turned-images",
            )
        return self.images


def read_grouped_images(folder: Path) -> GroupedImages:
    """The groups of a collection.

    Raises:
        InputError: the folder holds something else.
    """
    opened = open_collection(folder)
    paths = None if opened.paths is None else tuple(opened.paths)
    images = None if paths is None else Manifest(paths, np.full(len(paths), -1), root=find_image_root(opened))
    return GroupedImages(opened.identity.astype(np.int64), opened.confidence, opened.names, images)

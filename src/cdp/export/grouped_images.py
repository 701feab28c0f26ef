"""GroupedImages: what an export writes, from a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cdp.collection.collection import open_collection
from cdp.collection.image_root import find_image_root
from cdp.errors import InputError
from cdp.faces.face_tables import FaceRow
from cdp.types import Manifest
from cdp.types.arrays import FloatArray, LongArray, read_only
from cdp.web.collection_faces import read_collection_faces


@dataclass(frozen=True, eq=False)
class GroupedImages:
    """n images and who is on them.

    Attributes:
        identity: int64 (n,), the number of the person; -1 = in no group.
        confidence: float32 (n,), as in `Labels`.
        names: number -> name, for those who have one.
        images: where the images lie; None if only embeddings are known.
        faces: the photo and the box of every image, None for one that was not found on a photo; None if none
            was.
    """

    identity: LongArray
    confidence: FloatArray
    names: Mapping[int, str] = field(default_factory=dict)
    images: Manifest | None = None
    faces: Sequence[FaceRow | None] | None = None

    def __post_init__(self) -> None:
        identity, confidence = np.asarray(self.identity), np.asarray(self.confidence)
        lengths = {len(identity), len(confidence)} | ({len(self.images)} if self.images else set())
        lengths |= set() if self.faces is None else {len(self.faces)}
        if len(lengths) != 1:
            raise InputError(
                "The folder has different numbers of images; make it again.",
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
        """Number the people 0, 1, 2, … in the order of their numbers, int64 (n,); -1 = none."""
        classes = np.full(self.n_images, -1, np.int64)
        kept = self.identity >= 0
        classes[kept] = np.searchsorted(self.people, self.identity[kept])
        return classes

    def name(self, identity: int) -> str:
        """Return the name of a person; empty if there is none."""
        return self.names.get(int(identity), "")

    def titles(self) -> dict[int, str]:
        """Return what every person is called: by name or `person-000012`, and nobody like another."""
        titles: dict[int, str] = {}
        taken: set[str] = set()
        for one in self.people.tolist():
            wanted = title = self.name(one) or f"person-{one:06d}"
            number = 1
            while title in taken:
                number += 1
                title = f"{wanted} ({number})"
            taken.add(title)
            titles[one] = title
        return titles

    def face(self, row: int) -> FaceRow | None:
        """Return the photo and the box of an image, if it was found on a photo."""
        return None if self.faces is None else self.faces[row]

    def located(self, wanted_for: str) -> Manifest:
        """Return where the images lie.

        Raises:
            InputError: that is not known, or the images are to be turned first.
        """
        if self.images is None:
            raise InputError(
                f"{wanted_for} needs the images, and only embeddings are known here; export csv or parquet, "
                "or label views that have a paths.txt.",
                code="export-needs-images",
            )
        if self.images.turns is not None and self.images.turns.any():
            raise InputError(
                f"{wanted_for} copies images unchanged, and these need to be rotated; export csv.",
                code="export-of-turned-images",
            )
        return self.images


def read_grouped_images(folder: Path) -> GroupedImages:
    """Return the groups of a collection.

    Raises:
        InputError: the folder holds something else.
    """
    opened = open_collection(folder)
    paths = None if opened.paths is None else tuple(opened.paths)
    images = None if paths is None else Manifest(paths, np.full(len(paths), -1), root=find_image_root(opened))
    identity = opened.identity.astype(np.int64)
    return GroupedImages(identity, opened.confidence, opened.names, images, read_collection_faces(opened))

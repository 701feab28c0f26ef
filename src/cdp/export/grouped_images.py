"""GroupedImages: what an export writes, from a collection, a labels folder or a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cdp.errors import InputError
from cdp.files import artifact_kind
from cdp.types import Labels, Manifest
from cdp.types.arrays import FloatArray, LongArray, read_only
from cdp.web.report.artifacts import Artifacts, read_label_artifacts, read_run_artifacts


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
            raise InputError("The folder speaks of different numbers of images; make it again.")
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
                "views that have a paths.txt."
            )
        if self.images.turns is not None and self.images.turns.any():
            raise InputError(
                f"{wanted_for} copies images as they are, and these are to be turned; export csv."
            )
        return self.images


def read_grouped_images(folder: Path) -> GroupedImages:
    """The groups in a collection, or in a folder that `cdp label` or `cdp run` wrote.

    Raises:
        InputError: the folder holds something else.
    """
    if artifact_kind(folder) == "Collection":
        return _from_collection(folder)
    is_run = not (folder / "card.json").is_file() and (folder / "labels" / "card.json").is_file()
    artifacts = read_run_artifacts(folder) if is_run else read_label_artifacts(folder)
    return _from_artifacts(artifacts, folder)


def _from_collection(folder: Path) -> GroupedImages:
    from cdp.collection.collection import open_collection
    from cdp.collection.image_root import find_image_root

    opened = open_collection(folder)
    paths = None if opened.paths is None else tuple(opened.paths)
    images = None if paths is None else Manifest(paths, np.full(len(paths), -1), root=find_image_root(opened))
    return GroupedImages(opened.identity.astype(np.int64), opened.confidence, opened.names, images)


def _from_artifacts(artifacts: Artifacts, folder: Path) -> GroupedImages:
    labels: Labels | None = artifacts.labels
    if labels is None:
        raise InputError(f"{folder}: holds no labels; give what cdp label, cdp run or cdp collection wrote.")
    return GroupedImages(labels.labels.astype(np.int64), labels.confidence, {}, artifacts.images)

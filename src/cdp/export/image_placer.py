"""Images into folders of an export, as links or copies, under names that people can read."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import numpy as np

from cdp.data.archives import split_location
from cdp.data.images import open_images
from cdp.errors import InputError
from cdp.export.grouped_images import GroupedImages
from cdp.export.image_kinds import image_suffix
from cdp.types import Manifest

_SUFFIX = re.compile(r"\.\w{1,8}", re.ASCII)


class ImagePlacer:
    """Puts one image after the other into a folder."""

    def __init__(self, folder: Path, images: Manifest, copies: bool) -> None:
        self._folder, self._images, self._copies = folder, images, copies
        self._reader = open_images(images)

    def __call__(self, row: int, name: str) -> tuple[str, str]:
        """Place one image.

        Args:
            row: of the image.
            name: path inside the folder without an ending.

        Returns:
            The path with its ending, and `link` or `copy`; images inside archives are always copied.
        """
        location = self._images.locations[row]
        source = os.path.abspath(os.path.join(self._images.root, location))
        archive, entry = split_location(location)
        suffix = os.path.splitext(entry)[1]
        if not self._copies and (archive is None or os.path.isfile(source)):
            if not os.path.isfile(source):
                raise InputError(
                    f"{self._images.describe(row)} does not exist; correct the path, or copy it back.",
                    code="export-image-missing",
                    row=row,
                )
            file = f"{name}{suffix if _SUFFIX.fullmatch(suffix) else ''}"
            os.symlink(source, self._folder / file)
            return file, "link"
        data = self._reader.read(row)
        file = f"{name}{image_suffix(entry, data)}"
        (self._folder / file).write_bytes(data)
        return file, "copy"


def location_stem(location: str) -> str:
    """Return the name of an image's file without folders and ending."""
    return os.path.splitext(split_location(location)[1].replace("\\", "/").rpartition("/")[2])[0]


def readable_stems(grouped: GroupedImages, images: Manifest) -> list[str]:
    """Name every image after its file, or, for a face on a photo, after the photo and the face's number."""
    stems, faces = [], Counter[str]()
    for row, location in enumerate(images.locations):
        face = grouped.face(row)
        if face is None:
            stems.append(location_stem(location))
            continue
        faces[face.photo] += 1
        is_whole = bool(np.isnan(face.box).any())
        stems.append(location_stem(face.photo) + ("" if is_whole else f"-{faces[face.photo]}"))
    return stems


def photo_manifest(photos: list[str]) -> Manifest:
    """Photos as images that can be placed."""
    return Manifest(tuple(photos), np.full(len(photos), -1), root=os.sep)

"""AnnotatedImage: an image with boxes around the people on it, as data sets for detectors have them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError
from cdp.export.grouped_images import GroupedImages
from cdp.export.image_placer import location_stem
from cdp.export.safe_names import UniqueNames
from cdp.faces.face_regions import photo_header
from cdp.faces.face_tables import FaceRow
from cdp.types import Manifest
from cdp.web.words import counted


@dataclass(frozen=True)
class AnnotatedImage:
    """An image and the people on it.

    Attributes:
        location: path of the image.
        name: what it is called in the data set, without an ending; no two alike.
        width, height: in pixels, upright.
        rows: of its people in the collection.
        boxes: left, top, width, height in pixels of the upright image, as many.
    """

    location: str
    name: str
    width: int
    height: int
    rows: tuple[int, ...]
    boxes: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True)
class AnnotatedImages:
    """All images of a data set.

    Attributes:
        images: those with people of any group.
        notes: sentences about what was left out.
    """

    images: tuple[AnnotatedImage, ...]
    notes: tuple[str, ...] = ()


def annotate_images(grouped: GroupedImages, wanted_for: str) -> AnnotatedImages:
    """Return the photos of faces with a box for each, or the images themselves with a box around all of each.

    Photos that are gone are left out.

    Raises:
        InputError: only embeddings are known, an image is not there, or none of the photos is.
    """
    manifest = grouped.located(wanted_for)
    root = os.path.abspath(manifest.root)
    on: dict[str, list[int]] = {}
    for row in np.flatnonzero(grouped.identity >= 0).tolist():
        face = grouped.face(row)
        place = os.path.join(root, manifest.locations[row]) if face is None else face.photo
        on.setdefault(place, []).append(row)
    names, images, gone = UniqueNames(), [], 0
    for place, rows in on.items():
        header = photo_header(place)
        if header is not None:
            wide, high = header.upright
            boxes = tuple(clipped_box(grouped.face(row), wide, high) for row in rows)
            name = names.take(location_stem(place))
            images.append(AnnotatedImage(place, name, wide, high, tuple(rows), boxes))
        elif grouped.face(rows[0]) is None:
            raise _missing(manifest, rows[0])
        else:
            gone += 1
    if not images:
        raise InputError(
            "None of the photos exists any more; export csv, or copy them back.", code="export-photos-gone"
        )
    notes = (f"{counted(gone, 'photo')} gone or unreadable, left out.",) if gone else ()
    return AnnotatedImages(tuple(images), notes)


def _missing(images: Manifest, row: int) -> InputError:
    return InputError(
        f"{images.describe(row)} is not there or cannot be read; correct the path, or copy it back.",
        code="export-image-missing",
        row=row,
    )


def clipped_box(face: FaceRow | None, width: int, height: int) -> tuple[float, float, float, float]:
    """Left, top, width and height of a face inside its photo; all of it where the photo is the face."""
    if face is None or any(map(math.isnan, face.box)):
        return 0.0, 0.0, float(width), float(height)
    left, right = (min(max(one, 0.0), float(width)) for one in (face.box[0], face.box[2]))
    top, bottom = (min(max(one, 0.0), float(height)) for one in (face.box[1], face.box[3]))
    return left, top, max(right - left, 0.0), max(bottom - top, 0.0)

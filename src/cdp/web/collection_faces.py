"""Faces of a collection made from photos: photo and box per row, and photo names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cdp.collection.collection import Collection
from cdp.faces.face_tables import FaceRow, read_face_rows


def read_collection_faces(collection: Collection) -> list[FaceRow | None] | None:
    """Read the faces of all batches, row by row; None if no batch was made from photos."""
    found: list[FaceRow | None] = []
    for batch in collection.batches:
        n_images, rows = batch.facts.n_images, [] if batch.images is None else read_face_rows(batch.images)
        if len(rows) == n_images:
            found += rows
            continue
        # A table of more or fewer faces than there are images: by the names of the crops.
        by_name = {os.path.basename(one.path): one for one in rows}
        found += [by_name.get(os.path.basename(one)) for one in batch.paths or [""] * n_images]
    return found if any(one is not None for one in found) else None


def short_photo_names(photos: Sequence[str]) -> list[str]:
    """Paths of photos without the folder that all of them are in; empty ones stay empty.

    >>> short_photo_names(["../photos/a/1.jpg", "", "../photos/b/1.jpg"])
    ['a/1.jpg', '', 'b/1.jpg']
    """
    folders = {os.path.dirname(one) for one in photos if one}
    common = os.path.commonpath(folders) if folders and all(folders) else ""
    start = len(common.rstrip(os.sep)) + 1 if common else 0
    return [one[start:] for one in photos]

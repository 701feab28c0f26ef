"""A folder per person, with links or copies, and a table of what went where."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdp.data.archives import split_location
from cdp.data.images import open_images
from cdp.data.manifest_tables import write_csv
from cdp.errors import InputError
from cdp.export.grouped_images import GroupedImages
from cdp.export.image_kinds import image_suffix
from cdp.export.safe_names import UniqueNames, safe_name
from cdp.runtime.progress import Progress, no_progress
from cdp.types import Manifest

TABLE = "exported.csv"
DISCARDED = "_discarded"
_SUFFIX = re.compile(r"\.\w{1,8}", re.ASCII)
ROW_IN_NAME = re.compile(r"(\d{7,})_")
"""How file names begin: with the row, so that an image is known wherever it is moved."""


def write_person_folders(
    folder: Path,
    grouped: GroupedImages,
    *,
    copies: bool = False,
    discarded: bool = False,
    progress: Progress = no_progress,
) -> int:
    """Fill a folder that is being written, and return how many images are in it.

    Args:
        folder: to fill; gets one folder per person and `exported.csv`.
        grouped: who is on which image.
        copies: copy the images instead of linking to them; those inside archives are always copied.
        discarded: put the images that are in no group into the folder `_discarded`.
        progress: called as images are done.

    Raises:
        InputError: only embeddings are known, or an image is not there.
    """
    images = grouped.located("A folder per person")
    homes = person_folder_names(grouped)
    rows = np.flatnonzero(grouped.identity >= (-1 if discarded else 0)).tolist()
    for name in sorted({homes[int(one)] for one in np.unique(grouped.identity[rows])}):
        (folder / name).mkdir()
    files, ways = [], []
    place = _Placer(folder, images, copies)
    for done, row in enumerate(rows):
        file, way = place(row, homes[int(grouped.identity[row])])
        files.append(file)
        ways.append(way)
        if done % 100 == 0:
            progress("images", done, len(rows))
    progress("images", len(rows), len(rows))
    numbers = [int(grouped.identity[row]) for row in rows]
    columns: dict[str, Sequence[Any]] = {
        "row": rows,
        "identity": numbers,
        "name": [grouped.name(one) for one in numbers],
        "file": files,
        "made": ways,
        "source": [images.locations[row] for row in rows],
        "confidence": [f"{grouped.confidence[row]:.6g}" for row in rows],
    }
    write_csv(folder / TABLE, columns)
    return len(rows)


def person_folder_names(grouped: GroupedImages) -> dict[int, str]:
    """What each person's folder is called: the name made safe, or `person-000012`; -1 is the folder of the discarded."""
    names = UniqueNames(DISCARDED, TABLE, "card.json")
    people = grouped.people.tolist()
    # Those without a name first: their folders are then called the same in every export.
    unnamed = {one: names.take(f"person-{one:06d}") for one in people if not grouped.name(one)}
    return {one: unnamed.get(one) or names.take(grouped.name(one)) for one in people} | {-1: DISCARDED}


class _Placer:
    """Puts one image after the other into its folder."""

    def __init__(self, folder: Path, images: Manifest, copies: bool) -> None:
        self._folder, self._images, self._copies = folder, images, copies
        self._reader = open_images(images)

    def __call__(self, row: int, home: str) -> tuple[str, str]:
        """(path inside the folder, `link` or `copy`)."""
        location = self._images.locations[row]
        source = os.path.abspath(os.path.join(self._images.root, location))
        archive, entry = split_location(location)
        stem, suffix = os.path.splitext(entry.replace("\\", "/").rpartition("/")[2])
        name = f"{row:07d}_{safe_name(stem, 80)}"
        if not self._copies and (archive is None or os.path.isfile(source)):
            if not os.path.isfile(source):
                raise InputError(
                    f"{self._images.describe(row)} is not there; correct the path, or copy it back.",
                    code="export-image-missing",
                    row=row,
                )
            file = f"{home}/{name}{suffix if _SUFFIX.fullmatch(suffix) else ''}"
            os.symlink(source, self._folder / file)
            return file, "link"
        data = self._reader.read(row)
        file = f"{home}/{name}{image_suffix(entry, data)}"
        (self._folder / file).write_bytes(data)
        return file, "copy"

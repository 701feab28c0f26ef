"""A folder per person, with links or copies, and a table of what went where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdp.data.manifest_tables import write_csv
from cdp.errors import InputError
from cdp.export.export_result import ExportResult
from cdp.export.grouped_images import GroupedImages
from cdp.export.image_placer import ImagePlacer, location_stem, photo_manifest, readable_stems
from cdp.export.label_lists import face_columns
from cdp.export.safe_names import UniqueNames, safe_name
from cdp.faces.face_regions import photo_header
from cdp.runtime.progress import Progress, no_progress
from cdp.web.words import counted

TABLE = "exported.csv"
PHOTO_TABLE = "photos.csv"
"""Another name than `TABLE`: folders of whole photos say nothing about single faces when they are sorted by
hand."""

DISCARDED = "_discarded"
ROW_IN_NAME = re.compile(r"(\d{7,})_")
"""How file names begin: with the row, so that an image is known wherever it is moved."""


def write_person_folders(
    folder: Path,
    grouped: GroupedImages,
    home: Path,
    *,
    copies: bool = False,
    discarded: bool = False,
    progress: Progress = no_progress,
) -> int:
    """Fill a folder that is being written, and return how many images are in it.

    Args:
        folder: to fill; gets one folder per person and `exported.csv`.
        grouped: who is on which image.
        home: the folder where this will lie in the end.
        copies: copy the images instead of linking to them; those inside archives are always copied.
        discarded: put the images that are in no group into the folder `_discarded`.
        progress: called as images are done.

    Raises:
        InputError: only embeddings are known, or an image is not there.
    """
    images = grouped.located("A folder per person")
    homes, stems = person_folder_names(grouped), readable_stems(grouped, images)
    rows = np.flatnonzero(grouped.identity >= (-1 if discarded else 0)).tolist()
    _make_homes(folder, grouped, homes, rows)
    files, ways = [], []
    place = ImagePlacer(folder, images, copies)
    for done, row in enumerate(rows):
        file, way = place(row, f"{homes[int(grouped.identity[row])]}/{row:07d}_{safe_name(stems[row], 80)}")
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
    write_csv(folder / TABLE, columns | face_columns(grouped, rows, home))
    return len(rows)


def write_photo_folders(
    folder: Path,
    grouped: GroupedImages,
    home: Path,
    *,
    copies: bool = False,
    discarded: bool = False,
    progress: Progress = no_progress,
) -> ExportResult:
    """Fill a folder with one folder per person that has the photos that the person is on.

    A photo of two people is in both folders. `photos.csv` says where every face is.

    Args:
        folder, grouped, home, copies, discarded, progress: as `write_person_folders` has them.

    Raises:
        InputError: the images were not found on photos.
    """
    if grouped.faces is None:
        raise InputError(
            "--photos needs faces found on photos, and these images were not; leave it out.",
            code="export-needs-photos",
        )
    homes = person_folder_names(grouped)
    wanted = np.flatnonzero(grouped.identity >= (-1 if discarded else 0)).tolist()
    photo_of = {row: face.photo for row in wanted if (face := grouped.faces[row]) is not None}
    photos = sorted(set(photo_of.values()))
    gone = {one for one in photos if photo_header(one) is None}
    rows = [row for row, photo in photo_of.items() if photo not in gone]
    if not rows:
        raise InputError("None of the photos exists any more; leave --photos out.", code="export-photos-gone")
    _make_homes(folder, grouped, homes, rows)
    at = {photo: number for number, photo in enumerate(photos)}
    place, names = ImagePlacer(folder, photo_manifest(photos), copies), dict[str, UniqueNames]()
    made: dict[tuple[str, str], tuple[str, str]] = {}
    for done, row in enumerate(rows):
        person, photo = homes[int(grouped.identity[row])], photo_of[row]
        if (person, photo) not in made:
            name = names.setdefault(person, UniqueNames()).take(location_stem(photo))
            made[person, photo] = place(at[photo], f"{person}/{name}")
        if done % 100 == 0:
            progress("images", done, len(rows))
    progress("images", len(rows), len(rows))
    numbers = [int(grouped.identity[row]) for row in rows]
    columns: dict[str, Sequence[Any]] = {
        "row": rows,
        "identity": numbers,
        "name": [grouped.name(one) for one in numbers],
        "file": [made[homes[int(grouped.identity[row])], photo_of[row]][0] for row in rows],
    }
    write_csv(folder / PHOTO_TABLE, columns | face_columns(grouped, rows, home))
    notes = (f"{counted(len(gone), 'photo')} gone or unreadable, left out.",) if gone else ()
    return ExportResult(len(made), len(set(numbers) - {-1}), notes)


def _make_homes(folder: Path, grouped: GroupedImages, homes: dict[int, str], rows: Sequence[int]) -> None:
    for name in sorted({homes[int(one)] for one in np.unique(grouped.identity[list(rows)])}):
        (folder / name).mkdir()


def person_folder_names(grouped: GroupedImages) -> dict[int, str]:
    """Return each person's folder name: the sanitized name, or `person-000012`; -1 = discarded."""
    names = UniqueNames(DISCARDED, TABLE, PHOTO_TABLE, "card.json")
    people = grouped.people.tolist()
    # Those without a name first: their folders are then called the same in every export.
    unnamed = {one: names.take(f"person-{one:06d}") for one in people if not grouped.name(one)}
    return {one: unnamed.get(one) or names.take(grouped.name(one)) for one in people} | {-1: DISCARDED}

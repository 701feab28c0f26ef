"""Tables of an aligned folder: faces with photo, box and landmarks, dropped faces, cannot-link pairs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdp.data.manifest_tables import Columns, locations_from, read_some_columns, write_csv
from cdp.errors import InputError
from cdp.faces.face import Face
from cdp.storage.files import replacing
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest

FACES, DROPPED, DIFFERENT = "faces.csv", "dropped.csv", "different.csv"
_BOX = ("left", "top", "right", "bottom")
_POINTS = ("left_eye", "right_eye", "nose", "left_mouth", "right_mouth")
_MEASURES = ("score", "size", "sharpness", "pose")


@dataclass(frozen=True)
class FaceRow:
    """One face as a table has it.

    Attributes:
        photo: path of its photo, from the root of the file system.
        box: left, top, right, bottom in pixels of the upright photo; NaN where the photo is the face.
        landmarks: x and y of the eyes, the nose and the corners of the mouth; NaN where unknown.
        score, size, sharpness, pose: measures; NaN where unknown.
        path: of the crop, relative to the folder; empty for a face that was left out.
        reason: why it was left out.
    """

    photo: str
    box: tuple[float, ...]
    landmarks: tuple[float, ...]
    score: float = math.nan
    size: float = math.nan
    sharpness: float = math.nan
    pose: float = math.nan
    path: str = ""
    reason: str = ""


def read_face_rows(folder: Path, name: str = FACES) -> list[FaceRow]:
    """Read the faces of a folder, or those that were left out (`dropped.csv`); row = row of the table."""
    file = folder / name
    if not file.is_file():
        return []
    points = [f"{point}_{axis}" for point in _POINTS for axis in "xy"]
    last = "path" if name == FACES else "reason"
    wanted = ["photo", *_BOX, *points, *_MEASURES, last]
    table = read_some_columns(file, _columns(wanted))
    here = os.path.realpath(folder)
    try:
        numbers = {key: [float(one) if one else math.nan for one in table[key]] for key in wanted[1:-1]}
    except ValueError as error:
        raise InputError(
            f"{file}: a number is damaged ({error}); find the faces again.",
            code="face-table-damaged",
            file=file,
        ) from None
    texts = table[last]
    rows = []
    for row, photo in enumerate(table["photo"]):
        score, size, sharpness, pose = (numbers[measure][row] for measure in _MEASURES)
        rows.append(
            FaceRow(
                os.path.normpath(os.path.join(here, str(photo))),
                tuple(numbers[side][row] for side in _BOX),
                tuple(numbers[point][row] for point in points),
                score,
                size,
                sharpness,
                pose,
                path=str(texts[row]) if last == "path" else "",
                reason=str(texts[row]) if last == "reason" else "",
            )
        )
    return rows


def _columns(wanted: Sequence[str]) -> Callable[[Path, list[str]], list[str]]:
    def choose(file: Path, header: list[str]) -> list[str]:
        missing = [name for name in wanted if name not in header]
        if missing:
            raise InputError(
                f"{file}: no column called {missing[0]}; find the faces again.",
                code="face-table-damaged",
                file=file,
            )
        return list(wanted)

    return choose


def rename_photos(folder: Path, renamed: Mapping[str, str]) -> None:
    """Rename photos in the tables of a folder; paths are absolute."""
    here = os.path.realpath(folder)
    for file in (folder / FACES, folder / DROPPED):
        if not file.is_file():
            continue
        table = read_some_columns(file, lambda _file, header: list(header))
        full = [os.path.normpath(os.path.join(here, str(one))) for one in table["photo"]]
        if not any(one in renamed for one in full):
            continue
        table["photo"] = [
            os.path.relpath(renamed[one], here) if one in renamed else before
            for one, before in zip(full, table["photo"], strict=True)
        ]
        with replacing(file) as fresh:
            write_csv(fresh, table)


def write_face_tables(
    manifest: Manifest,
    faces: Sequence[Face],
    dropped: Sequence[Face],
    different: LongArray,
    photos: Manifest,
    folder: Path,
    target: Path,
) -> None:
    """Write the three tables of a folder of faces; photos are named as they are found from `target`."""
    where = locations_from(photos, target)
    identities = manifest.identities.tolist()
    columns: Columns = {"path": list(manifest.locations), "identity": identities}
    if manifest.names is not None:
        columns["identity_name"] = [manifest.names[one] if one >= 0 else "" for one in identities]
    write_csv(folder / FACES, columns | _measures(faces, where))
    reasons: dict[str, Any] = {"reason": [face.reason for face in dropped]}
    write_csv(folder / DROPPED, _measures(dropped, where) | reasons)
    # As `cdp.collection.correction_tables` reads them; by path, so that they hold in a collection of several
    # batches too.
    one, other = ([manifest.locations[row] for row in rows] for rows in different.T.tolist())
    write_csv(folder / DIFFERENT, {"kind": ["different"] * len(one), "path": one, "other_path": other})


def _measures(faces: Sequence[Face], where: Sequence[str]) -> Columns:
    columns: Columns = {
        "photo": [where[face.photo] for face in faces],
        "photo_row": [face.photo for face in faces],
    }
    for at, name in enumerate(_BOX):
        columns[name] = [_text(face.box[at]) for face in faces]
    for at, name in enumerate(_POINTS):
        for axis, letter in enumerate("xy"):
            columns[f"{name}_{letter}"] = [
                "" if face.landmarks is None else _text(face.landmarks[at][axis]) for face in faces
            ]
    for name in _MEASURES:
        columns[name] = [_text(getattr(face, name), 4) for face in faces]
    return columns


def _text(value: float, digits: int = 2) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"

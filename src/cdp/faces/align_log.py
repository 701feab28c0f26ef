"""State of an alignment: a hidden folder with the crops so far and a line per block of photos."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.faces.face import Face
from cdp.storage.artifacts import read_json_lines
from cdp.storage.files import close_work, open_work

_LOG = "done.jsonl"


class _LoggedFace(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One face as the log has it; NaN, which JSON has no word for, is None."""

    photo: int
    box: tuple[float | None, float | None, float | None, float | None]
    landmarks: list[tuple[float | None, float | None]] | None
    score: float | None
    size: float | None
    sharpness: float | None
    pose: float | None
    path: str
    reason: str

    def as_face(self) -> Face:
        """Return the logged face."""
        points = None if self.landmarks is None else np.array(self.landmarks, np.float64)
        score, size, sharpness, pose = map(_or_nan, (self.score, self.size, self.sharpness, self.pose))
        box = tuple(map(_or_nan, self.box))
        return Face(self.photo, box, points, score, size, sharpness, pose, self.path, self.reason)


@dataclass(frozen=True)
class AlignLog:
    """What is done of an alignment; a killed one goes on from here, and at most one block is made again.

    Attributes:
        folder: with the crops; it becomes the output.
        done: first row of a block -> its faces.
    """

    folder: Path
    done: dict[int, list[Face]]

    def append(self, start: int, faces: Iterable[Face]) -> None:
        """Remember a block whose crops are written."""
        line = json.dumps([start, [_to_plain(face) for face in faces]], allow_nan=False)
        with (self.folder / _LOG).open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def close(self) -> None:
        """Leave what is output only."""
        close_work(self.folder, self.folder / _LOG)


def open_log(folder: Path, key: str) -> AlignLog:
    """Return the log in a folder if it is of the same photos, detector and settings, else an empty one.

    Blocks whose line is damaged or whose crops are gone are made again; a warning reports a half-written last
    line.
    """
    if open_work(folder, key):
        return AlignLog(folder, {})
    log = folder / _LOG
    lines = read_json_lines(log, tuple[int, list[_LoggedFace]])
    kept = AlignLog(folder, {})
    log.unlink(missing_ok=True)
    for start, logged in lines.values.values():
        faces = [one.as_face() for one in logged]
        if all(_is_there(folder, face) for face in faces):
            kept.done[start] = faces
            kept.append(start, faces)
    return kept


def _is_there(folder: Path, face: Face) -> bool:
    """Check whether the crop of a face was written; a power cut may leave its file empty."""
    crop = folder / face.path
    return not face.path or (crop.is_file() and crop.stat().st_size > 0)


def _to_plain(face: Face) -> list[Any]:
    points = None if face.landmarks is None else [list(map(_or_none, point)) for point in face.landmarks]
    measures = map(_or_none, (face.score, face.size, face.sharpness, face.pose))
    return [face.photo, list(map(_or_none, face.box)), points, *measures, face.path, face.reason]


def _or_none(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number

"""Where an alignment stands: a hidden folder next to its output with the crops so far, and a line for every block of photos."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.faces.face import Face
from cdp.storage.files import close_work, open_work

_LOG = "done.jsonl"


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
        line = json.dumps([start, [_to_plain(face) for face in faces]])
        with (self.folder / _LOG).open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def close(self) -> None:
        """Leave what is output only."""
        close_work(self.folder, self.folder / _LOG)


def open_log(folder: Path, key: str) -> AlignLog:
    """The log in a folder if it is of the same photos, detector and settings, else an empty one."""
    if open_work(folder, key):
        return AlignLog(folder, {})
    done: dict[int, list[Face]] = {}
    log = folder / _LOG
    whole = log.read_bytes().rpartition(b"\n")[0] if log.is_file() else b""
    # A line that was cut off by the end of its process is gone from the file too, so that the next one starts
    # on a new line.
    log.write_bytes(whole + b"\n" if whole else b"")
    for line in whole.splitlines():
        start, faces = json.loads(line)
        done[start] = [_from_plain(one) for one in faces]
    return AlignLog(folder, done)


def _to_plain(face: Face) -> list[Any]:
    landmarks = None if face.landmarks is None else np.asarray(face.landmarks, np.float64).tolist()
    measures = [face.score, face.size, face.sharpness, face.pose]
    return [face.photo, list(face.box), landmarks, [float(one) for one in measures], face.path, face.reason]


def _from_plain(plain: list[Any]) -> Face:
    photo, box, landmarks, (score, size, sharpness, pose), path, reason = plain
    points = None if landmarks is None else np.array(landmarks)
    return Face(photo, tuple(box), points, score, size, sharpness, pose, path, reason)

"""Resolutions at which a photo is searched: the whole photo, then windows for small faces.

A detector sees faces from about 20 pixels to a few hundred. A large photo reduced to the detector's input
loses its small faces, so it is searched again at a higher resolution: as a whole where the detector takes any
size, else in overlapping windows of its fixed size. Small photos are not enlarged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.faces.detector_outputs import Detections, share_of_smaller, suppress_overlaps
from cdp.types.arrays import BoolArray

SMALLEST = 20
"""Pixels of a face in the detector's input from which on it is found reliably."""

COARSE = 640
"""Pixels of the longer side in the first pass, which finds the large faces."""

_SHARE = 0.01
"""Faces smaller than this share of a photo's longer side are not looked for: whoever they show, it is not
what the photo is about."""

_OVERLAP = 0.25
_NEARLY = 1.2
_INSIDE = 0.7


@dataclass(frozen=True)
class Window:
    """A part of a photo, in its own pixels, and the factor by which it is reduced."""

    left: int
    top: int
    right: int
    bottom: int
    factor: float


def plan_windows(
    height: int, width: int, fixed: int | None, min_face: float, longest: int | None = None
) -> list[Window]:
    """List the windows in which a photo is searched, the whole photo first.

    Args:
        height, width: of the photo.
        fixed: side of the detector's square input; None = any size.
        min_face: smallest face to find, in pixels of the photo.
        longest: pixels of the longer side at the finest resolution; None = as `min_face` needs it.
    """
    side = max(height, width)
    coarse = min(1.0, (fixed or COARSE) / side)
    if longest is None:
        fine = min(1.0, SMALLEST / max(min_face, _SHARE * side, 1.0))
    else:
        fine = min(1.0, longest / side)
        coarse = min(coarse, fine)
    windows = [Window(0, 0, width, height, coarse)]
    if fine <= _NEARLY * coarse:
        return windows
    if fixed is None:
        return [*windows, Window(0, 0, width, height, fine)]
    step = fixed / fine
    return windows + [
        Window(left, top, min(width, round(left + step)), min(height, round(top + step)), fine)
        for top in _starts(height, step)
        for left in _starts(width, step)
    ]


def _starts(length: int, step: float) -> list[int]:
    """Return where windows begin so that they cover a length and overlap by a quarter at least."""
    if length <= step:
        return [0]
    n_windows = int(np.ceil((length - step) / (step * (1 - _OVERLAP)))) + 1
    return [int(start) for start in np.linspace(0, length - step, n_windows)]


def is_whole(faces: Detections, window: Window, height: int, width: int) -> BoolArray:
    """Return which faces lie whole in a window; those cut at an inner border are in another one."""
    margin = 2 / window.factor
    whole = np.ones(len(faces), np.bool_)
    for low, high, near, far, length in (
        (window.left, window.right, faces.boxes[:, 0], faces.boxes[:, 2], width),
        (window.top, window.bottom, faces.boxes[:, 1], faces.boxes[:, 3], height),
    ):
        if low > 0:
            whole &= near > low + margin
        if high < length:
            whole &= far < high - margin
    return whole


def merge_faces(found: list[Detections], overlap: float) -> Detections:
    """Join the faces of all windows, best first; of two that are one face the better is kept."""
    joined = Detections(
        np.concatenate([one.boxes for one in found]),
        np.concatenate([one.landmarks for one in found]),
        np.concatenate([one.scores for one in found]),
    )
    kept = suppress_overlaps(joined, overlap)
    if len(found) < 2:
        return kept
    # At another resolution a part of a face may pass for a face: a box inside a better one is no second face.
    rows: list[int] = []
    for row in range(len(kept)):
        if not rows or share_of_smaller(kept.boxes[row], kept.boxes[rows]).max() <= _INSIDE:
            rows.append(row)
    return kept.take(np.array(rows, np.int64))

"""One face of a photo, or why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cdp.types.arrays import AnyArray

NOTHING_FOUND = "no face was found"
NOT_READ = "cannot be read: "
"""Why a photo has no face at all; the second is followed by the reason."""


@dataclass(frozen=True, eq=False)
class Face:
    """One face of a photo; NaN and None where a photo is an aligned face already.

    Attributes:
        photo: row of the photo.
        box: left, top, right, bottom.
        landmarks: (5, 2) or None.
        score: of the detector.
        size: shorter side of the box.
        sharpness, pose: see `cdp.faces.quality`.
        path: of the crop, relative to the folder; empty if the face was dropped.
        reason: why it was dropped; empty if it was kept. A photo without a face or one that cannot be read
            has one too.
    """

    photo: int
    box: tuple[float, ...] = (math.nan,) * 4
    landmarks: AnyArray | None = None
    score: float = math.nan
    size: float = math.nan
    sharpness: float = math.nan
    pose: float = math.nan
    path: str = ""
    reason: str = ""

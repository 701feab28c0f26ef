"""Where eyes, nose and mouth are on drawn faces: the truth that detectors and alignment are tested against."""

import numpy as np

from cdp.types.arrays import AnyArray, FloatArray
from cdp_lab.drawn_faces.moments import make_moments
from cdp_lab.drawn_faces.people import make_people
from cdp_lab.drawn_faces.portrait import _UNITS_HIGH, _turn
from cdp_lab.drawn_faces.roster import check_rows, make_roster
from cdp_lab.face_settings import FaceSettings


def find_landmarks(settings: FaceSettings, rows: AnyArray | None = None) -> FloatArray:
    """The eyes, the tip of the nose and the corners of the mouth, float32 (n, 5, 2): x, y in pixels.

    Left is the left of the picture; the middle of the first pixel is 0. Of junk, which shows nobody, the numbers mean nothing.

    Args:
        rows: which pictures of the set; all of them unless given.
    """
    whole = make_roster(settings)
    roster = whole.take(check_rows(rows, len(whole)))
    people, row_of = np.unique(np.maximum(roster.shown, 0), return_inverse=True)
    traits = make_people(settings, people)[row_of]
    moments = make_moments(settings, roster.people, roster.shots, traits["skin"])
    found = np.empty((len(roster), 5, 2), np.float32)
    for row, (who, now) in enumerate(zip(traits, moments, strict=True)):
        middle, mouth_y, narrow = _turn(who, now, 0.0, who["mouth_y"], 0.06)
        half = who["mouth"] * narrow * (1 + 0.14 * now["smile"])
        points = [_turn(who, now, side * who["eye_x"], who["eye_y"], 0.0)[:2] for side in (-1.0, 1.0)]
        points.append(_turn(who, now, 0.0, who["eye_y"] + who["nose"], 0.20)[:2])
        points += [(middle + side * half, mouth_y) for side in (-1.0, 1.0)]
        # The lens of draw_portraits.
        scale = settings.size / _UNITS_HIGH * now["scale"]
        middle_of_head = np.array([0.5 + 0.36 * now["shift_x"], 0.53 + 0.36 * now["shift_y"]]) * settings.size
        cosine, sine = np.cos(now["roll"]), np.sin(now["roll"])
        turned = np.array(points) @ np.array([[cosine, sine], [-sine, cosine]])
        found[row] = turned * scale + middle_of_head - 0.5
    return found

"""Variation of one picture: pose, expression, light, blur, occlusion, noise, framing, background."""

from __future__ import annotations

import numpy as np

from cdp.types.arrays import AnyArray, DoubleArray, LongArray
from cdp_lab.drawn_faces.random_numbers import Columns, keys, uniforms
from cdp_lab.face_settings import FaceSettings

_MOMENTS, _JUNK, _GRAIN = 5, 6, 7
_N_COLUMNS = 96

_NUMBERS = (
    "yaw", "pitch", "roll", "scale", "shift_x", "shift_y",
    "smile", "open", "raised", "closed", "gaze_x", "gaze_y", "volume", "fall",
    "light_x", "light_y", "gain", "contrast", "blur", "noise", "quality",
    "ground_angle", "sunglasses", "mask", "hat", "bar", "bar_x", "bar_y", "bar_angle", "bar_width",
    "wears_glasses", "empty",
)  # fmt: skip
_COLORS = ("cast", "ground", "ground_far", "shirt", "mask_color", "hat_color", "bar_color")
N_BLOBS = 4
MOMENT = np.dtype(
    [(name, np.float64) for name in _NUMBERS]
    + [(name, np.float64, (3,)) for name in _COLORS]
    + [("blobs", np.float64, (N_BLOBS, 8)), ("grain", np.uint64)]
)
"""Angles in radians, lengths as in TRAITS; blur and noise for pictures of any size; a blob is x, y, two
radii,
angle and a color."""


def make_moments(settings: FaceSettings, people: LongArray, shots: LongArray, skin: DoubleArray) -> AnyArray:
    """Draw what happened in some pictures, MOMENT (n,), scaled by `difficulty`.

    A picture is the `shots`-th in the folder of one of `people`; `skin`, f8 (n, 3), colors a hand before the
    face.
    """
    draw = Columns(uniforms(keys(settings.seed, _MOMENTS, people, shots), _N_COLUMNS))
    hard = settings.difficulty
    full = min(1.0, hard)
    made = np.zeros(len(people), MOMENT)
    for name, middle, spread, least, most in (
        ("yaw", 0.0, 0.26, -0.75, 0.75), ("pitch", 0.0, 0.13, -0.4, 0.4), ("roll", 0.0, 0.11, -0.6, 0.6),
        ("scale", 1.0, 0.06, 0.7, 1.35), ("shift_x", 0.0, 0.07, -0.4, 0.4), ("shift_y", 0.0, 0.07, -0.4, 0.4),
        ("smile", 0.25, 0.38, -0.6, 1.1), ("raised", 0.0, 0.035, -0.08, 0.1),
        ("gaze_x", 0.0, 0.3, -0.8, 0.8), ("gaze_y", 0.0, 0.15, -0.5, 0.5),
        ("volume", 0.0, 0.025, -0.07, 0.09), ("fall", 0.0, 0.04, -0.12, 0.12),
        ("light_x", 0.0, 0.26, -0.65, 0.65), ("light_y", -0.05, 0.14, -0.5, 0.5),
        ("gain", 0.0, 0.17, -0.55, 0.45), ("contrast", 0.0, 0.15, -0.5, 0.4),
        ("bar_x", 0.0, 0.5, -1.0, 1.0), ("bar_y", 0.45, 0.35, -0.6, 1.0),
    ):  # fmt: skip
        made[name] = np.clip(draw.normal(middle, spread * hard), least, most)
    made["gain"] = np.exp(made["gain"])
    made["contrast"] = np.exp(made["contrast"])
    made["cast"] = 1.0
    warm, green = draw.normal(0, 0.085 * hard), draw.normal(0, 0.03 * hard)
    made["cast"] += np.clip(np.stack([warm, green, -warm], 1), -0.3, 0.3)
    made["open"] = np.where(draw.chance(0.3 * full), draw.uniform(0.2, 1.0), 0.0)
    made["closed"] = np.clip(draw.normal(0.08, 0.13 * hard), 0, 0.6)
    made["closed"] = np.where(draw.chance(0.04 * full), 1.0, made["closed"])
    # In heads rather than pixels, so that a larger picture of the same seed is the same picture.
    made["blur"] = (
        np.minimum(0.012 + 0.020 * hard * draw.uniform() ** 2 * np.where(draw.chance(0.15), 2.5, 1.0), 0.25)
        * full
    )
    made["noise"] = 0.035 * hard * draw.uniform() ** 2
    made["quality"] = np.clip(96 - hard * 40 * draw.uniform() ** 1.5, 10, 96)
    _add_background(made, draw, full)
    _add_occlusions(made, draw, hard, skin)
    made["grain"] = keys(settings.seed, _GRAIN, people, shots)
    return made


def _add_background(made: AnyArray, draw: Columns, full: float) -> None:
    """Two colors of ground, blobs on it, the shirt."""
    made["ground_angle"] = draw.uniform(-3.2, 3.2)
    for name in ("ground", "ground_far"):
        made[name] = 0.62 + full * (_any_color(draw, 0.15, 0.95) - 0.62)
    made["shirt"] = 0.45 + full * (_any_color(draw, 0.08, 0.92) - 0.45)
    blobs = made["blobs"]
    for blob in range(N_BLOBS):
        blobs[:, blob, 0], blobs[:, blob, 1] = draw.uniform(-1.6, 1.6), draw.uniform(-1.6, 1.6)
        size = draw.uniform(0.2, 0.9) * draw.chance(0.45 * full)
        blobs[:, blob, 2], blobs[:, blob, 3] = size, size * draw.uniform(0.3, 1.0)
        blobs[:, blob, 4] = draw.uniform(-1.5, 1.5)
        blobs[:, blob, 5:] = made["ground"] * (0.6 + 0.8 * draw.uniform()[:, None])


def _add_occlusions(made: AnyArray, draw: Columns, hard: float, skin: DoubleArray) -> None:
    """Choose what hides a part of the face, and whether glasses are worn."""
    made["sunglasses"] = draw.chance(min(1.0, 0.045 * hard))
    made["mask"] = draw.chance(min(1.0, 0.03 * hard))
    made["hat"] = draw.chance(min(1.0, 0.05 * hard))
    made["bar"] = draw.chance(min(1.0, 0.06 * hard))
    made["bar_angle"], made["bar_width"] = draw.uniform(-0.9, 0.9), draw.uniform(0.12, 0.26)
    hand = draw.chance(0.5)[:, None]
    color = _any_color(draw, 0.1, 0.9)
    made["bar_color"] = np.where(hand, skin * 0.95, color)
    made["hat_color"] = color
    made["mask_color"] = np.where(hand, np.array([0.62, 0.80, 0.88]), np.array([0.93, 0.93, 0.92]))
    made["wears_glasses"] = ~draw.chance(0.12 * min(1.0, hard))


def spoil(settings: FaceSettings, made: AnyArray, people: LongArray, shots: LongArray) -> AnyArray:
    """Turn moments into junk: an empty scene, noise, blur, or a face out of the frame."""
    draw = Columns(uniforms(keys(settings.seed, _JUNK, people, shots), 4))
    kind = (draw.uniform() * 4).astype(np.int64)
    side = np.where(draw.chance(0.5), 1.0, -1.0)
    spoiled = made.copy()
    spoiled["empty"] = kind <= 1
    spoiled["noise"] = np.where(kind == 1, 0.45, made["noise"])
    spoiled["blur"] = np.where(kind == 2, 0.45 + 0.2 * draw.uniform(), made["blur"])
    spoiled["shift_x"] = np.where(kind == 3, side * 1.5, made["shift_x"])
    spoiled["shift_y"] = np.where(kind == 3, 1.3, made["shift_y"])
    return spoiled


def _any_color(draw: Columns, low: float, high: float) -> DoubleArray:
    """Any lightness, seldom loud."""
    light = draw.uniform(low, high)[:, None]
    tint = np.stack([draw.normal(0, 0.11), draw.normal(0, 0.07), draw.normal(0, 0.11)], 1)
    return np.clip(light + tint, 0.03, 0.97)

"""What stays: the traits of a person, and of lookalikes, who are small variations of another one."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from cdp.types.arrays import AnyArray, DoubleArray, LongArray
from cdp_lab.drawn_faces.random_numbers import Columns, keys, uniforms
from cdp_lab.drawn_faces.roster import find_families
from cdp_lab.face_settings import FaceSettings

_PEOPLE, _STRANGERS = 3, 4
_N_COLUMNS = 96
_N_KINDS = 8
_N_INHERITED = 60
_LIKENESS = 0.88

_NUMBERS = (
    "width", "crown", "chin", "jaw", "taper", "cheek",
    "hairline", "peak", "slant", "drop", "top", "side", "back", "back_width", "curl", "curls", "bun", "hairy",
    "eye_x", "eye_y", "eye_width", "eye_height", "eye_tilt", "iris_size", "lashes",
    "brow_y", "brow_width", "brow_thick", "brow_arch", "brow_angle",
    "nose", "nose_width", "mouth_y", "mouth", "lips", "ear", "ear_y",
    "beard", "moustache", "freckles", "scar", "scar_x", "scar_y", "scar_angle",
    "glasses", "glasses_square",
)  # fmt: skip
_COLORS = ("skin", "hair", "brow", "iris", "lip", "frame")
TRAITS = np.dtype(
    [(name, np.float64) for name in _NUMBERS]
    + [(name, np.float64, (3,)) for name in _COLORS]
    + [("moles", np.float64, (3, 3))]
)
"""Lengths in units of half a head, x to the right and y down from the middle of the head; colors in 0..1."""

_SKIN = np.array(
    [(0.98, 0.87, 0.79), (0.95, 0.79, 0.67), (0.88, 0.69, 0.53), (0.75, 0.54, 0.38), (0.56, 0.37, 0.26),
     (0.38, 0.25, 0.19)]
)  # fmt: skip
_HAIR = np.array(
    [(0.10, 0.08, 0.08), (0.22, 0.14, 0.10), (0.36, 0.22, 0.13), (0.53, 0.33, 0.17), (0.80, 0.62, 0.34),
     (0.62, 0.26, 0.13), (0.66, 0.65, 0.64)]
)  # fmt: skip
_HAIR_SHARE = np.cumsum([0.27, 0.23, 0.18, 0.10, 0.11, 0.05, 0.06])
_IRIS = np.array(
    [(0.24, 0.14, 0.08), (0.38, 0.24, 0.12), (0.35, 0.45, 0.25), (0.28, 0.50, 0.68), (0.45, 0.52, 0.56)]
)
_IRIS_SHARE = np.cumsum([0.35, 0.25, 0.14, 0.16, 0.10])
_FRAME = np.array([(0.10, 0.10, 0.12), (0.42, 0.22, 0.12), (0.62, 0.16, 0.18), (0.20, 0.28, 0.48)])
# hairline, peak, slant, drop, top, side, back, back width, curl, bun: what a hairdresser would call a style.
_STYLES = np.array(
    [
        (-0.68, 0.00, 0.00, 0.50, 0.08, 0.05, 0.00, 0.00, 0.00, 0.0),  # crop
        (-0.60, 0.00, 0.26, 0.50, 0.17, 0.06, 0.00, 0.00, 0.00, 0.0),  # parting at the side
        (-0.36, 0.00, 0.03, 0.95, 0.14, 0.13, 0.80, 1.18, 0.00, 0.0),  # bob with a fringe
        (-0.72, -0.10, 0.00, 1.55, 0.10, 0.12, 1.45, 1.15, 0.00, 0.0),  # long, parted in the middle
        (-0.58, 0.00, 0.05, 0.55, 0.22, 0.16, 0.30, 1.18, 0.05, 0.0),  # curls
        (-0.90, 0.24, 0.00, 0.75, 0.05, 0.05, 0.00, 0.00, 0.00, 0.0),  # receding
        (-0.70, 0.00, 0.06, 0.62, 0.08, 0.05, 0.00, 0.00, 0.00, 0.3),  # bun
        (-0.60, 0.00, 0.00, 0.60, 0.38, 0.34, 0.55, 1.40, 0.03, 0.0),  # afro
        (-0.58, 0.00, 0.34, 1.25, 0.16, 0.14, 1.20, 1.22, 0.04, 0.0),  # long waves
        (-0.66, 0.00, 0.12, 0.42, 0.34, 0.03, 0.00, 0.00, 0.02, 0.0),  # quiff
        (-0.66, 0.16, 0.00, 0.60, 0.12, 0.08, 0.45, 1.05, 0.00, 0.0),  # down to the neck
        (-0.40, 0.00, 0.20, 0.60, 0.16, 0.08, 0.00, 0.00, 0.02, 0.0),  # short, combed forward
    ]
)
_STYLE_SPREAD = np.array([0.06, 0.04, 0.06, 0.12, 0.035, 0.025, 0.12, 0.06, 0.008, 0.04])


def make_people(settings: FaceSettings, people: LongArray) -> AnyArray:
    """Return the traits of some people, TRAITS (n,)."""
    parents, varied = find_families(settings, people)
    own = uniforms(keys(settings.seed, _PEOPLE, people), _N_COLUMNS)
    parent = uniforms(keys(settings.seed, _PEOPLE, parents), _N_COLUMNS)
    return traits_of(np.where(varied[:, None], _vary(parent, own), own))


def make_strangers(settings: FaceSettings, people: LongArray, shots: LongArray) -> AnyArray:
    """Traits of people who are not in the set, for junk."""
    return traits_of(uniforms(keys(settings.seed, _STRANGERS, people, shots), _N_COLUMNS))


def _vary(parent: DoubleArray, own: DoubleArray) -> DoubleArray:
    """Draw traits near the parent's: same hair and eyes, similar lengths, own marks."""
    mixed: DoubleArray = ndtr(_LIKENESS * ndtri(parent) + np.sqrt(1 - _LIKENESS**2) * ndtri(own))
    mixed[:, :_N_KINDS] = parent[:, :_N_KINDS]
    mixed[:, _N_INHERITED:] = own[:, _N_INHERITED:]
    return mixed


def traits_of(table: DoubleArray) -> AnyArray:
    """Traits from uniform numbers, one row per person."""
    made = np.zeros(len(table), TRAITS)
    kind = Columns(table[:, :_N_KINDS])
    draw = Columns(table[:, _N_KINDS:_N_INHERITED])
    for name, middle, spread in (
        ("width", 0.76, 0.055), ("crown", 1.0, 0.05), ("chin", 1.04, 0.07), ("jaw", 0.25, 0.24),
        ("taper", 0.16, 0.08), ("cheek", 0.02, 0.04),
        ("eye_x", 0.335, 0.035), ("eye_y", 0.0, 0.045), ("eye_width", 0.185, 0.022),
        ("eye_height", 0.105, 0.02), ("eye_tilt", 0.03, 0.09),
        ("iris_size", 0.098, 0.009), ("lashes", 0.035, 0.015),
        ("brow_y", -0.27, 0.035), ("brow_width", 0.23, 0.03), ("brow_thick", 0.048, 0.017),
        ("brow_arch", 0.055, 0.035), ("brow_angle", 0.04, 0.10),
        ("nose", 0.36, 0.055), ("nose_width", 0.14, 0.03), ("mouth_y", 0.60, 0.04), ("mouth", 0.27, 0.05),
        ("lips", 0.075, 0.022),
        ("ear", 0.19, 0.03), ("ear_y", 0.06, 0.05),
    ):  # fmt: skip
        made[name] = draw.normal(middle, spread)
    tone = draw.uniform(0, 4.99)
    made["skin"] = _along(_SKIN, tone) + draw.normal(0, 0.025)[:, None] * np.array([0.2, -0.3, -1.0])
    # Dark hair goes with every skin, fair hair less often with dark skin; the overlap stays large.
    color = np.searchsorted(
        _HAIR_SHARE, np.minimum(kind.uniform() * (1 - 0.1 * np.maximum(tone - 1.5, 0)), 0.999)
    )
    made["hair"] = np.clip(_HAIR[color] * np.exp(draw.normal(0, 0.16))[:, None], 0.04, 0.95)
    made["iris"] = _IRIS[np.searchsorted(_IRIS_SHARE, np.minimum(kind.uniform(), 0.999))]
    made["iris"] *= np.exp(draw.normal(0, 0.12))[:, None]
    made["lip"] = made["skin"] * np.array([0.86, 0.58, 0.58]) + draw.normal(0, 0.04)[:, None] * np.array(
        [1.0, -0.6, -0.4]
    )
    made["brow"] = np.clip(made["hair"] * 0.75 + 0.02 + draw.normal(0, 0.02)[:, None], 0.03, 0.8)
    bald = kind.chance(0.05)
    style = _STYLES[(kind.uniform() * len(_STYLES)).astype(np.int64)]
    flip = np.where(kind.chance(0.5), 1.0, -1.0)
    parts = ("hairline", "peak", "slant", "drop", "top", "side", "back", "back_width", "curl", "bun")
    for column, name in enumerate(parts):
        made[name] = style[:, column] + draw.normal(0, 1) * _STYLE_SPREAD[column]
        if name in ("back", "back_width", "curl", "bun"):
            made[name] *= style[:, column] != 0
    made["slant"] *= flip
    made["curls"] = np.rint(kind.uniform(9, 15))
    made["hairy"] = ~bald
    made["back"] *= ~bald
    made["bun"] *= ~bald
    _add_marks(made, Columns(table[:, _N_INHERITED:]))
    return made


def _add_marks(made: AnyArray, draw: Columns) -> None:
    """Choose what even lookalikes have of their own: beard, moles, freckles, a scar, glasses."""
    short = made["back"] < 0.6
    made["beard"] = np.where(draw.chance(0.28) & short, draw.uniform(0.25, 1.0), 0.0)
    made["moustache"] = np.where(draw.chance(0.2) & short, draw.uniform(0.5, 1.0), 0.0)
    made["freckles"] = np.where(draw.chance(0.14), draw.uniform(0.3, 0.8), 0.0)
    made["scar"] = draw.chance(0.08)
    made["scar_x"], made["scar_y"] = draw.uniform(-0.5, 0.5), draw.uniform(-0.5, 0.6)
    made["scar_angle"] = draw.uniform(-1.5, 1.5)
    for mole in range(3):
        made["moles"][:, mole, 0] = draw.uniform(-0.55, 0.55)
        made["moles"][:, mole, 1] = draw.uniform(-0.4, 0.75)
        made["moles"][:, mole, 2] = np.where(draw.chance((0.35, 0.15, 0.08)[mole]), 1.0, 0.0)
    made["glasses"] = draw.chance(0.18)
    made["glasses_square"] = draw.uniform(0.0, 1.1)
    made["frame"] = _FRAME[(draw.uniform() * len(_FRAME)).astype(np.int64)]


def _along(palette: DoubleArray, position: DoubleArray) -> DoubleArray:
    """Colors between the neighbors of a palette."""
    low = position.astype(np.int64)
    rest = (position - low)[:, None]
    blended: DoubleArray = palette[low] * (1 - rest) + palette[low + 1] * rest
    return blended

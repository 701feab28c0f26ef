"""Which faces of a photo are good enough; by itself, so that help needs no NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdp.settings import check_settings, setting


@dataclass(frozen=True)
class AlignSettings:
    """Which faces of a photo are taken; what is left out is listed with its reason."""

    min_score: float | None = setting(
        None,
        "Minimum detector score; auto = by the kind of detector.",
        meaning="a score",
        low=0,
        high=1,
        none="auto",
    )
    min_face: float = setting(
        24,
        "Fewest pixels of the shorter side of a face's box.",
        meaning="a number of pixels",
        low=0,
        high=10**5,
    )
    min_sharpness: float = setting(
        0.0,
        "Least variance of the Laplacian of the aligned gray face, which blur lowers; 0 = any.",
        meaning="a variance",
        low=0,
        high=10**6,
    )
    max_pose: float = setting(
        1.0,
        "Most that a head is turned: 0 = the nose is midway between the eyes, 1 = below one of them.",
        meaning="a pose",
        above=0,
        high=10**3,
    )
    overlap: float = setting(
        0.4,
        "Of two boxes that share more than this of their union, the better one is kept.",
        meaning="a share",
        low=0,
        high=1,
    )
    detector_size: int | None = setting(
        None,
        "Longer side of photos in the detector, in pixels; auto = so that faces of --min-face are found.",
        meaning="a number of pixels",
        low=32,
        high=10**5,
        none="auto",
    )
    ready: Literal["auto", "none", "all"] = setting(
        "auto",
        "Photos that are aligned faces already: those of 112 x 112 pixels (auto), none or all.",
    )

    def __post_init__(self) -> None:
        check_settings(self)

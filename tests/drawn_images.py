"""Small drawn faces and patterns for tests of networks and runs, as one folder per identity."""

import math
from pathlib import Path

import numpy as np
from PIL import Image

from cdp.types.manifest import Manifest
from cdp_lab.drawn_faces import FaceSettings, draw_faces
from cdp_lab.drawn_faces.roster import make_roster


def draw(folder: Path, n_identities: int = 6, n_images: int = 8, side: int = 16, first: int = 0) -> Manifest:
    """The manifest in the order of identities; everybody has exactly `n_images`, and they are easy to tell apart."""
    settings = FaceSettings(
        identities=first + n_identities,
        # Numbers vary down to two thirds of what is asked for.
        images=math.ceil(1.5 * n_images) + 1,
        size=side,
        junk=0,
        mislabeled=0,
        lookalikes=0,
        difficulty=0.1,
    )
    roster = make_roster(settings)
    rows = np.flatnonzero((roster.people >= first) & (roster.shots < n_images))
    faces = draw_faces(settings, rows)
    locations, identities = [], []
    for pixels, identity, shot in zip(faces.pixels, roster.people[rows], roster.shots[rows], strict=True):
        home = folder / f"person{identity:03d}"
        home.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(home / f"{shot}.png")
        locations.append(f"{home.name}/{shot}.png")
        identities.append(int(identity))
    names = tuple(f"person{identity:03d}" for identity in range(max(identities) + 1))
    return Manifest(tuple(locations), np.array(identities), names, str(folder))


def draw_patterns(
    folder: Path, n_identities: int = 6, n_images: int = 8, side: int = 16, first: int = 0
) -> Manifest:
    """The same with smooth patterns and shaken copies of them: a few epochs of a tiny network tell them apart."""
    locations, identities = [], []
    for identity in range(first, first + n_identities):
        generator = np.random.default_rng(identity)
        coarse = generator.uniform(0, 255, (4, 4, 3))
        pattern = np.kron(coarse, np.ones((side // 4, side // 4, 1)))
        home = folder / f"person{identity:03d}"
        home.mkdir(parents=True, exist_ok=True)
        for image in range(n_images):
            shaken = np.roll(pattern, generator.integers(-1, 2, 2), axis=(0, 1))
            noisy = np.clip(shaken + generator.normal(0, 12, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(home / f"{image}.png")
            locations.append(f"{home.name}/{image}.png")
            identities.append(identity)
    names = tuple(f"person{identity:03d}" for identity in range(max(identities) + 1))
    return Manifest(tuple(locations), np.array(identities), names, str(folder))

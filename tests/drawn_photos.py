"""Photos with several drawn people, a toy detector and two toy models: `python -m tests.drawn_photos try`.

What docs/photos-to-people.md is tried with. Every face has a mark at its corner that the toy detector looks for; the toy models
are random projections of the aligned face, and tell drawn people apart because these are easy.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from tests.drawn_landmarks import find_landmarks
from tests.onnx_builders import embedder, marker_detector

from cdp_lab.drawn_faces import FaceSettings, draw_faces
from cdp_lab.drawn_faces.roster import make_roster

SIDE, PHOTO = 96, 320
PLACES = ((16, 32), (200, 24), (112, 200))


def photograph(
    folder: Path, n_people: int = 12, n_photos: int = 60, seed: int = 0, difficulty: float = 0.15
) -> None:
    """Photos of one to three people each, on a background of their own, and one of a landscape."""
    settings = FaceSettings(
        identities=n_people,
        images=30,
        size=SIDE,
        junk=0,
        mislabeled=0,
        lookalikes=0,
        difficulty=difficulty,
        seed=seed,
    )
    roster = make_roster(settings)
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    shots = np.zeros(n_people, np.int64)
    for number in range(n_photos):
        people = generator.permutation(n_people)[: 1 + number % 3]
        rows = np.array([np.flatnonzero(roster.people == one)[shots[one] % 20] for one in people])
        shots[people] += 1
        photo = _background(generator)
        for face, (x, y) in zip(draw_faces(settings, rows).pixels, PLACES, strict=False):
            photo[y : y + SIDE, x : x + SIDE] = face
            photo[y : y + 8, x : x + 8] = (0, 255, SIDE)
        Image.fromarray(photo).save(folder / f"photo{number:03d}.png")
    Image.fromarray(_background(generator)).save(folder / "sea.png")


def _background(generator: np.random.Generator) -> np.ndarray:
    top, bottom = generator.integers(60, 180, (2, 3))
    shade = np.linspace(0, 1, PHOTO)[:, None, None]
    return np.broadcast_to(top * (1 - shade) + bottom * shade, (PHOTO, PHOTO, 3)).astype(np.uint8)


def build_models(folder: Path) -> None:
    """A detector that finds the marks, and two models that project pixels."""
    settings = FaceSettings(
        identities=4, images=4, size=SIDE, junk=0, mislabeled=0, lookalikes=0, difficulty=0
    )
    relative = find_landmarks(settings).mean(axis=0) / SIDE
    marker_detector(folder / "scrfd_toy.onnx", relative, size=PHOTO)
    for seed, name in enumerate(("arcface_toy", "sface_toy")):
        embedder(folder / f"{name}.onnx", size=112, dimensions=64, seed=seed, cells=14, contrast=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write photos/ and models/ to")
    home = parser.parse_args().out
    photograph(home / "photos")
    build_models(home / "models")
    print(f"Written to {home}: 61 photos and 3 models.")

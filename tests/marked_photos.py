"""Photos of drawn people, each with the mark that the toy detector of `onnx_builders` looks for."""

from pathlib import Path

import numpy as np
from PIL import Image

RELATIVE = np.array([[0.35, 0.45], [0.65, 0.45], [0.5, 0.6], [0.38, 0.75], [0.62, 0.75]])
SIDE, PLACES = 48, ((0, 0), (64, 64))


def photograph(file: Path, people, shot: int) -> None:
    """A photo of drawn people from left to right, each with the mark that the toy detector looks for."""
    noise = np.random.default_rng([shot, *people])
    photo = np.full((128, 128, 3), 60, np.uint8)
    for person, (x, y) in zip(people, PLACES, strict=False):
        pattern = np.random.default_rng(person).integers(0, 220, (4, 4, 3)).repeat(12, 0).repeat(12, 1)
        photo[y : y + SIDE, x : x + SIDE] = np.clip(pattern + noise.normal(0, 12, pattern.shape), 0, 220)
        photo[y : y + 8, x : x + 8] = (0, 255, SIDE)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(photo).save(file)

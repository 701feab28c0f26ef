"""A folder as people have them: a folder per identity, photos of many sizes, some tiny and some that cannot be read."""

from pathlib import Path

import numpy as np
from PIL import Image

from cdp_lab.drawn_faces import FaceSettings, draw_faces
from cdp_lab.drawn_faces.roster import make_roster

BROKEN = 3


def draw_photos(
    folder: Path, n_identities: int = 100, n_images: int = 4, largest: int = 300, difficulty: float = 0.6
) -> int:
    """Draw them, and return how many; `BROKEN` of them are empty, no image, and cut off."""
    settings = FaceSettings(
        identities=n_identities,
        images=n_images,
        size=48,
        junk=0,
        mislabeled=0,
        lookalikes=0,
        difficulty=difficulty,
    )
    roster = make_roster(settings)
    faces = draw_faces(settings, np.arange(len(roster.people)))
    generator = np.random.default_rng(0)
    files = []
    for pixels, identity, shot in zip(faces.pixels, roster.people, roster.shots, strict=True):
        home = folder / f"ape{identity:03d}"
        home.mkdir(parents=True, exist_ok=True)
        side = int(np.exp(generator.uniform(np.log(30), np.log(largest))))
        files.append(home / f"{shot}.png")
        Image.fromarray(pixels).resize((side, side + side // 4)).save(files[-1], compress_level=1)
    whole = files[-1].read_bytes()
    for file, content in zip(
        files[:: len(files) // BROKEN], (b"", b"no image", whole[: len(whole) // 2]), strict=False
    ):
        file.write_bytes(content)
    return len(files)

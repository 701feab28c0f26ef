"""Small drawn images for tests of networks: every identity is a smooth pattern, every image a shaken copy of it."""

from pathlib import Path

import numpy as np
from PIL import Image

from cdp.types.manifest import Manifest


def draw(folder: Path, n_identities: int = 6, n_images: int = 8, side: int = 16, first: int = 0) -> Manifest:
    """One folder per identity; the manifest in the order of identities."""
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

"""Where the benchmarks find real data (docs/data.md says where it is to be had), and made-up data of any size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

OMNIGLOT_EMBEDDINGS = Path("work/omniglot/unlabeled.npy")
"""Real embeddings of 70,080 drawings, written by `python -m benchmarks.omniglot embeddings`."""

_BLOCK_ROWS = 65_536
_LATENT = 64


def data_folder(name: str) -> Path | None:
    """The folder of a data set, or None: in $CDP_DATA, else in `data/` here, else in `../shared/data` beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    given = os.environ.get("CDP_DATA")
    folders = [Path(given).expanduser()] if given else [Path("data"), beside]
    return next((folder / name for folder in folders if (folder / name).is_dir()), None)


def write_made_up_views(
    folder: Path,
    n_images: int,
    *,
    n_models: int = 5,
    dimensions: int = 256,
    labeled: float = 0.1,
    seed: int = 1,
    structured: bool = False,
) -> None:
    """Views of made-up people in `labeled/` (a tenth of the people) and `unlabeled/`, with identities, block by block.

    People have 1 to 160 images, 16 in the median. Images differ in difficulty, with a heavy tail; most of the noise is a
    model's own, some is shared by all. There is no structure beyond identities: the hard case for approximate search.

    With `structured`, people and images spread over few dimensions, as in trained networks, with a little noise in all (benchmarks/search.py).
    """
    generator = np.random.default_rng(seed)
    sizes = np.clip(generator.lognormal(np.log(16), 0.65, n_images).astype(int), 1, 160)
    n_people = int(np.searchsorted(np.cumsum(sizes), n_images)) + 1
    identities = np.repeat(np.arange(n_people), sizes[:n_people])[:n_images]
    is_labeled = (generator.permutation(n_people) < labeled * n_people)[identities]
    centers = generator.standard_normal((n_people, _LATENT), np.float32)
    difficulty = generator.gamma(3, 1 / 3, n_images).astype(np.float32)
    # Half of the variance in three dimensions, or the same in all of them.
    spread = (
        np.exp(-np.arange(_LATENT) / 8).astype(np.float32) if structured else np.ones(_LATENT, np.float32)
    )
    centers *= spread
    of_noise, everywhere = (
        (np.float32(0.25), np.float32(0.04)) if structured else (np.float32(1), np.float32(0))
    )
    parts = {"labeled": is_labeled, "unlabeled": ~is_labeled}
    for part, rows in parts.items():
        (folder / part / "committee").mkdir(parents=True, exist_ok=True)
        np.save(folder / part / "identities.npy", identities[rows])
    for model in range(n_models):
        mixing = np.random.default_rng((seed, model)).standard_normal((_LATENT, dimensions), np.float32)
        if structured:
            mixing = np.linalg.qr(mixing.T)[0].T.astype(np.float32)
        name = "base.npy" if model == 0 else f"committee/m{model}.npy"
        files = {
            part: np.lib.format.open_memmap(
                folder / part / name, "w+", np.float32, (int(rows.sum()), dimensions)
            )
            for part, rows in parts.items()
        }
        filled = dict.fromkeys(parts, 0)
        for start in range(0, n_images, _BLOCK_ROWS):
            block = slice(start, min(start + _BLOCK_ROWS, n_images))
            shape = (block.stop - start, _LATENT)
            shared = np.random.default_rng((seed, n_models, start)).standard_normal(shape, np.float32)
            of_model = np.random.default_rng((seed, model, start))
            own = of_model.standard_normal(shape, np.float32)
            noise = difficulty[block, None] * (np.float32(0.75) * shared + np.float32(0.9) * own)
            vectors = (centers[identities[block]] + of_noise * spread * noise) @ mixing
            if everywhere:
                vectors += everywhere * of_model.standard_normal(vectors.shape, np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            for part, rows in parts.items():
                some = vectors[rows[block]]
                files[part][filled[part] : filled[part] + len(some)] = some
                filled[part] += len(some)
        for file in files.values():
            file.flush()

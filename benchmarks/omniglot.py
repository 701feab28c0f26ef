"""Stage 1 and its bounds on Omniglot: rank-1 of a small network that never saw the evaluation characters.

    python -m benchmarks.omniglot labeled --threads 2      # one of eleven parts: 5 minutes, rank-1 0.526
    python -m benchmarks.omniglot all --threads 2          # all parts, six epochs, true labels: 0.694
    python -m benchmarks.omniglot embeddings               # by the first network, of the other ten parts; for `benchmarks peers`

A character plays the part of an identity, its four rotations that of four. Probes are the first 330 characters of
the evaluation set, distractors the other 329. Every ordered pair of drawings of one probe character counts: a hit
if the second is closer to the first than every distractor. The images are looked for as docs/data.md says.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.data import OMNIGLOT_EMBEDDINGS, data_folder
from cdp.data.manifests import merge_manifests, read_manifest
from cdp.data.split import Split, rotated, split_by_identity
from cdp.nets.extract import extract_views
from cdp.nets.recipe import Recipe
from cdp.nets.supervised import train_supervised
from cdp.types import Manifest
from cdp.types.arrays import FloatArray, LongArray

N_PROBES = 330
COMMON = Recipe(rate=0.1, size=32, color=False, rotate=15, zoom=0.2, shift=0.1, seed=0)
RECIPES = {
    "labeled": replace(COMMON, epochs=16, batch=64, weight_decay=2e-3),
    "all": replace(COMMON, epochs=6, batch=128, weight_decay=1e-3),
}


def omniglot(part: str) -> Manifest:
    """The images of the background or the evaluation set."""
    folder = data_folder("omniglot")
    if folder is None:
        raise SystemExit("data/omniglot is not there; docs/data.md says where to get it.")
    return read_manifest(str(folder / f"images_{part}.zip"))


def rank_1(vectors: FloatArray, identities: LongArray, n_probes: int = N_PROBES) -> float:
    """Share of ordered pairs of one probe character closer than every distractor."""
    probes, distractors = identities < n_probes, identities >= n_probes
    similarity = vectors[probes] @ vectors[probes].T
    bar = (vectors[probes] @ vectors[distractors].T).max(axis=1)
    own = identities[probes]
    pairs = own[:, None] == own[None, :]
    np.fill_diagonal(pairs, False)
    return float((similarity > bar[:, None])[pairs].mean())


def measure_rank_1(networks: Path, name: str, work: Path) -> float:
    evaluation = omniglot("evaluation")
    views = extract_views(networks, evaluation, work / "evaluation", base=name, members=[], force=True)
    assert views.identities is not None
    return rank_1(views.base.vectors, np.unique(views.identities, return_inverse=True)[1])


def embed_unlabeled(networks: Path, name: str, manifest: Manifest) -> None:
    """Write the embeddings of drawings that the network never saw."""
    views = extract_views(
        networks, manifest, OMNIGLOT_EMBEDDINGS.with_suffix(""), base=name, members=[], force=True
    )
    np.save(OMNIGLOT_EMBEDDINGS, views.base.vectors.astype(np.float32))
    print(f"{OMNIGLOT_EMBEDDINGS}: {views.n_images:,} x {views.base.dimensions}")


def train(options: argparse.Namespace, split: Split) -> None:
    """Train a network and print its rank-1."""
    manifest = split.labeled
    if options.what == "all":
        manifest = merge_manifests([split.labeled, *split.unlabeled])
    start = time.perf_counter()
    networks = options.out / options.what
    train_supervised(manifest, [options.network], networks, recipe=RECIPES[options.what])
    seconds = time.perf_counter() - start
    found = measure_rank_1(networks, options.network, options.out)
    print(
        json.dumps(
            {
                "network": options.network,
                "trained on": options.what,
                "images": len(manifest),
                "identities": manifest.n_identities,
                "seconds": round(seconds, 1),
                "rank-1": round(found, 4),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=[*sorted(RECIPES), "embeddings"])
    parser.add_argument("--network", default="small_resnet")
    parser.add_argument("--out", type=Path, default=Path("work/omniglot"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("error")
    split = split_by_identity(rotated(omniglot("background")), labeled=1 / 11, seed=0)
    if options.what == "embeddings":
        embed_unlabeled(options.out / "labeled", options.network, merge_manifests([*split.unlabeled]))
    else:
        train(options, split)


if __name__ == "__main__":
    main()

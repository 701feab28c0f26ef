"""Some people known: BCubed F of the other images, next to nobody known; known people should not lower it.

    python -m benchmarks known_people --out docs/results/known_people.json

Albums of 3,000 LFW images, half of them of strangers. Known are all images of some people with three or more, or,
as in a gallery, half of their images. *Others* is BCubed F over the images that are not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import data_folder
from benchmarks.unlabeled_albums import score
from benchmarks.unlabeled_data import draw
from cdp import CDP

MODELS = ("sface", "mobilefacenet")
KNOWN = ((1, 1.0), (3, 1.0), (10, 1.0), (20, 1.0), (50, 1.0), (100, 1.0), (10, 0.5), (40, 0.5), (100, 0.5))


def measure(quick: bool = False) -> dict[str, Any]:
    """Measure the other images' BCubed F by model and number of known people."""
    folder = data_folder("lfw")
    if folder is None:
        print("skipped: LFW is not there")
        return {}
    truth = np.load(folder / "identities.npy")
    figures: dict[str, Any] = {}
    for name in MODELS[:1] if quick else MODELS:
        rows = draw(truth, 800 if quick else 3000, 0.5, 20, 0)
        vectors, people = np.load(folder / f"{name}.npy")[rows].astype(np.float32), truth[rows]
        nobody = CDP(threads=1).fit_predict(vectors)
        figures[name] = []
        for n_people, share in KNOWN:
            known = _known(people, n_people, share)
            others = known < 0
            model = CDP(threads=1).fit(vectors, known)
            figures[name].append(
                {
                    "people": n_people,
                    "share of their images": share,
                    "known images": int((~others).sum()),
                    "nobody known": score(nobody[others], people[others])["bcubed_f"],
                    "others": score(model.labels_[others], people[others])["bcubed_f"],
                    "scorer": model.labeling_.settings.mediator,
                    "found to overlap": not model.labeling_.settings.is_disjoint,
                }
            )
            print(name, figures[name][-1], flush=True)
    return figures


def _known(people: np.ndarray, n_people: int, share: float) -> np.ndarray:
    """Identities of the images that are known, -1 for the others."""
    generator = np.random.default_rng(0)
    numbers, counts = np.unique(people, return_counts=True)
    known = np.full(len(people), -1)
    for person in generator.permutation(numbers[counts >= 3])[:n_people]:
        own = generator.permutation(np.flatnonzero(people == person))
        known[own[: max(1, round(share * len(own)))]] = person
    return known

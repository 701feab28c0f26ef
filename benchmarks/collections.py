"""Collections: images fed in ten batches, a simulated reviewer, false names, and how fast a large collection opens.

`python -m benchmarks collections --out docs/results/collections.json`; finished parts are kept (benchmarks/parts.py).
`python -m benchmarks.collections PART …` measures only the parts whose names begin so. docs/collections.md has the tables.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.collection_data import find_data_sets, read_data, some_identities
from benchmarks.collection_scale import measure_names, measure_opening
from benchmarks.parts import Part, run_parts
from benchmarks.simulated_reviewer import ORDERS as REVIEWS
from benchmarks.simulated_reviewer import review
from cdp import Labels, Views, measure_labels
from cdp.collection.collection import Collection
from cdp.collection.creation import create_collection
from cdp.collection.extension import extend
from cdp.scoring.settings import ConsensusSettings

N_BATCHES = 10
ORDERS = ("random", "by person", "rare first")
MOST_QUESTIONS = 3000
MOST_REVIEWED = 1500


def measure(*, quick: bool, only: list[str] | None = None) -> dict[str, Any]:
    return run_parts("collections-quick" if quick else "collections", dict(_parts(quick)), only)


def _parts(quick: bool) -> list[tuple[str, Part]]:
    parts: list[tuple[str, Part]] = []
    data_sets = find_data_sets()
    for name, folder in data_sets.items():
        orders = ORDERS[:1] if quick else ORDERS
        parts += [(f"batches, {name}, {order}", partial(_batches, folder, order, quick)) for order in orders]
    most = 100 if quick else MOST_QUESTIONS
    for name, folder in data_sets.items():
        parts += [
            (f"review, {name}, {order}", partial(_review, folder, order, most, quick)) for order in REVIEWS
        ]
    if "lfw" in data_sets:
        parts.append(("names, lfw", partial(measure_names, 1 if quick else 5)))
    parts.append(("opening", partial(measure_opening, 10_000 if quick else 1_000_000)))
    return parts


def _batches(folder: Path | None, order: str, quick: bool) -> dict[str, Any]:
    labeled, unlabeled = read_data(folder, quick=quick)
    views = unlabeled.take(order_of(unlabeled, order))
    assert views.identities is not None
    with tempfile.TemporaryDirectory() as place:
        found = feed(Views(views.base, views.committee), views.identities, labeled, Path(place))
    print({name: value for name, value in found.items() if name != "steps"}, flush=True)
    return {"images": views.n_images, "identities": len(np.unique(views.identities)), **found}


def _review(folder: Path | None, order: str, most: int, quick: bool) -> dict[str, Any]:
    labeled, unlabeled = read_data(folder, quick=quick, shown=True)
    reviewed = unlabeled if folder is None else some_identities(unlabeled, MOST_REVIEWED)
    found = review(labeled, reviewed, order, most)
    print(found, flush=True)
    return found


def order_of(views: Views, order: str, seed: int = 0) -> np.ndarray:
    """Rows of the images in the order in which they arrive.

    `random`; `by person`: a person's images come together, persons at random; `rare first`: people with few images first, which is
    another random order where all have as many.
    """
    assert views.identities is not None
    shuffled = np.random.default_rng(seed + ORDERS.index(order)).permutation(views.n_images)
    people, counts = np.unique(views.identities, return_counts=True)
    person = np.searchsorted(people, views.identities[shuffled])
    if order == "by person":
        return shuffled[
            np.argsort(np.random.default_rng(seed).permutation(len(people))[person], kind="stable")
        ]
    return shuffled[np.argsort(counts[person], kind="stable")] if order == "rare first" else shuffled


def figures_of(collection: Collection, truth: np.ndarray) -> dict[str, float]:
    """Pairwise figures, images without an identity as groups of one."""
    pairwise = measure_labels(Labels.from_array(collection.identity), truth).discards_kept.pairwise
    return {name: round(float(getattr(pairwise, name) or 0), 4) for name in ("f", "precision", "recall")}


def clocked(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the processor seconds it took."""
    start = time.process_time()
    result = work()
    return result, round(time.process_time() - start, 2)


def feed(views: Views, truth: np.ndarray, labeled: Views, folder: Path) -> dict[str, Any]:
    settings = ConsensusSettings.of()
    edges = np.linspace(0, views.n_images, N_BATCHES + 1).astype(int)
    parts = [views.take(slice(*span)) for span in pairwise(edges)]
    collection, first = clocked(
        lambda: create_collection(folder / "grown", parts[0], labeled=[labeled], settings=settings)
    )
    steps = [{"images": parts[0].n_images, "seconds": first, **figures_of(collection, truth[: edges[1]])}]
    for number, part in enumerate(parts[1:], 2):
        (collection, changes), seconds = clocked(partial(extend, collection, part))
        kinds = [event.kind for event in changes.events]
        steps.append(
            {
                "images": int(edges[number]),
                "seconds": seconds,
                "kept_numbers": round(changes.kept, 4),
                **{kind: kinds.count(kind) for kind in ("merged", "split", "moved", "dissolved")},
                **figures_of(collection, truth[: edges[number]]),
            }
        )
        print(steps[-1], flush=True)
    whole, seconds = clocked(
        lambda: create_collection(folder / "whole", views, labeled=[labeled], settings=settings)
    )
    at_once = figures_of(whole, truth)
    return {
        "in_batches": figures_of(collection, truth),
        "at_once": at_once,
        "seconds_at_once": seconds,
        "least_kept_numbers": min(step["kept_numbers"] for step in steps[1:]),
        "mean_kept_numbers": round(float(np.mean([step["kept_numbers"] for step in steps[1:]])), 4),
        "steps": steps,
    }


if __name__ == "__main__":
    measure(quick=False, only=sys.argv[1:])

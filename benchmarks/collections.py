"""Collections: LFW fed in ten batches, and a simulated reviewer who answers from the truth.

`python -m benchmarks collections --out docs/results/collections.json`; docs/collections.md has the tables.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import data_folder
from benchmarks.lfw import split_faces
from cdp import Labels, Views, measure_labels
from cdp.collection.collection import Collection
from cdp.collection.creation import create_collection
from cdp.collection.extension import extend
from cdp.collection.questions import rank_questions
from cdp.consensus.constraints import Constraints
from cdp.consensus.grouping import group
from cdp.consensus.settings import ConsensusSettings
from cdp.labeling.pipeline import label
from cdp.types import ConsensusGraph

N_BATCHES = 10
ORDERS = ("random", "by person", "rare first")


def measure(*, quick: bool) -> dict[str, Any]:
    if data_folder("lfw") is None:
        print("skipped: data/lfw is not there; docs/data.md says how to make it")
        return {"skipped": True}
    labeled, unlabeled = split_faces()
    if quick:
        unlabeled = unlabeled.take(slice(0, 2000))
    figures: dict[str, Any] = {
        "batches": feed_in_batches(labeled, unlabeled, ORDERS[:1] if quick else ORDERS)
    }
    weak = [Views(part.committee["openface"], {}, part.identities) for part in (labeled, unlabeled)]
    figures["review, one weak model"] = review(*weak)
    return figures


def order_of(views: Views, order: str, seed: int = 0) -> np.ndarray:
    """Rows of the images in the order in which they arrive.

    `random`; `by person`: a person's images come together, persons at random; `rare first`: people with few images first.
    """
    assert views.identities is not None
    shuffled = np.random.default_rng(seed).permutation(views.n_images)
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


def feed_in_batches(labeled: Views, unlabeled: Views, orders: tuple[str, ...]) -> dict[str, Any]:
    """Figures after ten batches beside those of labeling all at once, numbers that lasted, and processor seconds."""
    results: dict[str, Any] = {}
    for order in orders:
        rows = order_of(unlabeled, order)
        views = unlabeled.take(rows)
        truth = views.identities
        assert truth is not None
        bare = Views(views.base, views.committee)
        with tempfile.TemporaryDirectory() as folder:
            results[order] = feed(bare, truth, labeled, Path(folder))
            print(f"{order}: {results[order]}", flush=True)
    return results


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
        "steps": steps,
    }


ROUND = 25
MOST_QUESTIONS = 2000


def review(labeled: Views, unlabeled: Views) -> dict[str, Any]:
    """Questions that a reviewer who answers from the truth needs, in three orders; groups are made anew after every 25."""
    truth = unlabeled.identities
    assert truth is not None
    settings = ConsensusSettings.of()
    labeling = label(Views(unlabeled.base, unlabeled.committee), settings, labeled=[labeled])
    results: dict[str, Any] = {}
    for order in ("most valuable first", "least confident first", "random"):
        results[order] = _ask(labeling.scored, labeling.settings, truth, order)
        print(order, results[order], flush=True)
    return results


def _ask(
    scored: ConsensusGraph, settings: ConsensusSettings, truth: np.ndarray, order: str
) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    answers: dict[bool, list[list[int]]] = {True: [], False: []}
    reached: dict[str, Any] = {"precision 0.99": None, "f 0.99": None}
    asked = 0
    curve = []
    while asked <= MOST_QUESTIONS:
        constraints = Constraints(
            scored.n_images, np.array(answers[True]).reshape(-1, 2), np.array(answers[False]).reshape(-1, 2)
        )
        labels = group(scored, settings, constraints)
        figures = measure_labels(labels, truth).discards_kept.pairwise
        curve.append(
            (asked, round(figures.precision or 0, 4), round(figures.recall or 0, 4), round(figures.f or 0, 4))
        )
        for name, value in (("precision 0.99", figures.precision), ("f 0.99", figures.f)):
            if reached[name] is None and (value or 0) >= 0.99:
                reached[name] = asked
        questions = rank_questions(scored, labels.labels, labels.confidence, settings, constraints)
        if None not in reached.values() or not len(questions):
            break
        rows = np.arange(len(questions))
        if order == "random":
            rows = generator.permutation(rows)
        elif order == "least confident first":
            rows = np.argsort(labels.confidence[questions.images].min(axis=1), kind="stable")
        for one, other in questions.images[rows[:ROUND]].tolist():
            answers[bool(truth[one] == truth[other])].append([one, other])
        asked += ROUND
    return {**reached, "asked": asked, "curve": curve[:: max(1, len(curve) // 12)]}

"""A simulated reviewer who answers questions about a collection from the truth: how many until its groups are right."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cdp import Labels, Views, measure_labels
from cdp.collection.collection import Collection
from cdp.collection.corrections import append_corrections, different, same
from cdp.collection.creation import create_collection
from cdp.collection.questions import Questions, open_questions
from cdp.collection.regrouping import regroup
from cdp.collection.retraining import retrain
from cdp.scoring.settings import ConsensusSettings

ROUND = 50
RETRAIN_EVERY = 250
ORDERS = ("most valuable first", "most valuable first, learning", "least confident first", "random")


def review(labeled: Views, unlabeled: Views, order: str, most_questions: int) -> dict[str, Any]:
    """Questions until precision and F are 0.99, and both along the way; groups are made anew after every round.

    An answer says of two images whether they are one identity. `learning`: trees are also trained anew after every 250 answers.
    """
    truth = unlabeled.identities
    assert truth is not None
    settings = ConsensusSettings.of()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "faces"
        bare = Views(unlabeled.base, unlabeled.committee)
        collection = create_collection(place, bare, labeled=[labeled], settings=settings)
        return _ask(collection, truth, order, most_questions)


def _ask(collection: Collection, truth: np.ndarray, order: str, most_questions: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    reached: dict[str, Any] = {"precision 0.99": None, "f 0.99": None}
    curve, asked, learned = [], 0, 0
    while True:
        pairwise = measure_labels(Labels.from_array(collection.identity), truth).discards_kept.pairwise
        now = {"precision 0.99": pairwise.precision or 0.0, "f 0.99": pairwise.f or 0.0}
        curve.append([asked, *(round(value, 4) for value in now.values())])
        for name, value in now.items():
            if reached[name] is None and value >= 0.99:
                reached[name] = asked
        if asked >= most_questions or None not in reached.values():
            break
        questions = open_questions(collection)
        images = _choose(questions, collection, order, generator, max(ROUND, asked // 10))
        if not len(images):
            break
        said = [same(*pair) if truth[pair[0]] == truth[pair[1]] else different(*pair) for pair in images]
        append_corrections(collection.folder, said, source="simulation")
        asked += len(images)
        if "learning" in order and asked - learned >= RETRAIN_EVERY:
            collection, _ = retrain(collection)
            learned = asked
        else:
            collection, _ = regroup(collection)
    at = np.unique(np.linspace(0, len(curve) - 1, 9).astype(int))
    return {
        **reached,
        "asked": asked,
        "precision": curve[-1][1],
        "f": curve[-1][2],
        "curve": [curve[one] for one in at],
    }


def _choose(
    questions: Questions, collection: Collection, order: str, generator: np.random.Generator, most: int
) -> list[list[int]]:
    """Pairs of images, in the order in which they are asked about; an image is asked about once in a round."""
    rows = np.arange(len(questions))
    if order == "random":
        rows = generator.permutation(rows)
    elif order == "least confident first":
        rows = np.argsort(collection.confidence[questions.images].min(axis=1), kind="stable")
    chosen: list[list[int]] = []
    seen: set[int] = set()
    for one, other in questions.images[rows].tolist():
        if len(chosen) == most:
            break
        if one not in seen and other not in seen:
            chosen.append([one, other])
            seen |= {one, other}
    return chosen

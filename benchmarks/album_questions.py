"""Questions about albums where nobody is known: how many pairs the first answers put right, and how many are announced.

    python -m benchmarks album_questions --out docs/results/album_questions.json

Albums of `benchmarks.unlabeled_data`, drawn from LFW. Twenty questions are answered by the truth, the most valuable one
first; groups are made again after every five. *Wrong pairs* are pairs of images of different people in one group, and of one
person in two.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.unlabeled_data import Source, albums, sources
from cdp import Labels, Views, measure_labels
from cdp.collection.collection import Collection
from cdp.collection.corrections import append_corrections, different, same
from cdp.collection.creation import create_collection
from cdp.collection.questions import open_questions
from cdp.collection.regrouping import regroup
from cdp.scoring.settings import ConsensusSettings
from cdp.types.arrays import AnyArray, LongArray

MODELS = ("sface", "mobilefacenet", "lfw committee")
SIZES = (200, 1000, 5000)
N_QUESTIONS, ROUND = 20, 5


def measure(*, quick: bool) -> dict[str, Any]:
    """Ask about every album of the models."""
    figures: dict[str, Any] = {}
    for source in sources(quick=quick):
        if source.name not in MODELS:
            continue
        rows = []
        for album in albums(source.truth, SIZES[:1] if quick else SIZES):
            if album.size is None or album.singletons == 1 or album.most == 20:
                continue
            rows.append({"album": album.title, **ask(source, album.rows)})
            print(source.name, rows[-1], flush=True)
        figures[source.name] = {"summary": summarize(rows), "albums": rows}
        print(source.name, figures[source.name]["summary"], flush=True)
    return figures


def ask(source: Source, images: LongArray) -> dict[str, Any]:
    """Answer the first questions about one album."""
    truth = source.truth[images]
    (_, base), *others = ((name, vectors[images]) for name, vectors in source.models.items())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "faces"
        settings = ConsensusSettings.of(mediator="similarity")
        collection = create_collection(place, Views(base, dict(others)), settings=settings)
        at_first = open_questions(collection)
        before, precision = count_wrong_pairs(collection.identity, truth), _precision(collection, truth)
        asked = useful = 0
        while asked < N_QUESTIONS:
            images_asked = open_questions(collection).images[:ROUND]
            if not len(images_asked):
                break
            is_same = truth[images_asked[:, 0]] == truth[images_asked[:, 1]]
            together = collection.identity[images_asked[:, 0]] == collection.identity[images_asked[:, 1]]
            together &= collection.identity[images_asked[:, 0]] >= 0
            said = [
                same(*pair) if yes else different(*pair)
                for pair, yes in zip(images_asked.tolist(), is_same.tolist(), strict=True)
            ]
            append_corrections(collection.folder, said, source="benchmark")
            collection, _ = regroup(collection)
            asked += len(said)
            useful += int((is_same != together).sum())
        after = count_wrong_pairs(collection.identity, truth)
    return {
        "precision": precision,
        "wrong pairs": before,
        "announced": at_first.n_worth_asking,
        "asked": asked,
        "answers that change groups": useful,
        "pairs put right": before - after,
    }


def _precision(collection: Collection, truth: LongArray) -> float:
    figures = measure_labels(Labels.from_array(collection.identity), truth).discards_kept
    return round(figures.pairwise.precision or 1.0, 4)


def count_wrong_pairs(groups: AnyArray, truth: LongArray) -> int:
    """Count pairs of different people in one group, and of one person in two groups."""
    alone = np.flatnonzero(groups < 0)
    own = np.array(groups, np.int64)
    own[alone] = own.max(initial=0) + 1 + np.arange(len(alone))
    _, both = np.unique(np.stack([own, truth], axis=1), axis=0, return_counts=True)
    sizes = [np.unique(numbers, return_counts=True)[1] for numbers in (own, truth)]
    found, there, right = (int((count * (count - 1) // 2).sum()) for count in (*sizes, both))
    return found + there - 2 * right


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum over the albums."""
    totals = {name: sum(row[name] for row in rows) for name in ("wrong pairs", "announced", "asked")}
    put_right = sum(row["pairs put right"] for row in rows)
    sure = [row["announced"] for row in rows if row["precision"] >= 0.995]
    return {
        **totals,
        "pairs put right": put_right,
        "pairs put right per answer": round(put_right / max(totals["asked"], 1), 2),
        "announced where precision is 0.995 or more, mean": round(float(np.mean(sure)), 1) if sure else None,
    }

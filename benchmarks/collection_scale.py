"""How many names are false where people are not known, on LFW; and how fast a collection of a million images opens, and its review."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.request import urlopen

import numpy as np

from benchmarks.data import data_folder
from cdp import Views
from cdp.collection.collection import open_collection
from cdp.collection.collection_folder import State, numbered, write_batch
from cdp.collection.creation import create_collection
from cdp.collection.regrouping import write_groups
from cdp.collection.scored_files import Measured, write_scored
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import plain
from cdp.types import ConsensusGraph, KnnGraph
from cdp.types.run_record import LabelFigures, Results
from cdp.web.review.server import serve


def measure_names(n_splits: int) -> dict[str, Any]:
    """LFW, where half of the people with four images or more are known by half of their images; everybody else is not known.

    False: a group most of whose images show somebody who is not known, or another person than the one it is called.
    """
    rows = [_names(seed) for seed in range(n_splits)]
    total = {key: sum(row[key] for row in rows) for key in rows[0]}
    return {
        "splits": rows,
        "false_name_rate": total["false, of nobody known"] / max(1, total["groups of nobody known"]),
        "wrong_person_rate": total["false, of somebody known"] / max(1, total["groups of known people"]),
        "found_rate": total["right"] / max(1, total["groups of known people"]),
    }


def _names(seed: int) -> dict[str, int]:
    folder = data_folder("lfw")
    assert folder is not None
    truth = np.load(folder / "identities.npy")
    models = {name: np.load(folder / f"{name}.npy") for name in ("mobilefacenet", "sface", "openface")}
    views = Views(models.pop("mobilefacenet"), models, truth)
    generator = np.random.default_rng(seed)
    people, counts = np.unique(truth, return_counts=True)
    several = generator.permutation(people[counts >= 4])
    known_people = several[: len(several) // 2]
    rank = np.empty(len(truth), np.int64)
    order = generator.permutation(len(truth))
    order = order[np.argsort(truth[order], kind="stable")]
    starts = np.concatenate([[True], np.diff(truth[order]) > 0])
    rank[order] = np.arange(len(order)) - np.flatnonzero(starts)[np.cumsum(starts) - 1]
    known = np.isin(truth, known_people) & (rank % 2 == 0)
    with tempfile.TemporaryDirectory() as place:
        found = create_collection(
            Path(place) / "faces",
            Views(views.take(~known).base, views.take(~known).committee),
            labeled=[views.take(known)],
            settings=ConsensusSettings.of(disjoint=False),
        )
        named, identity = dict(found.names), np.array(found.identity)
    counts_of = dict.fromkeys(
        (
            "groups of known people",
            "groups of nobody known",
            "right",
            "false, of somebody known",
            "false, of nobody known",
        ),
        0,
    )
    for group in np.unique(identity[identity >= 0]):
        values, images = np.unique(truth[~known][identity == group], return_counts=True)
        person = int(values[images.argmax()])
        is_known = person in known_people
        counts_of["groups of known people" if is_known else "groups of nobody known"] += 1
        if group in named:
            if int(named[group]) == person and is_known:
                counts_of["right"] += 1
            else:
                counts_of["false, of somebody known" if is_known else "false, of nobody known"] += 1
    print(counts_of, flush=True)
    return counts_of


def measure_opening(n_images: int) -> dict[str, Any]:
    """Seconds to open a made-up collection of so many images in groups of ten, and to read one path and one name."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "faces"
        place.mkdir()
        ids = np.arange(n_images, dtype=np.int32)
        neighbors = (ids[:, None] // 10 * 10 + (ids[:, None] + np.arange(1, 5)) % 10).astype(np.int32)
        graph = KnnGraph(neighbors, np.full(neighbors.shape, 0.9, np.float32))
        pairs = np.stack([np.repeat(ids, 4), neighbors.ravel()], axis=1)
        scored = ConsensusGraph(
            pairs[pairs[:, 0] < pairs[:, 1]],
            np.full(int((pairs[:, 0] < pairs[:, 1]).sum()), 0.1, np.float32),
            n_images,
        )
        views = Views(
            np.ones((n_images, 2), np.float32), paths=[f"photos/{row:07d}.jpg" for row in range(n_images)]
        )
        write_batch(place, 1, views, None)
        labels = LabelFigures(coverage=1.0, identities_found=n_images // 10)
        write_scored(
            numbered(place, "scored", 1),
            ScoredPairs(scored, {"base": graph}, graph, 4, np.full(n_images, -1)),
            None,
            Measured(results=Results(labels=labels)),
        )
        settings = ConsensusSettings.of(mediator="similarity", k=4)
        state = State(
            batches=(1,),
            labeled=(),
            scored=1,
            groups=0,
            next_identity=0,
            consensus=plain(settings),
            threshold=3.0,
            seed=0,
            n_trained=n_images,
        )
        start = time.process_time()
        write_groups(place, state, np.full(n_images, -1, np.int32), {}, "created")
        grouped = time.process_time() - start
        times = []
        for _ in range(5):
            start = time.perf_counter()
            opened = open_collection(place)
            assert opened.paths is not None
            opened.describe(n_images - 1), opened.names, int(opened.identity[-1])
            times.append(time.perf_counter() - start)
        pages = measure_pages(place)
    figures = {
        "images": n_images,
        "seconds_to_open": round(min(times), 4),
        "first_time": round(times[0], 4),
        "seconds_to_group": round(grouped, 1),
        "seconds_of_pages": pages,
    }
    print(figures, flush=True)
    return figures


def measure_pages(collection: Path) -> dict[str, list[float]]:
    """Seconds that pages of the review take, the first time and the second."""
    address: Queue[str] = Queue()
    Thread(target=partial(serve, collection, started=address.put), daemon=True).start()
    start = address.get(timeout=60)
    pages = {}
    for page in ("", "groups", "groups?page=1000", "history"):
        times = []
        for _ in range(2):
            began = time.perf_counter()
            with urlopen(start + page) as answer:
                answer.read()
            times.append(round(time.perf_counter() - began, 3))
        pages[page or "question"] = times
    return pages

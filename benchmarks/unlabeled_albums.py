"""Albums of LFW where nobody is known: BCubed F next to the best threshold by the truth, DBSCAN and average linkage at fixed thresholds.

    python -m benchmarks unlabeled_albums --out docs/results/unlabeled_albums.json

Albums of 20 to 5,000 images: shares of strangers (people with one image), at most so many images per person. *Best* is average linkage on the
same cosines with the best of 45 thresholds by the truth. Albums are drawn by seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import DBSCAN

from benchmarks.data import data_folder
from cdp import CDP, Labels, measure_labels

MODELS = ("sface", "mobilefacenet", "openface")
SIZES = (20, 50, 200, 1000, 3000)
STRANGERS = (0.0, 0.5, 0.9, 1.0)
MOST = (5, 20, None)


def measure(quick: bool = False) -> dict[str, Any]:
    """Loss of BCubed F against the best threshold, by model: mean, greatest, and shares of albums within 0.01 and 0.03."""
    folder = data_folder("lfw")
    if folder is None:
        print("skipped: LFW is not there")
        return {}
    truth = np.load(folder / "identities.npy")
    figures: dict[str, Any] = {}
    for name in MODELS[:1] if quick else MODELS:
        vectors = np.load(folder / f"{name}.npy").astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = [
            _album(vectors[some], truth[some], title)
            for title, some in albums(truth, (50, 200) if quick else SIZES)
        ]
        loss = np.array([row["best"] - row["cdp"] for row in rows])
        figures[name] = {
            "albums": len(rows),
            "mean_loss": round(float(loss.mean()), 4),
            "greatest_loss": round(float(loss.max()), 4),
            "within_0.01": round(float((loss <= 0.01).mean()), 3),
            "within_0.03": round(float((loss <= 0.03).mean()), 3),
            "behind_dbscan_by_more_than_0.005": sum(row["dbscan"] - row["cdp"] > 0.005 for row in rows),
            "rows": rows,
        }
        print(name, {key: value for key, value in figures[name].items() if key != "rows"}, flush=True)
        figures[name]["all_of_lfw"] = {} if quick else _whole(vectors, truth)
    return figures


def albums(truth: np.ndarray, sizes: tuple[int, ...], seed: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """Titles and rows of albums."""
    for size in sizes:
        for share in STRANGERS:
            for most in MOST if share < 1 else (None,):
                yield (
                    f"{size} images, {share:.0%} strangers, at most {most or 'any'}",
                    draw(truth, size, share, most, seed),
                )


def draw(truth: np.ndarray, size: int, share: float, most: int | None, seed: int) -> np.ndarray:
    """Rows of people with two images or more, at most `most` each, and of strangers."""
    generator = np.random.default_rng([size, int(100 * share), most or 0, seed])
    people, counts = np.unique(truth, return_counts=True)
    often, once = generator.permutation(people[counts > 1]), generator.permutation(people[counts == 1])
    wanted, rows = round(size * (1 - share)), list[int]()
    for person in often:
        if len(rows) >= wanted:
            break
        own = generator.permutation(np.flatnonzero(truth == person))[:most]
        rows += own[: max(2, wanted - len(rows))].tolist()
    rows += [int(np.flatnonzero(truth == person)[0]) for person in once[: size - wanted]]
    return np.sort(np.array(rows))


def _album(vectors: np.ndarray, truth: np.ndarray, title: str) -> dict[str, Any]:
    distance = np.maximum(1 - vectors @ vectors.T, 0).astype(np.float64)
    tree = linkage(squareform(distance, checks=False), "average")
    scores = {
        round(float(t), 2): bcubed(fcluster(tree, t, "distance"), truth) for t in np.arange(0.1, 1.0, 0.02)
    }
    model = CDP(threads=1).fit(vectors)
    estimate = model.labeling_.estimate
    return {
        "album": title,
        "images": len(truth),
        "cdp": round(bcubed(model.labels_, truth), 4),
        "best": round(max(scores.values()), 4),
        "average_linkage_at_cosine_0.4": round(scores[0.6], 4),
        "dbscan": round(
            bcubed(DBSCAN(eps=0.5, min_samples=2, metric="precomputed").fit_predict(distance), truth), 4
        ),
        "threshold": estimate.chosen,
        "expected_precision": estimate.precision,
        "precision": measure_labels(Labels.from_array(model.labels_), truth).discards_kept.pairwise.precision,
    }


def _whole(vectors: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    model = CDP(threads=1).fit(vectors)
    scores = measure_labels(Labels.from_array(model.labels_), truth).discards_kept
    found = {
        "pairwise_f": round(scores.pairwise.f or 0.0, 4),
        "bcubed_f": round(bcubed(model.labels_, truth), 4),
    }
    print("  all of LFW:", found, flush=True)
    return found


def bcubed(labels: np.ndarray, truth: np.ndarray) -> float:
    """BCubed F, where an image in no group is a group of its own."""
    alone = np.asarray(labels) < 0
    single = np.asarray(labels).max() + 1 + np.arange(len(labels))
    return (
        measure_labels(Labels.from_array(np.where(alone, single, labels)), truth).discards_kept.bcubed.f
        or 0.0
    )

"""Albums where nobody is known: `CDP()` next to the best threshold by the truth and DBSCAN, and its expectations next to the truth.

    python -m benchmarks unlabeled_albums --out docs/results/unlabeled_albums.json

Albums of 50 images to all that a source has, with shares of singletons (people with one image) and a limit to the images per person, drawn by
seed (`benchmarks.unlabeled_data`). *Best* is average linkage on the same cosines, averaged over the models, with the threshold that has the
highest BCubed F. Albums that are in the file given by `--out` are not measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import DBSCAN

from benchmarks.unlabeled_data import BLOB_DIMENSIONS, SEED, SIZES, Source, albums, blobs, sources
from cdp import CDP, Embeddings, Labels, Runtime, knn_graph, measure_labels
from cdp.runtime.settings import RuntimeSettings
from cdp.types.arrays import AnyArray, DoubleArray, FloatArray, LongArray
from cdp_lab.baselines import scikit_learn
from cdp_lab.baselines.hierarchical import Hierarchical

Figures = dict[str, Any]

DENSE = 5500
"""Most images whose pairs are all held at once; beyond it baselines see the k-NN graph."""

_CUTS = 80
_STEPS = tuple(round(0.01 * step, 2) for step in range(100))
_EPS = 0.5
_CLOSE = (0.01, 0.03, 0.05)
_BEHIND = 0.005
_NEAR = 0.03


def measure(*, quick: bool, kept: Figures, keep: Callable[[Figures], None]) -> Figures:
    """Measure every album that is not in `kept`, and summarize them by model."""
    cells: dict[str, dict[str, Figures]] = kept.get("cells", {}) if kept.get("seed") == SEED else {}
    members: dict[str, tuple[str, ...]] = {}
    for name, title, views, truth, own in _cells(quick):
        members[name] = own
        done = cells.setdefault(name, {})
        if title not in done:
            done[title] = measure_album(views, truth)
            keep({"seed": SEED, "cells": cells})
            print(f"{name:24s} {title:44s} {_line(done[title])}", flush=True)
    summaries = {
        name: summarize(done, [cells[one] for one in members.get(name, ())]) for name, done in cells.items()
    }
    for name, summary in summaries.items():
        print(name, summary, flush=True)
    return {"seed": SEED, "summaries": summaries, "cells": cells}


def _cells(
    quick: bool,
) -> Iterator[tuple[str, str, Mapping[str, FloatArray], LongArray, tuple[str, ...]]]:
    sizes = SIZES[:2] if quick else SIZES
    for source in sources(quick=quick):
        for album in albums(source.truth, sizes):
            if quick and album.size is None:
                continue
            yield source.name, album.title, *_part(source, album.rows), source.members
    for size in sizes:
        for n_centers in sorted({10, size // 10}):
            for dimensions in BLOB_DIMENSIONS:
                vectors, truth = blobs(size, dimensions, n_centers)
                title = f"{size} images, {n_centers} blobs, {dimensions} dimensions"
                yield "blobs", title, {"blobs": vectors}, truth, ()


def _part(source: Source, rows: LongArray) -> tuple[dict[str, FloatArray], LongArray]:
    return {name: vectors[rows] for name, vectors in source.models.items()}, source.truth[rows]


def measure_album(models: Mapping[str, FloatArray], truth: LongArray) -> Figures:
    """Measure one album."""
    started = time.perf_counter()
    model = CDP(threads=1).fit(dict(models) if len(models) > 1 else next(iter(models.values())))
    seconds = time.perf_counter() - started
    # The dot product of these is the mean cosine over the models.
    vectors = np.concatenate(list(models.values()), axis=1) / np.float32(np.sqrt(len(models)))
    best, dbscan = _baselines(vectors, truth)
    estimate = model.labeling_.estimate
    found = model.labels_ >= 0
    alone = np.bincount(truth)[truth] == 1
    return {
        "images": len(truth),
        "people": len(np.unique(truth)),
        "cdp": score(model.labels_, truth),
        "best": best,
        "dbscan": dbscan,
        "threshold": model.labeling_.threshold,
        "expected_precision": None if estimate is None else _rounded(estimate.precision),
        "confidence": _rounded(model.probabilities_[found].mean()) if found.any() else None,
        "true_share": _rounded(_same_share(model.labels_[found], truth[found])) if found.any() else None,
        "singletons_in_groups": _rounded(found[alone].mean()) if alone.any() else None,
        "seconds": round(seconds, 2),
    }


def _baselines(vectors: FloatArray, truth: LongArray) -> tuple[Figures, Figures]:
    """Scores of average linkage with its best threshold, and of DBSCAN at a cosine distance of 0.5."""
    if len(vectors) > DENSE:
        embeddings = Embeddings(vectors)
        graph = knn_graph(embeddings, 20, runtime=Runtime(RuntimeSettings(threads=1)))
        groups = Hierarchical().label_each(embeddings, graph, [{"similarity": step} for step in _STEPS])
        found = [(step, score(one.labels, truth)) for step, one in zip(_STEPS, groups, strict=True)]
        dbscan = scikit_learn.DBSCAN(similarity=1 - _EPS, min_samples=2).label(embeddings, graph).labels
    else:
        distance = np.clip(1 - vectors @ vectors.T, 0, 2)
        np.fill_diagonal(distance, 0)
        dbscan = DBSCAN(eps=_EPS, min_samples=2, metric="precomputed").fit_predict(distance)
        tree = linkage(squareform(distance, checks=False), "average")
        found = _cuts(tree, truth)
    threshold, best = max(found, key=lambda one: one[1]["bcubed_f"])
    return {**best, "cosine": round(float(threshold), 3)}, score(dbscan, truth)


def _cuts(tree: DoubleArray, truth: LongArray) -> list[tuple[float, Figures]]:
    """Scores of cuts of a tree: some of all heights, then some of those next to the best one."""
    heights = np.concatenate([[0], tree[:, 2]])
    low, high, found = 0, len(heights) - 1, dict[int, Figures]()
    for _ in range(2):
        tried = np.unique(np.linspace(low, high, min(_CUTS, high - low + 1)).astype(int)).tolist()
        for at in tried:
            found[at] = score(fcluster(tree, heights[at], "distance"), truth)
        best = max(range(len(tried)), key=lambda place: found[tried[place]]["bcubed_f"])
        low, high = tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)]
    return [(1 - float(heights[at]), one) for at, one in found.items()]


def score(labels: AnyArray, truth: LongArray) -> Figures:
    """Pairwise and BCubed F and pairwise precision, where an image in no group is a group of its own."""
    figures = measure_labels(Labels.from_array(np.asarray(labels)), truth).discards_kept
    return {
        "bcubed_f": _rounded(figures.bcubed.f),
        "pairwise_f": _rounded(figures.pairwise.f),
        "precision": _rounded(figures.pairwise.precision),
    }


def _same_share(labels: LongArray, truth: LongArray) -> float:
    """The mean share of the other images of an image's group that show the same identity."""
    _, both, counts = np.unique(labels * (truth.max() + 1) + truth, return_inverse=True, return_counts=True)
    others = np.bincount(labels)[labels] - 1
    return float(((counts[both] - 1)[others > 0] / others[others > 0]).mean())


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)


def _loss(cell: Figures) -> float:
    return float(cell["best"]["bcubed_f"] - cell["cdp"]["bcubed_f"])


def summarize(cells: Mapping[str, Figures], members: list[dict[str, Figures]]) -> Figures:
    """Summarize the albums of one model.

    Args:
        cells: by title.
        members: the same albums as single models see them, for a committee.
    """
    loss = np.array([_loss(cell) for cell in cells.values()])
    expected = [
        abs(cell["expected_precision"] - cell["cdp"]["precision"])
        for cell in cells.values()
        if cell["expected_precision"] is not None and cell["cdp"]["precision"] is not None
    ]
    confident = [
        cell["confidence"] - cell["true_share"] for cell in cells.values() if cell["confidence"] is not None
    ]
    alone = [cell["singletons_in_groups"] for cell in cells.values() if cell["people"] == cell["images"]]
    behind = [
        max(one[title]["cdp"]["bcubed_f"] for one in members) - cell["cdp"]["bcubed_f"]
        for title, cell in cells.items()
        if members
    ]
    return {
        "albums": len(cells),
        **{f"within_{close:g}": _share(loss <= close + 1e-9) for close in _CLOSE},
        "mean_loss": _rounded(loss.mean()),
        "greatest_loss": _rounded(loss.max()),
        "behind_dbscan": sum(
            cell["dbscan"]["bcubed_f"] - cell["cdp"]["bcubed_f"] > _BEHIND for cell in cells.values()
        ),
        "expected_precision_known": len(expected),
        "expected_precision_within_0.03": _share(np.array(expected) <= _NEAR + 1e-9),
        "confidence_off_mean": _rounded(np.mean(np.abs(confident))) if confident else None,
        "confidence_within_0.05": _share(np.abs(confident) <= 0.05),
        "only_singletons_in_groups": max(alone, default=None),
        "behind_best_member": sum(one > _BEHIND for one in behind) if members else None,
        "behind_best_member_mean": _rounded(np.mean(behind)) if members else None,
        "behind_best_member_most": _rounded(max(behind)) if members else None,
    }


def _share(is_true: AnyArray) -> float | None:
    return _rounded(np.mean(is_true)) if len(is_true) else None


def _line(cell: Figures) -> str:
    return (
        f"cdp {cell['cdp']['bcubed_f']:.3f}, best {cell['best']['bcubed_f']:.3f}, dbscan {cell['dbscan']['bcubed_f']:.3f}, "
        f"precision {cell['cdp']['precision']} expected {cell['expected_precision']}, {cell['seconds']} s"
    )

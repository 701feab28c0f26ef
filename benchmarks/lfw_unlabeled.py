"""All 13,233 images of LFW, nobody known: `CDP()` next to other methods with the best of their settings by the truth.

    python -m benchmarks lfw_unlabeled --out docs/results/lfw_unlabeled.json && python docs/make_unlabeled_tables.py

`CDP()` has no setting; every other method is run with each value of its grid (`cdp-lab baselines`),
and pairwise and BCubed F are each its best over the grid. Infomap and FC-ES are left out if the extra `infomap` is not installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.data import data_folder
from benchmarks.unlabeled_albums import score
from cdp import CDP, Embeddings, Runtime, knn_graph
from cdp.runtime.settings import RuntimeSettings
from cdp.types.arrays import LongArray
from cdp_lab.baselines.methods import BASELINES, grid_points

Figures = dict[str, Any]

MODELS = ("sface", "mobilefacenet")
METHODS = ("hierarchical_average", "dbscan", "hdbscan", "infomap", "fc_es")

_MEMORY = {"hierarchical_average": "4GB", "hdbscan": "4GB"}
_QUICK_IMAGES = 1000


def measure(*, quick: bool, kept: Figures, keep: Callable[[Figures], None]) -> Figures:
    """Measure every method that is not in `kept`."""
    folder = data_folder("lfw")
    if folder is None:
        print("skipped: LFW is not there")
        return {}
    n_images = _QUICK_IMAGES if quick else None
    truth = np.unique(np.load(folder / "identities.npy")[:n_images], return_inverse=True)[1].astype(np.int64)
    figures: Figures = kept
    for name in MODELS:
        embeddings = Embeddings(np.load(folder / f"{name}.npy")[:n_images].astype(np.float32))
        done = figures.setdefault(name, {})
        for method, found in _methods(embeddings, truth, done):
            done[method] = found
            keep(figures)
            print(f"{name:16s} {method:24s} {found}", flush=True)
    return figures


def _methods(embeddings: Embeddings, truth: LongArray, done: Figures) -> Iterator[tuple[str, Figures]]:
    if "cdp" not in done:
        model = CDP(threads=1).fit(embeddings.vectors)
        yield "cdp", {**score(model.labels_, truth), "threshold": model.labeling_.threshold}
    graph = knn_graph(embeddings, 20, runtime=Runtime(RuntimeSettings(threads=1)))
    for method in METHODS:
        extra = BASELINES[method].extra
        if method in done or (extra and importlib.util.find_spec(extra) is None):
            continue
        memory = {"memory_budget": _MEMORY[method]} if method in _MEMORY else {}
        tried = grid_points(BASELINES[method].grid)
        baseline = BASELINES[method].make(**memory)
        scores = [score(one.labels, truth) for one in baseline.label_each(embeddings, graph, tried)]
        figures: Figures = {"settings_tried": len(tried)}
        for column in ("pairwise_f", "bcubed_f"):
            at = max(range(len(tried)), key=lambda place, column=column: scores[place][column] or 0)
            figures[column] = scores[at][column]
            figures[f"{column}_setting"] = tried[at]
        yield method, figures

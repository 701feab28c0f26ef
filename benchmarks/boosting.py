"""Trees grown by scikit-learn, as `cdp.scoring.boosting` does, and by LightGBM: quality of the labels, CPU seconds, size, import time.

    pip install lightgbm && python -m benchmarks.boosting [--quick]

The same numbers of trees, leaves and bins, the same rate and regularization, one thread. `best` labels five splits of LFW, five
made-up crowds and, where `python -m benchmarks.omniglot embeddings` wrote them, five samples of Omniglot drawings.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import fmean, median, stdev
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.data import OMNIGLOT_EMBEDDINGS, data_folder
from benchmarks.lfw import split_faces
from benchmarks.presets import made_up_crowd
from cdp import Views, measure_labels
from cdp.data.views import read_views
from cdp.labeling.pipeline import label
from cdp.runtime.runtime import Runtime
from cdp.scoring import trees
from cdp.scoring.boosting import N_BINS, N_LEAVES, N_TREES, RATE, BoostedTrees, grow_trees
from cdp.scoring.settings import ConsensusSettings
from cdp.types.arrays import BoolArray, FloatArray

PAIRS, COLUMNS = 30_000, 40
FIGURES = ("pairwise F", "BCubed F", "CPU s")


def grow_with_lightgbm(
    matrix: FloatArray, same: BoolArray, seed: int, weight: FloatArray | None = None
) -> BoostedTrees:
    """Grow trees as `grow_trees` does, with LightGBM and its public interface alone."""
    import lightgbm

    if same.all() or not same.any():
        return grow_trees(matrix, same, seed, weight)
    parameters = {
        "objective": "binary",
        "learning_rate": RATE,
        "num_leaves": N_LEAVES,
        "max_bin": N_BINS,
        "lambda_l2": 1.0,
        "min_data_in_leaf": 20,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(matrix, same.astype(np.float32), weight=weight, params=parameters)
    found = lightgbm.train(parameters, data, num_boost_round=N_TREES).dump_model()
    nodes: list[list[float]] = []
    roots = [_add_node(tree["tree_structure"], nodes) for tree in found["tree_info"]]
    column, value, left, right = np.array(nodes).T
    to_int = [part.astype(np.int32) for part in (column, left, right)]
    # The prior is in the leaves of the first tree.
    return BoostedTrees(to_int[0], value.copy(), to_int[1], to_int[2], np.array(roots, np.int32), prior=0.0)


def _add_node(node: dict[str, Any], nodes: list[list[float]]) -> int:
    """Append a node and all below it, parents first; return its number."""
    number = len(nodes)
    if "leaf_value" in node:
        nodes.append([-1, node["leaf_value"], 0, 0])
        return number
    assert node["decision_type"] == "<="
    nodes.append([node["split_feature"], node["threshold"], 0, 0])
    nodes[number][2] = _add_node(node["left_child"], nodes)
    nodes[number][3] = _add_node(node["right_child"], nodes)
    return number


GROWERS: dict[str, Callable[..., BoostedTrees]] = {"scikit-learn": grow_trees, "lightgbm": grow_with_lightgbm}


def measure(*, quick: bool) -> dict[str, Any]:
    if importlib.util.find_spec("lightgbm") is None:
        print("skipped: lightgbm is not installed: pip install lightgbm")
        return {"skipped": True}
    figures: dict[str, Any] = {"installed": measure_install(), "growing": measure_growing(3 if quick else 7)}
    n_seeds = 2 if quick else 5
    for name, parts in data_sets(n_seeds, quick):
        figures[name] = found = {way: [] for way in GROWERS}
        for labeled, unlabeled in parts:
            # In turns, so that other work on the machine meets both.
            for way, grower in GROWERS.items():
                found[way].append(label_with(grower, labeled, unlabeled))
        for way, rows in found.items():
            shown = [f"{what} {_spread([row[at] for row in rows])}" for at, what in enumerate(FIGURES)]
            print(f"{name:10s} {way:14s} {', '.join(shown)}", flush=True)
        gains = np.array(found["lightgbm"]) - np.array(found["scikit-learn"])
        shown = [f"{what} {_spread(gains[:, at].tolist())}" for at, what in enumerate(FIGURES)]
        print(f"{name:10s} {'difference':14s} {', '.join(shown)}", flush=True)
    return figures


def _spread(values: list[float]) -> str:
    return f"{fmean(values):.4f} ± {stdev(values):.4f}"


def data_sets(n_seeds: int, quick: bool) -> Iterator[tuple[str, Iterator[tuple[Views, Views]]]]:
    """Labeled and unlabeled parts, by several seeds."""
    if data_folder("lfw") is not None:
        yield "lfw", (split_faces(seed) for seed in range(n_seeds))
    yield "crowd", (made_up_crowd(150 if quick else 400, seed) for seed in range(1, n_seeds + 1))
    folder = OMNIGLOT_EMBEDDINGS.with_suffix("")
    if folder.is_dir():
        yield "omniglot", (split_drawings(read_views(folder), seed) for seed in range(n_seeds))


def split_drawings(views: Views, seed: int) -> tuple[Views, Views]:
    """800 characters, 30 % of them labeled."""
    assert views.identities is not None
    drawn = np.random.default_rng(seed).permutation(np.unique(views.identities))[:800]
    return views.take(np.isin(views.identities, drawn[:240])), views.take(
        np.isin(views.identities, drawn[240:])
    )


def label_with(grower: Callable[..., BoostedTrees], labeled: Views, unlabeled: Views) -> list[float]:
    """Pairwise F, BCubed F and CPU seconds of `best`."""
    assert unlabeled.identities is not None
    settings, runtime = ConsensusSettings.of(method="exact"), Runtime.of(threads=1)
    with patch.object(trees, "grow_trees", grower):
        started = time.process_time()
        found = label(unlabeled, settings, labeled=[labeled], runtime=runtime)
        seconds = time.process_time() - started
    kept = measure_labels(found.labels, unlabeled.identities).discards_kept
    return [kept.pairwise.f or 0.0, kept.bcubed.f or 0.0, seconds]


def measure_growing(repeats: int) -> dict[str, float]:
    """CPU seconds of growing trees alone, in turns; the median."""
    generator = np.random.default_rng(0)
    matrix = generator.standard_normal((PAIRS, COLUMNS), np.float32)
    # Ranks and counts have few values.
    matrix[:, ::4] = np.round(matrix[:, ::4] * 8)
    same = matrix[:, 1] + matrix[:, 2] ** 2 + 0.1 * matrix[:, 4] + generator.standard_normal(PAIRS) > 1.5
    seconds: dict[str, list[float]] = {way: [] for way in GROWERS}
    for _ in range(repeats + 1):
        for way, grower in GROWERS.items():
            started = time.process_time()
            grower(matrix, same, 0)
            seconds[way].append(time.process_time() - started)
    found = {way: median(values[1:]) for way, values in seconds.items()}
    print(
        f"growing, {PAIRS:,} x {COLUMNS}: "
        + ", ".join(f"{way} {one:.3f} CPU s" for way, one in found.items())
    )
    return found


def measure_install() -> dict[str, dict[str, float]]:
    """Megabytes on disk, and CPU seconds of the import in a process that has NumPy and SciPy."""
    found = {}
    for package, module in (("lightgbm", "lightgbm"), ("scikit-learn", "sklearn.ensemble")):
        files = importlib.metadata.files(package) or []
        size = sum(file.locate().stat().st_size for file in files if file.locate().is_file())
        code = (
            "import time, numpy, scipy.sparse; start = time.process_time(); "
            f"import {module}; print(time.process_time() - start)"
        )
        run = [sys.executable, "-c", code]
        times = [float(subprocess.run(run, check=True, capture_output=True).stdout) for _ in range(3)]
        found[package] = {"mb": round(size / 1e6, 1), "import_cpu_seconds": round(min(times), 2)}
        print(f"{package}: {found[package]}")
    return found


if __name__ == "__main__":
    measure(quick="--quick" in sys.argv)

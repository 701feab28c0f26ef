"""`python -m benchmarks.search constants`: the measured constants of cdp/knn, as they are on this machine.

Costs are fitted to the CPU time of searches with given parameters, in units of one multiply-add.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

from benchmarks.search import K, make_structured, make_structureless
from cdp import Embeddings
from cdp.knn import autotune, pca
from cdp.knn.autotune import OperatingPoint, choose_operating_point
from cdp.knn.exact import exact_graph
from cdp.knn.ivf_search import _IvfSearch
from cdp.knn.kmeans import refine_centroids, train_centroids
from cdp.knn.pca import ReducedVectors, reduce_dimensions
from cdp.knn.recall import GroundTruth, find_ground_truth
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import FloatArray

_ONE_THREAD = Runtime.of(threads=1, device="cpu", memory_budget="8GB")


def measure_constants(*, quick: bool = False) -> dict[str, Any]:
    """Print every measured constant of the search, with the value in use."""
    figures = {
        **measure_costs(20_000 if quick else 60_000),
        **measure_pca_loss(20_000 if quick else 200_000),
        **measure_refinement(20_000 if quick else 100_000),
    }
    print(f"{'constant':40}{'in use':>12}{'measured':>12}")
    for name, (used, measured) in figures.items():
        print(f"{name:40}{used:12.4g}{measured:12.4g}")
    return figures


def measure_costs(n_images: int) -> dict[str, tuple[float, float]]:
    """Fit the cost model of autotune.py and pca.py to searches of random vectors, by least squares.

    Seconds = fixed + nprobe · (probe + cell size · (entry + components · multiply-add))
    + list length · (candidate + dimensions · re-ranking).
    """
    rows, seconds = [], []
    grid = itertools.product((32, 64, 128), (50, 100, 200), (16, 48), (20, 60), (128, 512))
    for components, size, nprobe, length, dimensions in grid:
        seconds.append(_time_search(n_images, components, size, nprobe, length, dimensions) / n_images)
        compared = nprobe * size
        rows.append([1, nprobe, compared, compared * components, length, length * dimensions])
    weights = 1 / np.array(seconds)  # relative errors count
    fitted = np.linalg.lstsq(np.array(rows) * weights[:, None], np.ones(len(rows)), rcond=None)[0]
    error = np.abs(np.array(rows) @ fitted * weights - 1).mean()
    fixed, probe, entry, multiply_add, candidate, rerank = fitted
    print(f"one multiply-add: {1e9 * multiply_add:.4f} ns; mean error of the fit {error:.0%}")
    return {
        "autotune._FIXED_COST": (autotune._FIXED_COST, (fixed + _fixed_cost(n_images)) / multiply_add),
        "autotune._PROBE_COST": (autotune._PROBE_COST, probe / multiply_add),
        "autotune._ENTRY_COST": (autotune._ENTRY_COST, entry / multiply_add),
        "autotune._EXACT_COST": (autotune._EXACT_COST, _exact_cost(n_images) / multiply_add),
        "pca._CANDIDATE_COST": (pca._CANDIDATE_COST, candidate / multiply_add),
        "pca._RERANK_COST": (pca._RERANK_COST, rerank / multiply_add),
    }


def _time_search(
    n_images: int, components: int, size: int, nprobe: int, length: int, dimensions: int
) -> float:
    """CPU seconds of assigning, probing and re-ranking with these parameters; k-means is not counted."""
    generator = np.random.default_rng(0)
    embeddings = Embeddings(generator.standard_normal((n_images, dimensions), np.float32))
    source = generator.standard_normal((n_images, components), np.float32)
    source /= np.linalg.norm(source, axis=1, keepdims=True)
    vectors = ReducedVectors(source, 0.0, length)
    centroids = train_centroids(vectors, n_images // size, seed=0, runtime=_ONE_THREAD)
    truth = GroundTruth(np.zeros(1, np.int32), np.zeros((1, K), np.int32), np.zeros((1, K), np.float32))
    started = time.process_time()
    search = _IvfSearch(
        embeddings, vectors, truth, OperatingPoint(centroids, nprobe, 1.0), 0.0, _ONE_THREAD, ""
    )
    for _ in search.run():
        pass
    search.rerank(K)
    return time.process_time() - started


def _fixed_cost(n_images: int) -> float:
    """CPU seconds per image of ground truth, PCA, k-means and auto-tuning."""
    embeddings = Embeddings(make_structured(n_images)[0])
    started = time.process_time()
    truth = find_ground_truth(embeddings, K, seed=0, runtime=_ONE_THREAD)
    vectors = reduce_dimensions(embeddings, K, truth.gaps, seed=0, runtime=_ONE_THREAD)
    choose_operating_point(embeddings, vectors, truth, 0.97, seed=0, runtime=_ONE_THREAD)
    return (time.process_time() - started) / n_images


def _exact_cost(n_images: int) -> float:
    """CPU seconds of exact search, per image, image and dimension."""
    embeddings = Embeddings(np.random.default_rng(0).standard_normal((n_images, 256), np.float32))
    started = time.process_time()
    exact_graph(embeddings, K, runtime=_ONE_THREAD)
    return (time.process_time() - started) / n_images**2 / 256


def measure_pca_loss(n_images: int) -> dict[str, tuple[float, float]]:
    """Measure the share of the true neighbors that lists by reduced products hold."""
    embeddings = Embeddings(make_structured(n_images)[0])
    truth = find_ground_truth(embeddings, K, seed=0, runtime=_ONE_THREAD)
    vectors = reduce_dimensions(embeddings, K, truth.gaps, seed=0, runtime=_ONE_THREAD)
    assert isinstance(vectors, ReducedVectors)
    found = []
    for row, neighbors in zip(truth.rows, truth.neighbors, strict=True):
        products: FloatArray = vectors.source @ vectors.source[row]
        nearest = np.argpartition(-products, vectors.list_length)[: vectors.list_length + 1]
        found.append(np.isin(neighbors, nearest).mean())
    print(f"PCA: {vectors.dimensions} components, lists of {vectors.list_length}")
    return {"autotune._PCA_LOSS": (autotune._PCA_LOSS, 1 - float(np.mean(found)))}


def measure_refinement(n_images: int) -> dict[str, tuple[float, float]]:
    """Measure what refined centroids add to the recall, at most over nprobe."""
    embeddings = Embeddings(make_structureless(n_images)[0])
    truth = find_ground_truth(embeddings, K, seed=0, runtime=_ONE_THREAD)
    vectors = reduce_dimensions(embeddings, K, truth.gaps, seed=0, runtime=_ONE_THREAD)
    nlist, nprobes = n_images // 125, [16, 32, 48, 64, 80, 96, 112, 128]
    centroids = train_centroids(vectors, nlist, exhaustive=True, seed=0, runtime=_ONE_THREAD)
    refined = refine_centroids(vectors, centroids, nlist, seed=0, runtime=_ONE_THREAD)
    before, after = (
        [point.recall for point in autotune._predict(vectors, truth, one, nprobes, _ONE_THREAD)]
        for one in (centroids, refined)
    )
    print("recall by nprobe, before and after refinement of centroids:")
    for nprobe, one, other in zip(nprobes, before, after, strict=True):
        print(f"{nprobe:6}{one:8.3f}{other:8.3f}")
    gain = float(np.max(np.subtract(after, before)))
    return {"autotune._MAX_REFINEMENT_GAIN": (autotune._MAX_REFINEMENT_GAIN, gain)}

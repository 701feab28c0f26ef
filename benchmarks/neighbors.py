"""Exact search against a bare blocked matrix product; approximate search against exact, with its recall."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.clock import timed
from cdp import Embeddings, knn_graph
from cdp.graph.nndescent import NNDescentWorker
from cdp.graph.search import measure_recall
from cdp.lab.synthetic import synthetic_views


def measure(*, quick: bool) -> dict[str, Any]:
    n_images = 4000 if quick else 50_000
    views = synthetic_views(n_images // 12, 12, labeled=0.01, dimensions=256, members=0).unlabeled
    embeddings = Embeddings(views.base.source[:n_images])
    knn_graph(embeddings.source[:2000], 20, method="exact")  # compile
    exact_seconds, _ = timed(lambda: knn_graph(embeddings, 20, method="exact"))
    product_seconds, _ = timed(lambda: bare_product(embeddings.vectors))
    with NNDescentWorker() as worker:
        first_seconds, _ = timed(lambda: worker.search(embeddings, 20, 0))
        next_seconds, graph = timed(lambda: worker.search(embeddings, 20, 0))
    figures = {
        "images": embeddings.n_images,
        "exact_seconds": exact_seconds,
        "bare_product_seconds": product_seconds,
        "exact_to_product": exact_seconds / product_seconds,
        "nndescent_first_seconds": first_seconds,
        "nndescent_next_seconds": next_seconds,
        "nndescent_to_exact": next_seconds / exact_seconds,
        "nndescent_recall": measure_recall(embeddings, graph),
    }
    print(f"exact {exact_seconds:.1f} s = {figures['exact_to_product']:.2f} x the bare product")
    print(
        f"nndescent {next_seconds:.1f} s = {100 * figures['nndescent_to_exact']:.0f} % of exact at recall "
        f"{figures['nndescent_recall']:.3f} (the first search of a process: {first_seconds:.1f} s, it compiles)"
    )
    return figures


def bare_product(vectors: np.ndarray) -> None:
    """All similarities in blocks, each overwritten by the next."""
    block = np.empty((1024, len(vectors)), np.float32)
    for start in range(0, len(vectors), 1024):
        rows = vectors[start : start + 1024]
        np.matmul(rows, vectors.T, out=block[: len(rows)])

"""Peak resident memory at a fixed budget, for n and 2n images: only graphs, pairs and labels may grow."""

from __future__ import annotations

from typing import Any

from benchmarks.clock import in_own_process

BUDGET = "64MB"


def measure(*, quick: bool) -> dict[str, Any]:
    sizes = (5_000, 10_000) if quick else (50_000, 100_000, 200_000)
    figures: dict[str, Any] = {"budget": BUDGET}
    previous = None
    for n_images in sizes:
        run = in_own_process("benchmarks.memory", n_images=n_images)
        figures[str(n_images)] = run
        note = ""
        if previous:
            grown = run["peak_mb"] - previous["peak_mb"]
            needed = run["data_mb"] - previous["data_mb"]
            note = f", grew by {grown} MB; data, graphs, pairs and labels alone grew by {needed} MB"
        print(f"{n_images:8,} images: peak {run['peak_mb']:5} MB{note}")
        previous = run
    return figures


def child(n_images: int) -> dict[str, Any]:
    """Labels from given graphs: embeddings and graphs are made up, so that only the consensus is measured."""
    import numpy as np

    from cdp import CDP, KnnGraph, Mediator, PaperMLP, Views, candidate_pairs
    from cdp.types import ALL_INPUTS, column_names

    generator = np.random.default_rng(0)
    dimensions, k, members = 64, 20, 4
    models = [generator.standard_normal((n_images, dimensions), np.float32) for _ in range(members + 1)]
    views = Views(models[0], {f"c{i}": model for i, model in enumerate(models[1:], 1)})
    steps = np.arange(1, k + 1)
    graphs = []
    for shift in range(members + 1):
        neighbors = ((np.arange(n_images)[:, None] + steps * (1 + shift)) % n_images).astype(np.int32)
        similarity = np.tile(np.linspace(0.9, 0.5, k, dtype=np.float32), (n_images, 1))
        graphs.append(KnnGraph(neighbors, similarity))
    columns = len(column_names(tuple(views.committee), ALL_INPUTS))
    network = PaperMLP().fit(generator.normal(size=(600, columns)), generator.integers(0, 2, 600))
    mediator = Mediator(network, tuple(views.committee), ALL_INPUTS, k)
    model = CDP("paper", mediator=mediator, threshold=0.5, memory_budget=BUDGET)
    labels = model.predict(views, graphs=graphs)
    accepted = model.labeling_.accepted
    pairs = candidate_pairs(graphs[0])
    sizes = [
        *(view.source.nbytes + view.scale.nbytes for view in views),
        *(g.neighbors.nbytes + g.similarity.nbytes for g in graphs),
        # sorted copies of the neighbors, for counting common ones
        *(g.neighbors.nbytes for g in graphs),
        2 * pairs.ids.nbytes,
        2 * (accepted.ids.nbytes + accepted.doubt.nbytes),
        labels.labels.nbytes + labels.fate.nbytes + labels.confidence.nbytes,
    ]
    return {"n_images": n_images, "pairs": len(pairs), "data_mb": round(sum(sizes) / 1e6)}

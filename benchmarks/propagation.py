"""Propagating 10 M scored edges over 1 M images, as a multiple of one SciPy connected_components call.

Mark: at most 3. Three graphs: groups of about 50, as consensus graphs are; random edges, one giant component that
must be split all the way; and a ribbon, one giant component of near neighbors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from benchmarks.clock import best_of
from cdp import ConsensusGraph, propagate


def make_graph(kind: str, n_images: int, n_edges: int) -> ConsensusGraph:
    """A graph of a kind, its pairs sorted as candidate pairs are."""
    generator = np.random.default_rng(0)
    first = generator.integers(0, n_images, n_edges)
    if kind == "groups":
        second = first // 50 * 50 + generator.integers(0, 50, n_edges)
    elif kind == "random":
        second = generator.integers(0, n_images, n_edges)
    else:
        second = (first + generator.integers(1, 30, n_edges)) % n_images
    ends = np.sort(np.stack([first, np.minimum(second, n_images - 1)], axis=1), axis=1)
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))].astype(np.int32)
    return ConsensusGraph(ends, (0.04 * generator.random(len(ends))).astype(np.float32), n_images)


def measure(*, quick: bool) -> dict[str, Any]:
    n_images, n_edges = (20_000, 200_000) if quick else (1_000_000, 10_000_000)
    figures: dict[str, Any] = {"images": n_images, "edges": n_edges}
    for kind in ("groups", "random", "ribbon"):
        graph = make_graph(kind, n_images, n_edges)
        matrix = coo_array(
            (np.ones(len(graph), np.float32), (graph.ids[:, 0], graph.ids[:, 1])), shape=(n_images, n_images)
        ).tocsr()
        propagate(graph)  # compile
        scipy_seconds = best_of(3, lambda matrix=matrix: connected_components(matrix, directed=False))
        our_seconds = best_of(3, lambda graph=graph: propagate(graph))
        figures[kind] = {
            "scipy_seconds": scipy_seconds,
            "propagate_seconds": our_seconds,
            "ratio": our_seconds / scipy_seconds,
        }
        print(
            f"{kind:8s} SciPy components {scipy_seconds:6.2f} s, propagate {our_seconds:6.2f} s, "
            f"ratio {our_seconds / scipy_seconds:.2f}"
        )
    return figures

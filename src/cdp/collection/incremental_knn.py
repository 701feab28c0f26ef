"""Incremental k-NN graphs: images are inserted into the graphs of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from cdp.knn.exact import extend_graph
from cdp.runtime.runtime import Runtime
from cdp.scoring.scored_pairs import Insertion, ScoredPairs
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import BoolArray, LongArray


def insert_images(before: ScoredPairs, start: int, count: int) -> tuple[dict[str, KnnGraph], Insertion]:
    """Append empty rows at `start` to the graphs of all models, and prepare the insertion."""
    graphs = {name: graph.insert_rows(start, count) for name, graph in before.graphs.items()}
    fused = before.fused.insert_rows(start, count)
    return graphs, Insertion(start, count, np.zeros(fused.n_images, np.bool_), fused)


def insert_identities(identities: LongArray, start: int, count: int) -> LongArray:
    """Labeled identities of all images, with `count` unlabeled ones at `start`."""
    return np.concatenate([identities[:start], np.full(count, -1), identities[start:]])


def search_new(
    graph: KnnGraph, model: Embeddings, new: tuple[int, int], name: str, runtime: Runtime
) -> KnnGraph:
    """Search the neighbors of new images and update the other lists.

    `graph` has empty rows for the new images.
    """
    return extend_graph(graph, model, new, runtime=runtime, step=f"neighbors of new images: {name}")


def changed_rows(old: Mapping[str, KnnGraph], new: Iterable[KnnGraph]) -> BoolArray:
    """Return which images have another list in some model."""
    pairs = zip(old.values(), new, strict=True)
    changes = [(one.neighbors != other.neighbors).any(axis=1) for one, other in pairs]
    found: BoolArray = np.logical_or.reduce(changes)
    return found

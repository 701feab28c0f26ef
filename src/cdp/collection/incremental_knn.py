"""Neighbors of images that come to others: in every model, and in all models together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from cdp.knn.exact import extend_graph
from cdp.labeling.workspace import Workspace
from cdp.scoring.tree_features import search_together
from cdp.types import Embeddings, KnnGraph, Views
from cdp.types.arrays import BoolArray


def search_new(
    graph: KnnGraph, model: Embeddings, new: tuple[int, int], name: str, work: Workspace
) -> KnnGraph:
    """The graph of a model with the lists of new images, which also enter those of the others; `graph` has room for them."""
    return extend_graph(graph, model, new, runtime=work.runtime, step=f"neighbors of new images: {name}")


def search_together_again(
    views: Views,
    before: KnnGraph,
    old: Mapping[str, KnnGraph],
    graphs: Mapping[str, KnnGraph],
    work: Workspace,
) -> KnnGraph:
    """The neighbors in all models together, looked for where a list of some model is another than before."""
    with work.step("all models"):
        return search_together(
            views,
            list(graphs.values()),
            before.k,
            before=before,
            changed=np.flatnonzero(changed_rows(old.values(), graphs.values())),
            runtime=work.runtime,
        )


def changed_rows(old: Iterable[KnnGraph], new: Iterable[KnnGraph]) -> BoolArray:
    """Which images have another list in some model."""
    changes = [(one.neighbors != other.neighbors).any(axis=1) for one, other in zip(old, new, strict=True)]
    found: BoolArray = np.logical_or.reduce(changes)
    return found

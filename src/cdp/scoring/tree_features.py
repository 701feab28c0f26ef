"""Pair features for gradient boosting: ranks, shared neighbors, local density, per model and fused.

Not in the paper.

Four blocks of columns per model, each symmetric in the two images:

- `similarity`: cosine; cosine minus the mean of both neighborhoods; cosine minus the larger of both 10th
  neighbors'.
- `ranks`: the smaller and the larger rank of one image in the other's list; the length of the list if it is
  not in it.
- `common_neighbors`: shared neighbors among the first half of both lists, in whole lists, and weighted by
  their ranks.
- `density`: the smaller mean similarity to the neighbors, and the larger spread.

The fused model (`cdp.scoring.fused_graph`) is one more model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cdp.knn.pair_similarity import similarities, sort_for_locality
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.scoring.id_table import find_slot, make_table
from cdp.scoring.paper_features import neighbor_distributions
from cdp.types import Embeddings, KnnGraph, Views
from cdp.types.arrays import FloatArray, IntArray

BLOCKS = {
    "similarity": ("similarity", "above neighborhoods", "above 10th neighbors"),
    "ranks": ("smaller rank", "larger rank"),
    "common_neighbors": ("common neighbors, near", "common neighbors, all", "common neighbors, weighted"),
    "density": ("neighborhood mean", "neighborhood spread"),
}
ALL_BLOCKS = tuple(BLOCKS)
FUSED = "all models"
# Index of the 10th neighbor.
_NTH = 9


@dataclass(frozen=True, eq=False)
class _ModelFeatures:
    """Per-image features in one model; lists have 2k neighbors. `embeddings` is None for the fused model."""

    embeddings: Embeddings | None
    graph: KnnGraph
    mean: FloatArray
    spread: FloatArray


@dataclass(frozen=True, eq=False)
class TreeFeatureSource:
    """Inputs of the pair features, prepared once for all pairs; `used` names the feature blocks."""

    models: tuple[_ModelFeatures, ...]
    names: tuple[str, ...]
    used: tuple[str, ...] = ALL_BLOCKS

    @property
    def columns(self) -> list[str]:
        """A name for every column."""
        return [f"{column}({name})" for name in self.names for block in self.used for column in BLOCKS[block]]

    @property
    def taken(self) -> IntArray:
        """Which of one model's columns are given."""
        of_block = [block for block, columns in BLOCKS.items() for _ in columns]
        return np.flatnonzero(np.isin(of_block, self.used)).astype(np.int32)


def prepare_tree_features(
    views: Views,
    graphs: Iterable[KnnGraph],
    fused: KnnGraph,
    used: tuple[str, ...] = ALL_BLOCKS,
    runtime: Runtime | None = None,
) -> TreeFeatureSource:
    """Compute the features of every image; a single model is not fused with anything."""
    models: list[tuple[Embeddings | None, KnnGraph]] = list(zip(views, graphs, strict=True))
    if len(views) > 1:
        models.append((None, fused))
    given = [graph for _, graph in models]
    halves = [max(1, graph.k // 2) for graph in given]
    measured = neighbor_distributions(given, halves, runtime or Runtime())
    prepared = tuple(
        _ModelFeatures(embeddings, graph, mean, spread)
        for (embeddings, graph), (mean, spread) in zip(models, measured, strict=True)
    )
    return TreeFeatureSource(prepared, (*views.names, FUSED)[: len(prepared)], used)


def extract_tree_features(source: TreeFeatureSource, ids: IntArray) -> FloatArray:
    """Compute the features of the given pairs (m, 2) in all models, float32 (m, columns)."""
    width = sum(len(columns) for columns in BLOCKS.values())
    matrix = np.empty((len(ids), width * len(source.models)), np.float32)
    ends, origin = sort_for_locality(ids, len(source.models[0].mean))
    for number, model in enumerate(source.models):
        out = matrix[:, width * number : width * (number + 1)]
        if model.embeddings is not None:
            out[origin, 0] = similarities(model.embeddings, ends)
        else:
            np.mean(matrix[:, 0 : width * number : width], axis=1, out=out[:, 0])
        graph = model.graph
        _fill(ids, graph.neighbors, graph.similarity, model.mean, model.spread, graph.k // 2, out)
    if len(source.used) < len(BLOCKS):
        matrix = matrix.reshape(len(ids), -1, width)[:, :, source.taken].reshape(len(ids), -1)
    return matrix


@kernel
def _fill(
    ids: IntArray,
    neighbors: IntArray,
    similarity: FloatArray,
    mean: FloatArray,
    spread: FloatArray,
    half: int,
    out: FloatArray,
) -> None:
    k = neighbors.shape[1]
    nth = min(_NTH, k - 1)
    # Rank of every image in the list of the pair's first image; pairs are sorted, so one list serves several
    # pairs.
    keys, ranks = make_table(k)
    listed = -1
    for row in range(len(ids)):
        one = ids[row, 0]
        other = ids[row, 1]
        if one != listed:
            keys[:] = -1
            for rank in range(k):
                if neighbors[one, rank] >= 0:
                    slot = find_slot(keys, neighbors[one, rank])
                    keys[slot], ranks[slot] = neighbors[one, rank], rank
            listed = one
        slot = find_slot(keys, other)
        rank_one = ranks[slot] if keys[slot] == other else k
        rank_other = k
        near = 0
        shared = 0
        weighted = 0.0
        for rank in range(k):
            third = neighbors[other, rank]
            if third == one:
                rank_other = rank
            if third < 0:
                break
            slot = find_slot(keys, third)
            there = ranks[slot] if keys[slot] == third else k
            if there < k:
                shared += 1
                weighted += 1.0 / (1 + there + rank)
                if there < half and rank < half:
                    near += 1
        cosine = out[row, 0]
        out[row, 1] = cosine - np.float32(0.5) * (mean[one] + mean[other])
        # A shorter list has no 10th neighbor: the lowest similarity stands for it.
        out[row, 2] = cosine - max(similarity[one, nth], similarity[other, nth], np.float32(-1))
        out[row, 3] = min(rank_one, rank_other)
        out[row, 4] = max(rank_one, rank_other)
        out[row, 5] = near
        out[row, 6] = shared
        out[row, 7] = weighted
        out[row, 8] = min(mean[one], mean[other])
        out[row, 9] = max(spread[one], spread[other])

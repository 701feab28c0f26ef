"""Evidence about candidate pairs beyond the paper's: ranks, shared neighbors and crowding in every model and in all together.

Four blocks of columns per model, each symmetric in the two images:

- `similarity`: cosine; cosine minus the mean of both neighborhoods; cosine minus the larger of both 10th neighbors'.
- `ranks`: the smaller and the larger rank of one image in the other's list; the length of the list if it is not there.
- `common_neighbors`: shared neighbors among the first half of both lists, in whole lists, and weighted by their ranks.
- `density`: the smaller mean similarity to the neighbors, and the larger spread.

The models together are one more model: their unit vectors side by side, whose similarity is the mean of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.consensus.pair_features import neighbor_distribution
from cdp.graph.exact import similarities
from cdp.kernels import kernel
from cdp.memory import parse_bytes
from cdp.parallel import spans
from cdp.types import Embeddings, KnnGraph, Views
from cdp.types.arrays import AnyArray, FloatArray, IntArray

BLOCKS = {
    "similarity": ("similarity", "above neighborhoods", "above 10th neighbors"),
    "ranks": ("smaller rank", "larger rank"),
    "common_neighbors": ("common neighbors, near", "common neighbors, all", "common neighbors, weighted"),
    "density": ("neighborhood mean", "neighborhood spread"),
}
TOGETHER = "all models"
_NTH = 9


def join_models(views: Views, memory_budget: int | str, folder: Path | None) -> Embeddings:
    """The models' unit vectors side by side, as one more model; on disk if they exceed the budget and a folder is given."""
    shape = (views.n_images, sum(model.dimensions for model in views))
    large = 4 * shape[0] * shape[1] > parse_bytes(memory_budget)
    joined: AnyArray
    if large and folder is not None:
        joined = np.lib.format.open_memmap(folder / "all_models.npy", "w+", np.float32, shape)
    else:
        joined = np.empty(shape, np.float32)
    for start, stop in spans(shape[0], 65_536):
        column = 0
        for model in views:
            joined[start:stop, column : column + model.dimensions] = model.block(start, stop)
            column += model.dimensions
    return Embeddings(joined)


@dataclass(frozen=True, eq=False)
class _ModelEvidence:
    """What is known of every image in one model; lists have 2k neighbors."""

    embeddings: Embeddings
    graph: KnnGraph
    mean: FloatArray
    spread: FloatArray
    by_id: IntArray
    ranks: IntArray


@dataclass(frozen=True, eq=False)
class EvidenceSource:
    """Everything that evidence is drawn from, prepared once for all pairs."""

    models: tuple[_ModelEvidence, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """A name for every column."""
        return [f"{column}({name})" for name in self.names for block in BLOCKS.values() for column in block]

    @property
    def blocks(self) -> dict[str, list[int]]:
        """Which columns each block takes."""
        per_model = sum(len(columns) for columns in BLOCKS.values())
        found: dict[str, list[int]] = {}
        first = 0
        for block, columns in BLOCKS.items():
            found[block] = [
                model * per_model + first + at
                for model in range(len(self.names))
                for at in range(len(columns))
            ]
            first += len(columns)
        return found


def prepare_evidence(
    names: Sequence[str], models: Sequence[Embeddings], graphs: Sequence[KnnGraph]
) -> EvidenceSource:
    """Sort and sum up what every pair will be asked about."""
    prepared = []
    for embeddings, graph in zip(models, graphs, strict=True):
        half = max(1, graph.k // 2)
        near = KnnGraph(graph.neighbors[:, :half], graph.similarity[:, :half])
        mean, spread = neighbor_distribution(near)
        order = np.argsort(graph.neighbors, axis=1, kind="stable").astype(np.int32)
        by_id = np.take_along_axis(graph.neighbors, order, axis=1)
        prepared.append(_ModelEvidence(embeddings, graph, mean, spread, by_id, order))
    return EvidenceSource(tuple(prepared), tuple(names))


def extract_evidence(source: EvidenceSource, ids: IntArray) -> FloatArray:
    """All blocks of all models about the given pairs (m, 2), float32 (m, 10 x models)."""
    width = sum(len(columns) for columns in BLOCKS.values())
    matrix = np.empty((len(ids), width * len(source.models)), np.float32)
    for number, model in enumerate(source.models):
        out = matrix[:, width * number : width * (number + 1)]
        out[:, 0] = similarities(model.embeddings, ids)
        graph = model.graph
        _fill(ids, model.by_id, model.ranks, graph.similarity, model.mean, model.spread, graph.k // 2, out)
    return matrix


@kernel
def _fill(
    ids: IntArray,
    by_id: IntArray,
    ranks: IntArray,
    similarity: FloatArray,
    mean: FloatArray,
    spread: FloatArray,
    half: int,
    out: FloatArray,
) -> None:
    k = by_id.shape[1]
    nth = min(_NTH, k - 1)
    for row in range(len(ids)):
        one = ids[row, 0]
        other = ids[row, 1]
        rank_one = k
        rank_other = k
        near = 0
        shared = 0
        weighted = 0.0
        here = 0
        there = 0
        # Both lists sorted by id are walked together; ids of missing neighbors are -1 and come first.
        while here < k or there < k:
            first = by_id[one, here] if here < k else np.int32(2147483647)
            second = by_id[other, there] if there < k else np.int32(2147483647)
            if first == other and here < k:
                rank_one = ranks[one, here]
            if second == one and there < k:
                rank_other = ranks[other, there]
            if first < second:
                here += 1
            elif second < first:
                there += 1
            else:
                if first >= 0:
                    shared += 1
                    a = ranks[one, here]
                    b = ranks[other, there]
                    weighted += 1.0 / (1 + a + b)
                    if a < half and b < half:
                        near += 1
                here += 1
                there += 1
        cosine = out[row, 0]
        out[row, 1] = cosine - np.float32(0.5) * (mean[one] + mean[other])
        out[row, 2] = cosine - max(similarity[one, nth], similarity[other, nth])
        out[row, 3] = min(rank_one, rank_other)
        out[row, 4] = max(rank_one, rank_other)
        out[row, 5] = near
        out[row, 6] = shared
        out[row, 7] = weighted
        out[row, 8] = min(mean[one], mean[other])
        out[row, 9] = max(spread[one], spread[other])

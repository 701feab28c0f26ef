"""Evidence about candidate pairs beyond the paper's: ranks, shared neighbors and crowding in every model and in all together.

Four blocks of columns per model, each symmetric in the two images:

- `similarity`: cosine; cosine minus the mean of both neighborhoods; cosine minus the larger of both 10th neighbors'.
- `ranks`: the smaller and the larger rank of one image in the other's list; the length of the list if it is not there.
- `common_neighbors`: shared neighbors among the first half of both lists, in whole lists, and weighted by their ranks.
- `density`: the smaller mean similarity to the neighbors, and the larger spread.

The models together are one more model: their unit vectors side by side, whose similarity is the mean of theirs. It is never
built: its neighbors are found among those of the single models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.blocks import spans
from cdp.input_blocks import EVIDENCE
from cdp.knn.pair_similarity import similarities, sort_for_locality
from cdp.knn.topk import insert_in_order
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.scoring.paper_features import neighbor_distribution
from cdp.types import Embeddings, KnnGraph, Views
from cdp.types.arrays import FloatArray, IntArray, LongArray

BLOCKS = {
    "similarity": ("similarity", "above neighborhoods", "above 10th neighbors"),
    "ranks": ("smaller rank", "larger rank"),
    "common_neighbors": ("common neighbors, near", "common neighbors, all", "common neighbors, weighted"),
    "density": ("neighborhood mean", "neighborhood spread"),
}
TOGETHER = "all models"
# Graphs whose similarities are what `similarities` gives.
_MEASURED = ("exact", "approximate")
_NTH = 9
# Many rows at once, so that neighbors are read nearly one after the other; as few as there is room for.
_MOST_ROWS = 4096
_FEWEST_ROWS = 128
_BYTES_PER_PAIR = 60


def search_together(
    views: Views,
    graphs: Sequence[KnnGraph],
    k: int,
    *,
    before: KnnGraph | None = None,
    changed: LongArray | None = None,
    runtime: Runtime,
    key: str = "",
) -> KnnGraph:
    """The k nearest neighbors of every image in all models together, among its neighbors in the single models.

    An image that is near in the mean is near in one model at least: of the 20 nearest in the mean of five models on Omniglot,
    99.97 % are among the 40 nearest of one of them. The cost is that of the lists, not of another search.

    Args:
        views: of all images.
        graphs: of every model.
        k: neighbors per image.
        before: the result for earlier graphs; rows that are not `changed` are taken from it.
        changed: int64, rows whose list changed in some model since.
        runtime: how the search runs.
        key: of checkpoints; only where all lists are searched.
    """
    n_images = views.n_images
    if len(views) == 1:
        return graphs[0].nearest(k)
    checkpoint, done = runtime.list_checkpoint(key), 0
    if before is None:
        neighbors = runtime.full((n_images, k), -1, np.int32)
        similarity = runtime.full((n_images, k), -np.inf, np.float32)
        done = checkpoint.resume(similarity, neighbors)
    else:
        neighbors, similarity = runtime.copy(before.neighbors), runtime.copy(before.similarity)
    wanted = np.arange(n_images, dtype=np.int32) if changed is None else changed.astype(np.int32)
    rows_per_block = _rows_per_block(graphs, runtime)
    left = wanted[done:]
    cut = [left[start:stop] for start, stop in spans(len(left), rows_per_block)]
    model_of_column = np.repeat(np.arange(len(graphs), dtype=np.int32), [graph.k for graph in graphs])
    shared = (tuple(views), tuple(graphs), model_of_column, k)
    for rows, (ids, mean) in zip(cut, runtime.map(_search_block, shared, cut), strict=True):
        neighbors[rows], similarity[rows] = ids, mean
        done += len(rows)
        checkpoint.note(done, similarity, neighbors)
        runtime.progress("neighbors in all models", done, len(wanted))
    return KnnGraph(runtime.finished(neighbors), runtime.finished(similarity), graphs[0].method)


def _rows_per_block(graphs: Sequence[KnnGraph], runtime: Runtime) -> int:
    """How many rows are searched at once; what is found for each does not depend on it."""
    per_row = sum(graph.k for graph in graphs) * (_BYTES_PER_PAIR + 4 * len(graphs))
    return max(_FEWEST_ROWS, min(_MOST_ROWS, runtime.block_memory // (runtime.n_threads * per_row)))


def _side_by_side(graphs: Sequence[KnnGraph], rows: IntArray) -> tuple[IntArray, FloatArray]:
    """The lists of some images in all graphs, and their similarities; NaN where these were not measured by this package."""
    lists = np.concatenate([graph.neighbors[rows] for graph in graphs], axis=1)
    unknown = np.float32(np.nan)
    measured = [
        graph.similarity[rows] if graph.method in _MEASURED else np.full((len(rows), graph.k), unknown)
        for graph in graphs
    ]
    return lists, np.concatenate(measured, axis=1)


def _search_block(
    shared: tuple[tuple[Embeddings, ...], tuple[KnnGraph, ...], IntArray, int], rows: IntArray
) -> tuple[IntArray, FloatArray]:
    """The nearest of some images' neighbors in all graphs."""
    models, graphs, model_of_column, k = shared
    lists, measured = _side_by_side(graphs, rows)
    starts, ends, known = _unite(rows, lists, measured, model_of_column, len(models), models[0].n_images)
    ends, origin = sort_for_locality(ends, models[0].n_images)
    total = np.zeros(len(ends), np.float32)
    for model, similarity in zip(models, known, strict=True):
        values = similarity[origin]
        missing = np.flatnonzero(np.isnan(values))
        values[missing] = similarities(model, ends[missing])
        total += values
    total /= np.float32(len(models))
    best, ids = np.full((len(rows), k), -np.inf, np.float32), np.full((len(rows), k), -1, np.int32)
    images, mean = np.empty(len(ends), np.int32), np.empty(len(ends), np.float32)
    images[origin], mean[origin] = ends[:, 1], total
    _keep_best(starts, images, mean, best, ids)
    return ids, best


@kernel
def _unite(
    rows: IntArray, lists: IntArray, measured: FloatArray, models: IntArray, n_models: int, n_images: int
) -> tuple[LongArray, IntArray, FloatArray]:
    """Every row and each image of its lists once.

    Returns:
        int64 (rows + 1,), where the pairs of every row begin;
        int32 (m, 2), the pairs;
        float32 (n_models, m), what is known of their similarities, else NaN.
    """
    starts = np.zeros(len(rows) + 1, np.int64)
    ends = np.empty((lists.size, 2), np.int32)
    known = np.full((n_models, lists.size), np.float32(np.nan))
    place = np.full(n_images, -1, np.int32)
    count = 0
    for row in range(len(rows)):
        for column in range(lists.shape[1]):
            image = lists[row, column]
            if image < 0:
                continue
            if place[image] < starts[row]:
                place[image] = count
                ends[count, 0], ends[count, 1] = rows[row], image
                count += 1
            known[models[column], place[image]] = measured[row, column]
        starts[row + 1] = count
    return starts, ends[:count], known[:, :count]


@kernel
def _keep_best(
    starts: LongArray, images: IntArray, values: FloatArray, best: FloatArray, ids: IntArray
) -> None:
    for row in range(len(best)):
        for pair in range(starts[row], starts[row + 1]):
            insert_in_order(best[row], ids[row], values[pair], images[pair])


@dataclass(frozen=True, eq=False)
class _ModelEvidence:
    """What is known of every image in one model; lists have 2k neighbors.

    `embeddings` is None for the models together.
    """

    embeddings: Embeddings | None
    graph: KnnGraph
    mean: FloatArray
    spread: FloatArray


@dataclass(frozen=True, eq=False)
class EvidenceSource:
    """Everything that evidence is drawn from, prepared once for all pairs; `used` are the blocks that are given."""

    models: tuple[_ModelEvidence, ...]
    names: tuple[str, ...]
    used: tuple[str, ...] = EVIDENCE

    @property
    def columns(self) -> list[str]:
        """A name for every column."""
        return [f"{column}({name})" for name in self.names for block in self.used for column in BLOCKS[block]]

    @property
    def taken(self) -> IntArray:
        """Which of one model's columns are given."""
        of_block = [block for block, columns in BLOCKS.items() for _ in columns]
        return np.flatnonzero(np.isin(of_block, self.used)).astype(np.int32)


def prepare_evidence(
    views: Views, graphs: Sequence[KnnGraph], together: KnnGraph, used: tuple[str, ...] = EVIDENCE
) -> EvidenceSource:
    """Sum up what every pair will be asked about; one model alone is not also all models together."""
    prepared = []
    models: list[tuple[Embeddings | None, KnnGraph]] = list(zip(views, graphs, strict=True))
    if len(views) > 1:
        models.append((None, together))
    for embeddings, graph in models:
        half = max(1, graph.k // 2)
        mean, spread = neighbor_distribution(graph, half)
        prepared.append(_ModelEvidence(embeddings, graph, mean, spread))
    return EvidenceSource(tuple(prepared), (*views.names, TOGETHER)[: len(prepared)], used)


def extract_evidence(source: EvidenceSource, ids: IntArray) -> FloatArray:
    """The blocks of all models about the given pairs (m, 2), float32 (m, columns)."""
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
    # Where every image is in the list of the first of a pair; pairs come sorted, so a list serves for several.
    place = np.full(len(neighbors), k, np.int32)
    listed = -1
    for row in range(len(ids)):
        one = ids[row, 0]
        other = ids[row, 1]
        if one != listed:
            if listed >= 0:
                for rank in range(k):
                    place[neighbors[listed, rank]] = k
            for rank in range(k):
                if neighbors[one, rank] >= 0:
                    place[neighbors[one, rank]] = rank
            listed = one
        rank_one = place[other]
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
            there = place[third]
            if there < k:
                shared += 1
                weighted += 1.0 / (1 + there + rank)
                if there < half and rank < half:
                    near += 1
        cosine = out[row, 0]
        out[row, 1] = cosine - np.float32(0.5) * (mean[one] + mean[other])
        # Where a list is shorter, there is no 10th neighbor: it is as far as can be.
        out[row, 2] = cosine - max(similarity[one, nth], similarity[other, nth], np.float32(-1))
        out[row, 3] = min(rank_one, rank_other)
        out[row, 4] = max(rank_one, rank_other)
        out[row, 5] = near
        out[row, 6] = shared
        out[row, 7] = weighted
        out[row, 8] = min(mean[one], mean[other])
        out[row, 9] = max(spread[one], spread[other])

"""The fused graph: nearest neighbors by the mean similarity over all models. Not in the paper.

The fused model has the unit vectors of all models side by side, so its similarity is the mean of theirs. It
is never built: its neighbors are found among those of the single models. Its edges are the candidate pairs of
`trees` and `similarity`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cdp.blocks import spans
from cdp.knn.model_graphs import ModelGraphs
from cdp.knn.pair_similarity import similarities, sort_for_locality
from cdp.knn.topk import insert_in_order
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.id_table import find_slot, make_table
from cdp.types import Embeddings, KnnGraph, Views
from cdp.types.arrays import FloatArray, IntArray, LongArray

# Graphs whose similarities are what `similarities` gives.
_MEASURED = ("exact", "approximate")
# Many rows at once, so that neighbors are read nearly in order; as few as fit the memory of a block.
_MOST_ROWS = 4096
_FEWEST_ROWS = 128
_BYTES_PER_PAIR = 60


def find_fused_graph(views: Views, found: ModelGraphs, k: int, runtime: Runtime) -> KnnGraph:
    """Return the fused graph: from the cache, or searched now; of one model it is its own graph."""
    if len(views) == 1:
        return found.base.nearest(k)
    keys = list(found.keys.items())
    cache, key = (runtime.cache, step_key("fused", 1, None, keys, k)) if keys else (StepCache(), "")
    kept = cache.get("fused", key, KnnGraph)
    if kept is not None:
        return kept
    with runtime.step("all models"):
        fused = search_fused(views, list(found), k, runtime=runtime, key=key)
        cache.put("fused", key, fused)
        cache.drop("lists", key)
    return fused


def search_fused(
    views: Views,
    graphs: Sequence[KnnGraph],
    k: int,
    *,
    before: KnnGraph | None = None,
    changed: LongArray | None = None,
    runtime: Runtime,
    key: str = "",
) -> KnnGraph:
    """Search the k nearest neighbors in the fused model among the neighbors in single models.

    An image that is near in the mean is near in one model at least: of the 20 nearest in the mean of five
    models on Omniglot, 99.97 % are among the 40 nearest of one of them. The cost is that of merging lists,
    not of another search.

    Args:
        views: of all images.
        graphs: of every model.
        k: number of neighbors.
        before: the result for earlier graphs; rows that are not `changed` are taken from it.
        changed: int64, rows whose list changed in some model since.
        runtime: how it runs.
        key: of checkpoints, where all rows are searched.
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
    left = wanted[done:]
    cut = [left[start:stop] for start, stop in spans(len(left), _rows_per_block(graphs, runtime))]
    model_of_column = np.repeat(np.arange(len(graphs), dtype=np.int32), [graph.k for graph in graphs])
    shared = (tuple(views), tuple(graphs), model_of_column, k)
    for rows, (ids, mean) in zip(cut, runtime.map(_search_block, shared, cut), strict=True):
        neighbors[rows], similarity[rows] = ids, mean
        done += len(rows)
        checkpoint.note(done, similarity, neighbors)
        runtime.progress("fused k-NN graph", done, len(wanted))
    return KnnGraph.unchecked(runtime.finished(neighbors), runtime.finished(similarity), graphs[0].method)


def _rows_per_block(graphs: Sequence[KnnGraph], runtime: Runtime) -> int:
    """Count the rows searched at once; results do not depend on it."""
    per_row = sum(graph.k for graph in graphs) * (_BYTES_PER_PAIR + 4 * len(graphs))
    return max(_FEWEST_ROWS, min(_MOST_ROWS, runtime.block_memory // (runtime.n_threads * per_row)))


def _side_by_side(graphs: Sequence[KnnGraph], rows: IntArray) -> tuple[IntArray, FloatArray]:
    """Concatenate the neighbor lists and similarities of all graphs; NaN where only ids were given."""
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
    """Search the fused lists of some images."""
    models, graphs, model_of_column, k = shared
    lists, measured = _side_by_side(graphs, rows)
    starts, ends, known = _unite(rows, lists, measured, model_of_column, len(models))
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
    rows: IntArray, lists: IntArray, measured: FloatArray, models: IntArray, n_models: int
) -> tuple[LongArray, IntArray, FloatArray]:
    """List every row with each image of its lists once.

    Returns:
        int64 (rows + 1,), start of every row's pairs;
        int32 (m, 2), the pairs;
        float32 (n_models, m), their known similarities, else NaN.
    """
    starts = np.zeros(len(rows) + 1, np.int64)
    ends = np.empty((lists.size, 2), np.int32)
    known = np.full((n_models, lists.size), np.float32(np.nan))
    keys, place = make_table(lists.shape[1])
    count = 0
    for row in range(len(rows)):
        keys[:] = -1
        for column in range(lists.shape[1]):
            image = lists[row, column]
            if image < 0:
                continue
            slot = find_slot(keys, image)
            if keys[slot] < 0:
                keys[slot], place[slot] = image, count
                ends[count, 0], ends[count, 1] = rows[row], image
                count += 1
            known[models[column], place[slot]] = measured[row, column]
        starts[row + 1] = count
    return starts, ends[:count], known[:, :count]


@kernel
def _keep_best(
    starts: LongArray, images: IntArray, values: FloatArray, best: FloatArray, ids: IntArray
) -> None:
    for row in range(len(best)):
        for pair in range(starts[row], starts[row + 1]):
            insert_in_order(best[row], ids[row], values[pair], images[pair])

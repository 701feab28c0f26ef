"""Approximate k-NN search: IVF-Flat over PCA-reduced vectors.

nlist and nprobe are tuned automatically for the recall asked for; insertion is symmetric (a comparison
updates the top-k lists of both images), and the lists are re-ranked in all dimensions. In the order of
`approximate_graph`:

1. Ground truth (recall.py): exact neighbors of 500 random images.
2. PCA (pca.py): as few components as keep the k nearest neighbors in somewhat longer lists; or none is left
   out.
3. Auto-tuning (autotune.py): k-means centroids (kmeans.py) and the least nprobe that reaches the recall on
   the sample. The cost of each choice is estimated; where exact search is cheaper than all of them, exact
   search it is.
4. Assignment (ivf.py): every image gets nprobe cells to probe, its assigned cell first. Images are renumbered
   cell by cell, so that an inverted list is a contiguous block of vectors.
5. Probing (probe.py): the images of each cell are compared with each other, then with the queries that probe
   the cell, in rounds, nearest cells first: thresholds are then high, and few further images enter a list.
6. If the recall on the sample is missed, more cells are probed: an eighth more, then twice as many until it
   is reached.
7. Re-ranking (pair_similarity.py): the lists are sorted by full-dimension similarity and cut to k.

All images are both queries and database. Neither threads nor their timing change a result: a list holds the
best of all that was compared, ties by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from cdp.blocks import spans
from cdp.knn.autotune import OperatingPoint, choose_operating_point
from cdp.knn.cell_ranges import (
    AssignedCells,
    RangeLists,
    probe_ranges,
    rerank_ranges,
    search_assigned_ranges,
)
from cdp.knn.exact import exact_graph, search_bytes
from cdp.knn.ivf import CellTable, cells_to_probe
from cdp.knn.pair_similarity import rerank_block, rows_per_rerank
from cdp.knn.pca import Vectors, reduce_dimensions
from cdp.knn.probe import Round, SearchContext, TopKLists, probe_cells, search_assigned_cells
from cdp.knn.recall import GroundTruth, find_ground_truth, find_same_identity_truth
from cdp.runtime.checkpoint import ListCheckpoint
from cdp.runtime.parallel import on_one_thread
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import FloatArray, IntArray, LongArray

# Part of the key of cached graphs; raise it when the search finds other neighbors than before.
APPROXIMATE_VERSION = 10
# Rounds of probing end at these places among an image's nearest cells, then every 32: inverted lists of
# queries stay small.
_ROUND_ENDS = (1, 4, 16, 48)
# Checkpoints are written after this many cells of a round; unfinished lists count them, so changing it raises
# the version.
_CELLS_PER_CHECKPOINT = 2**14
# Fewer true neighbors of the same identity estimate the recall too badly to tune by.
_MIN_SAME_IDENTITY = 200


def approximate_graph(
    embeddings: Embeddings,
    k: int,
    recall: float,
    *,
    runtime: Runtime,
    seed: int = 0,
    step: str = "k-NN graph",
    identities: LongArray | None = None,
    key: str = "",
) -> KnnGraph:
    """Search the k nearest neighbors of every image with about the recall asked for.

    Args:
        embeddings: all images.
        k: number of neighbors.
        recall: share of the true neighbors to find.
        runtime: how the search runs.
        seed: of samples and k-means.
        step: name of this search in progress reports.
        identities: of labeled images (0 or more); the recall is then that among neighbors of the same
            identity.
        key: under which unfinished lists are checkpointed; "" = not at all.

    Returns:
        The graph with its recall, measured on a sample; an exact graph where exact search is cheaper.
    """
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    runtime.progress(step, 0, 0)
    truth = find_ground_truth(embeddings, k, seed=seed, runtime=runtime)
    same = find_same_identity_truth(embeddings, k, identities, seed=seed, runtime=runtime)
    target = same if same is not None and same.n_counted >= _MIN_SAME_IDENTITY else truth
    # The rounding of a matrix product depends on the number of BLAS threads.
    with on_one_thread("blas"):
        vectors = reduce_dimensions(embeddings, k, truth.gaps, seed=seed, runtime=runtime)
        point = choose_operating_point(embeddings, vectors, target, recall, seed=seed, runtime=runtime)
    if point is None:
        del vectors
        return exact_graph(embeddings, k, runtime=runtime, step=step, key=key)
    search = _IvfSearch(embeddings, vectors, target, point, recall, runtime, key)
    del vectors  # replaced by a reordered copy
    n_images = embeddings.n_images
    for share in search.run():
        runtime.progress(step, int(0.99 * n_images * share), n_images)
    neighbors, similarity = search.rerank(k)
    runtime.progress(step, n_images, n_images)
    reached = truth.recall(similarity)
    return KnnGraph.unchecked(
        runtime.finished(neighbors), runtime.finished(similarity), "approximate", reached
    )


class _IvfSearch:
    """State of a search: vectors, cells to probe and top-k lists.

    PCA-reduced vectors are renumbered cell by cell; embeddings are not, as that would copy all of them.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        vectors: Vectors,
        truth: GroundTruth,
        point: OperatingPoint,
        recall: float,
        runtime: Runtime,
        key: str,
    ) -> None:
        self.embeddings, self.vectors, self.truth, self.point = embeddings, vectors, truth, point
        self.recall, self.runtime, self.key = recall, runtime, key
        k = truth.neighbors.shape[1]
        keep = k if isinstance(vectors, Embeddings) else vectors.list_length
        shape = embeddings.n_images, keep
        # On a cluster, tasks write the lists, and here is only where they are.
        empty = runtime.pool is not None
        self.best = runtime.empty(shape, np.float32) if empty else runtime.full(shape, -np.inf, np.float32)
        self.ids = runtime.empty(shape, np.int32) if empty else runtime.full(shape, -1, np.int32)
        self.lists: RangeLists | None = None
        table = self._cells_to_probe(point.nprobe + _spare_probes(point))
        self.order, self.places = table.order, table.places
        self.is_reordered = not isinstance(vectors, Embeddings)
        if not isinstance(vectors, Embeddings):
            self.vectors = vectors.reorder(self.order, runtime)
            known = point.centroids.known
            if known is not None:
                centroids = replace(point.centroids, known=known[self.order])
                self.point = replace(point, centroids=centroids)
        self.assigned = AssignedCells.of(table, self.is_reordered, runtime)

    @property
    def n_probed(self) -> int:
        """Number of cells that are known for every image."""
        return int(self.assigned.cells.shape[1])

    def run(self) -> Iterator[float]:
        """Probe cells until the recall is reached; yield the estimated share of the work that is done."""
        nprobe = self.point.nprobe
        for done in self._probe(0, nprobe, self.key):
            yield done / nprobe
        reached = self._measure_recall()
        if reached < self.recall and self.n_probed > nprobe:
            for _ in self._probe(nprobe, self.n_probed):
                yield 1.0
            reached = self._measure_recall()
        while reached < self.recall and self.n_probed < len(self.point.centroids):
            n_probed = self.n_probed
            table = self._cells_to_probe(min(2 * n_probed, len(self.point.centroids)))
            self.assigned = AssignedCells.of(table, False, self.runtime)
            for _ in self._probe(n_probed, self.n_probed):
                yield 1.0
            reached = self._measure_recall()

    def rerank(self, k: int) -> tuple[IntArray, FloatArray]:
        """Sort all lists by full-dimension similarity, cut them to k, and undo the renumbering.

        Cell by cell, because the images of a cell have neighbors in common.
        """
        if self.runtime.pool is not None:
            given = self.embeddings, self.ids, self.order, self.places
            return rerank_ranges(*given, k, self.is_reordered, self.runtime)
        n_images, width = self.ids.shape
        neighbors: IntArray = self.runtime.empty((n_images, k), np.int32)
        similarity: FloatArray = self.runtime.empty((n_images, k), np.float32)
        cut = spans(n_images, rows_per_rerank(width))
        blocks = ((self.order[start:stop], self._lists(start, stop)) for start, stop in cut)
        found = self.runtime.map(rerank_block, self.embeddings, blocks)
        for (start, stop), (ids, values) in zip(cut, found, strict=True):
            rows = self.order[start:stop]
            neighbors[rows], similarity[rows] = ids[:, :k], values[:, :k]
        return neighbors, similarity

    def _probe(self, first: int, last: int, key: str = "") -> Iterator[float]:
        """Probe every image's first-th to last-th nearest cells; yield the number of cells done per image."""
        probe = self._probe_here if self.runtime.pool is None else self._probe_on_cluster
        return probe(first, last, self.runtime.list_checkpoint(key))

    def _probe_here(self, first: int, last: int, checkpoint: ListCheckpoint) -> Iterator[float]:
        """Checkpoints are written between parts of a round, when no thread is running."""
        n_resumed, part = checkpoint.resume(self.best, self.ids), 0
        context = SearchContext(self.vectors, self.runtime.search_device)
        context.product  # noqa: B018 (computed once, before several threads need it)
        nlist = len(self.point.centroids)
        cut = spans(nlist, _CELLS_PER_CHECKPOINT)
        lists = TopKLists.of(self.best, self.ids)
        for start, stop in _rounds(first, last):
            part += len(cut)
            if part <= n_resumed:
                continue
            cells = Round.of(self.assigned.cells, start, stop, nlist, self.runtime)
            search = search_assigned_cells if start == 0 else probe_cells
            for number, (low, high) in enumerate(cut, part - len(cut) + 1):
                if number <= n_resumed:
                    continue
                for share in search(context, cells.cells(low, high), lists, self.runtime):
                    yield start + (low + share * (high - low)) / nlist * (stop - start)
                checkpoint.note(number, self.best, self.ids)

    def _probe_on_cluster(self, first: int, last: int, checkpoint: ListCheckpoint) -> Iterator[float]:
        """Checkpoints are written between rounds."""
        n_resumed, part = 0 if first else checkpoint.resume(self.best, self.ids), 0
        context = SearchContext(self.vectors, self.runtime.search_device)
        parts_per_round = len(spans(len(self.point.centroids), _CELLS_PER_CHECKPOINT))
        for start, stop in _rounds(first, last):
            part += parts_per_round
            if part <= n_resumed:
                continue
            if start == 0:
                found = search_assigned_ranges(context, self.assigned, self.best.shape[1], self.runtime)
                self.lists = yield from found
            else:
                self.lists = self.lists or RangeLists.of(self.best, self.ids, self.runtime)
                probed = probe_ranges(context, self.assigned, (start, stop), self.lists, self.runtime)
                for share in probed:
                    yield start + share * (stop - start)
            self.best, self.ids = self.lists.best, self.lists.ids
            checkpoint.note(part, self.best, self.ids)

    def _cells_to_probe(self, nprobe: int) -> CellTable:
        return cells_to_probe(self.vectors, self.point.centroids, nprobe, runtime=self.runtime)

    def _measure_recall(self) -> float:
        rows, ids = self.truth.rows, self.ids
        if not self.is_reordered:
            return self.truth.recall_of_lists(self.embeddings, ids[rows])
        return self.truth.recall_of_lists(self.embeddings, self._original_ids(ids[self.places[rows]]))

    def _lists(self, start: int, stop: int) -> IntArray:
        """Return lists, in original ids, of images start..stop-1 in the order of cells."""
        if self.is_reordered:
            return self._original_ids(self.ids[start:stop])
        return self.ids[self.order[start:stop]]

    def _original_ids(self, ids: IntArray) -> IntArray:
        original: IntArray = np.where(ids < 0, np.int32(-1), self.order[ids])
        return original


def _spare_probes(point: OperatingPoint) -> int:
    """Return the number of further cells to probe where the operating point misses the recall by little."""
    nearby = point.centroids.nearby
    most = len(point.centroids) if nearby is None else nearby.shape[1]
    return max(0, min(max(2, point.nprobe // 8), most - point.nprobe))


def _rounds(first: int, last: int) -> list[tuple[int, int]]:
    """Cut first..last into rounds: 0..1, 1..4, 4..16, 16..48, 48..80 and so on."""
    step = _ROUND_ENDS[-1] - _ROUND_ENDS[-2]
    bounds = [*_ROUND_ENDS, *range(_ROUND_ENDS[-1] + step, last, step)]
    inside = [first, *(bound for bound in bounds if first < bound < last), last]
    return [(start, stop) for start, stop in pairwise(inside) if start < stop]

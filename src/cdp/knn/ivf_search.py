"""Approximate k-NN search: every image looks into its nearest clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np

from cdp.blocks import spans
from cdp.knn.autotune import Plan, choose_plan
from cdp.knn.exact import exact_graph, search_bytes
from cdp.knn.ivf import cluster_order, in_order, nearest_clusters
from cdp.knn.pair_similarity import measure_block, rows_at_once
from cdp.knn.pca import Vectors, project
from cdp.knn.probe import Lists, Looking, group_by_cluster, search_homes, search_visits
from cdp.knn.recall import TrueNeighbors, find_same_identity_neighbors, find_true_neighbors
from cdp.runtime.parallel import on_one_thread
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import FloatArray, IntArray, LongArray

# Goes up when other neighbors are found than before, so that graphs that were kept are made anew.
APPROXIMATE_VERSION = 8
# Nearest clusters first: lists are then nearly right, and few images of the others are better. No round has more clusters
# than the last step, so that the list of who looks into which stays small.
_ROUNDS = (1, 4, 16, 48)
# A round of more clusters is cut into parts, between which lists are kept; whoever changes this raises the version.
_CLUSTERS_PER_PART = 2**14
# Fewer neighbors of the same identity say too little about a plan.
_FEWEST_COUNTED = 200


def approximate_graph(
    embeddings: Embeddings,
    k: int,
    recall: float,
    *,
    seed: int = 0,
    runtime: Runtime,
    step: str = "k-NN graph",
    identities: LongArray | None = None,
    key: str = "",
) -> KnnGraph:
    """The k nearest neighbors of every image, but for a few; the graph's recall is measured on a sample.

    Along how many directions images are compared, and how many clusters are looked into, is chosen
    beforehand as the cheapest way to the recall asked for; exact search answers if none is cheaper. Images, not threads,
    decide what is compared with what. Where `identities` are known (0 or more),
    the recall asked for is that among neighbors of the same identity. Lists are kept under the `key` while clusters are looked into.
    """
    runtime = runtime.with_threads_for(search_bytes(embeddings))
    runtime.progress(step, 0, 0)
    truth = find_true_neighbors(embeddings, k, seed=seed, runtime=runtime)
    same = find_same_identity_neighbors(embeddings, k, identities, seed=seed, runtime=runtime)
    goal = same if same is not None and same.n_counted >= _FEWEST_COUNTED else truth
    # The rounding of a product depends on how many threads it has.
    with on_one_thread("blas"):
        vectors = project(embeddings, k, truth.gaps, seed=seed, runtime=runtime)
        plan = choose_plan(embeddings, vectors, goal, recall, seed=seed, runtime=runtime)
    if plan is None:
        del vectors
        return exact_graph(embeddings, k, runtime=runtime, step=step, key=key)
    searching = _Search(embeddings, vectors, goal, plan, recall, runtime, key)
    del vectors  # those in another order take their place
    n_images = embeddings.n_images
    for share in searching.run():
        runtime.progress(step, int(0.99 * n_images * share), n_images)
    neighbors, similarity = searching.measured(k)
    runtime.progress(step, n_images, n_images)
    reached = truth.recall(similarity)
    return KnnGraph(runtime.finished(neighbors), runtime.finished(similarity), "approximate", reached)


class _Search:
    """The lists as they grow.

    Images are numbered anew here, cluster by cluster, where that is no second copy of all embeddings: what is needed together
    then lies together.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        vectors: Vectors,
        truth: TrueNeighbors,
        plan: Plan,
        recall: float,
        runtime: Runtime,
        key: str,
    ) -> None:
        self.embeddings, self.vectors, self.truth, self.plan = embeddings, vectors, truth, plan
        self.recall, self.runtime, self.key = recall, runtime, key
        # Where products are not quite those of the embeddings, more are kept than are asked for, and measured at the end.
        k = truth.neighbors.shape[1]
        keep = k if isinstance(vectors, Embeddings) else vectors.listed
        self.best = runtime.full((embeddings.n_images, keep), -np.inf, np.float32)
        self.ids = runtime.full((embeddings.n_images, keep), -1, np.int32)
        self.nearest = self._find_nearest(plan.clusters + _reserve(plan))
        self.order = cluster_order(self.nearest)
        self.is_moved = not isinstance(vectors, Embeddings)
        if not isinstance(vectors, Embeddings):
            self.vectors = vectors.reorder(self.order, runtime)
            self.nearest = in_order(self.nearest, self.order, runtime)

    def measured(self, k: int) -> tuple[IntArray, FloatArray]:
        """The k best of every list, measured in all dimensions, by the images' own numbers; cluster by cluster, as they have neighbors in common."""
        n_images, width = self.ids.shape
        neighbors: IntArray = self.runtime.empty((n_images, k), np.int32)
        similarity: FloatArray = self.runtime.empty((n_images, k), np.float32)
        cut = spans(n_images, rows_at_once(width))
        blocks = ((self.order[start:stop], self._lists(start, stop)) for start, stop in cut)
        found = self.runtime.map(measure_block, self.embeddings, blocks)
        for (start, stop), (ids, values) in zip(cut, found, strict=True):
            rows = self.order[start:stop]
            neighbors[rows], similarity[rows] = ids[:, :k], values[:, :k]
        return neighbors, similarity

    def _lists(self, start: int, stop: int) -> IntArray:
        """Of some images that follow one another cluster by cluster, the others in their lists, by their own numbers."""
        return self._named(self.ids[start:stop]) if self.is_moved else self.ids[self.order[start:stop]]

    def _named(self, ids: IntArray) -> IntArray:
        named: IntArray = np.where(ids < 0, np.int32(-1), self.order[ids])
        return named

    def run(self) -> Iterator[float]:
        """Look into clusters until the recall is reached; yields the share that is done, more or less."""
        clusters = self.plan.clusters
        for looked in self._look_into(0, clusters, self.key):
            yield looked / clusters
        reached = self._reached()
        if reached < self.recall and self.nearest.shape[1] > clusters:
            for _ in self._look_into(clusters, self.nearest.shape[1]):
                yield 1.0
            reached = self._reached()
        while reached < self.recall and self.nearest.shape[1] < len(self.plan.centroids):
            looked_into = self.nearest.shape[1]
            self.nearest = self._find_nearest(min(2 * looked_into, len(self.plan.centroids)))
            for _ in self._look_into(looked_into, self.nearest.shape[1]):
                yield 1.0
            reached = self._reached()

    def _find_nearest(self, count: int) -> IntArray:
        return nearest_clusters(self.vectors, self.plan.centroids, count, runtime=self.runtime)

    def _reached(self) -> float:
        rows, ids = self.truth.rows, self.ids
        if not self.is_moved:
            return self.truth.recall_of_lists(self.embeddings, ids[rows])
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places), dtype=np.int32)
        return self.truth.recall_of_lists(self.embeddings, self._named(ids[places[rows]]))

    def _look_into(self, first: int, last: int, key: str = "") -> Iterator[float]:
        """Every image looks into its first-th to last-th nearest clusters; yields how many of them are done.

        Lists are kept where all threads have ended, after every round and in the midst of long ones.
        """
        checkpoint = self.runtime.list_checkpoint(key)
        begun, part = checkpoint.resume(self.best, self.ids), 0
        looking = Looking(self.vectors, self.runtime.search_device)
        if self.runtime.pool is None:
            looking.product  # noqa: B018 (made once, before threads want it)
        lists, n_clusters = Lists.of(self.best, self.ids), len(self.plan.centroids)
        cut = spans(n_clusters, _CLUSTERS_PER_PART)
        for start, stop in _rounds(first, last):
            if part + len(cut) <= begun:
                part += len(cut)
                continue
            each = group_by_cluster(self.nearest, start, stop, n_clusters, self.runtime)
            search = search_homes if start == 0 else search_visits
            for low, high in cut:
                some = list(islice(each, high - low))
                part += 1
                if part <= begun:
                    continue
                for share in search(looking, some, lists, self.runtime):
                    yield start + (low + share * (high - low)) / n_clusters * (stop - start)
                checkpoint.note(part, self.best, self.ids)


def _reserve(plan: Plan) -> int:
    """How many more clusters are looked into where the plan misses the recall by little."""
    near = plan.centroids.near
    most = len(plan.centroids) if near is None else near.shape[1]
    return max(0, min(max(2, plan.clusters // 8), most - plan.clusters))


def _rounds(first: int, last: int) -> list[tuple[int, int]]:
    """first..last cut into rounds: 0..1, 1..4, 4..16, 16..48, 48..80 and so on."""
    step = _ROUNDS[-1] - _ROUNDS[-2]
    bounds = [*_ROUNDS, *range(_ROUNDS[-1] + step, last, step)]
    inside = [first, *(bound for bound in bounds if first < bound < last), last]
    return [(start, stop) for start, stop in pairwise(inside) if start < stop]

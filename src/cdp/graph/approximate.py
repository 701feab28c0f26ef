"""Approximate k-NN search: every image looks into its nearest clusters, then at the neighbors of its neighbors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from cdp.devices import find_accelerator
from cdp.graph.cluster_plan import Plan, choose_plan
from cdp.graph.clusters import group_rows, in_order, nearest_clusters
from cdp.graph.exact import exact_graph, measure_lists
from cdp.graph.neighbor_lists import best_of_rows, insert_hits
from cdp.graph.neighbor_passes import cluster_order, improve
from cdp.graph.projection import Vectors, project
from cdp.graph.recall import TrueNeighbors, find_same_identity_neighbors, find_true_neighbors
from cdp.kernels import kernel
from cdp.parallel import Workers, map_shared, spans
from cdp.progress import Progress, no_progress
from cdp.scratch import Scratch
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import AnyArray, BoolArray, FloatArray, IntArray, LongArray

# Goes up when other neighbors are found than before, so that graphs that were kept are made anew.
APPROXIMATE_VERSION = 4
# A tile stays in the processor's cache while it is looked through.
_TILE_ENTRIES = 2**17
_CHUNK = 64
# Clusters that are looked into with the same memory.
_BATCH = 8
# Nearest clusters first: lists are then nearly right, and few images of the others are better. No round has more clusters
# than the last step, so that the list of who looks into which stays small.
_ROUNDS = (1, 4, 16, 48)
# If the plan was too hopeful, passes go on while they help, and then more clusters are looked into.
_MOST_PASSES = 10
_LEAST_GAIN = 0.002
_RENUMBERED_ROWS = 8192
# Fewer neighbors of the same identity say too little about a plan.
_FEWEST_COUNTED = 200

Product: TypeAlias = Callable[[IntArray, IntArray, FloatArray | None], FloatArray]
"""From the ids of two sets of images to the table of their similarities, in memory that is given for it and for vectors, if any."""
Hits: TypeAlias = tuple[IntArray, IntArray, FloatArray]
"""Images, for each another that may belong into its list, and their similarity."""


def approximate_graph(
    embeddings: Embeddings,
    k: int,
    recall: float,
    *,
    seed: int = 0,
    threads: Workers = 0,
    device: str = "auto",
    progress: Progress = no_progress,
    step: str = "k-NN graph",
    scratch: Scratch | None = None,
    identities: LongArray | None = None,
) -> KnnGraph:
    """The k nearest neighbors of every image, but for a few; the graph's recall is measured on a sample.

    Along how many directions images are compared, how many clusters are looked into, and how many passes follow, is chosen
    beforehand as the cheapest way to the recall asked for; exact search answers if none is cheaper. Images, not threads,
    decide what is compared with what. All that grows with their number lies in `scratch`. Where `identities` are known (0 or more),
    the recall asked for is that among neighbors of the same identity.
    """
    scratch = scratch or Scratch()
    progress(step, 0, 0)
    truth = find_true_neighbors(embeddings, k, seed=seed, threads=threads, device=device)
    goal = truth
    if identities is not None:
        same = find_same_identity_neighbors(
            embeddings, k, identities, seed=seed, threads=threads, device=device
        )
        goal = same if same is not None and same.n_counted >= _FEWEST_COUNTED else truth
    # The rounding of a product depends on how many threads it has.
    with threadpool_limits(limits=1, user_api="blas"):
        vectors = project(embeddings, truth.gap, seed=seed, threads=threads, scratch=scratch)
        plan = choose_plan(embeddings, vectors, goal, recall, seed=seed, threads=threads, scratch=scratch)
    if plan is None:
        del vectors
        return exact_graph(
            embeddings, k, threads=threads, device=device, progress=progress, step=step, scratch=scratch
        )
    searching = _Search(embeddings, vectors, goal, plan, recall, threads, device, scratch)
    del vectors  # those in another order take their place
    n_images = embeddings.n_images
    for share in searching.run():
        progress(step, int(0.99 * n_images * share), n_images)
    neighbors, order = searching.lists(), searching.order
    del searching
    similarity = measure_lists(embeddings, neighbors, threads, order, scratch)
    if neighbors.shape[1] > k:
        neighbors, similarity = scratch.copy(neighbors[:, :k]), scratch.copy(similarity[:, :k])
    progress(step, n_images, n_images)
    reached = truth.recall(similarity)
    return KnnGraph(scratch.done(neighbors), scratch.done(similarity), "approximate", reached)


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
        threads: Workers,
        device: str,
        scratch: Scratch,
    ) -> None:
        self.embeddings, self.vectors, self.truth, self.plan = embeddings, vectors, truth, plan
        self.recall, self.threads, self.device, self.scratch = recall, threads, device, scratch
        # Where products are not quite those of the embeddings, more are kept than are asked for, and measured at the end.
        k = truth.neighbors.shape[1]
        self.width = (k + 1) // 2
        is_rounded = not isinstance(vectors, Embeddings) and vectors.is_rounded
        keep = min(k + (k + 1) // 2, embeddings.n_images - 1) if is_rounded else k
        self.best = scratch.full((embeddings.n_images, keep), -np.inf, np.float32)
        self.ids = scratch.full((embeddings.n_images, keep), -1, np.int32)
        self.nearest = self._find_nearest(plan.clusters)
        self.order = cluster_order(self.nearest)
        self.is_moved = not isinstance(vectors, Embeddings)
        if not isinstance(vectors, Embeddings):
            self.vectors = vectors.reorder(self.order, scratch)
            self.nearest = in_order(self.nearest, self.order, scratch)

    def lists(self) -> IntArray:
        """Of every image the others in its list, by their own numbers."""
        if not self.is_moved:
            return self.ids
        ids: IntArray = self.scratch.empty(self.ids.shape, np.int32)
        for start, stop in spans(len(ids), _RENUMBERED_ROWS):
            ids[self.order[start:stop]] = self._named(self.ids[start:stop])
        return ids

    def _named(self, ids: IntArray) -> IntArray:
        named: IntArray = np.where(ids < 0, np.int32(-1), self.order[ids])
        return named

    def run(self) -> Iterator[float]:
        """Look into clusters, then pass, until the recall is reached; yields the share that is done, more or less."""
        clusters, passes = self.plan.clusters, self.plan.passes
        for looked in self._look_into(0, clusters):
            yield looked / (clusters + 8 * passes)
        fresh, reached = None, self._reached()
        for number in range(_MOST_PASSES):
            if reached >= self.recall:
                break
            fresh = self._filled() if fresh is None else fresh
            self.best, self.ids, fresh = improve(
                self.vectors,
                self.best,
                self.ids,
                fresh,
                self.nearest,
                self.width,
                self.threads,
                self.scratch,
            )
            yield min(1.0, (clusters + 8 * (number + 1)) / (clusters + 8 * passes))
            before, reached = reached, self._reached()
            if reached < self.recall and reached - before < _LEAST_GAIN:
                looked_into = self.nearest.shape[1]
                wider = min(2 * looked_into, len(self.plan.centroids))
                if wider == looked_into:
                    break
                self.nearest = self._find_nearest(wider)
                for _ in self._look_into(looked_into, wider):
                    yield 1.0
                fresh, reached = None, self._reached()

    def _find_nearest(self, count: int) -> IntArray:
        return nearest_clusters(
            self.vectors, self.plan.centroids, count, threads=self.threads, scratch=self.scratch
        )

    def _filled(self) -> BoolArray:
        filled: BoolArray = self.scratch.empty(self.ids.shape, np.bool_)
        np.greater_equal(self.ids, 0, out=filled)
        return filled

    def _reached(self) -> float:
        rows, ids = self.truth.rows, self.ids
        if not self.is_moved:
            return self.truth.recall_of_lists(self.embeddings, ids[rows])
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places), dtype=np.int32)
        return self.truth.recall_of_lists(self.embeddings, self._named(ids[places[rows]]))

    def _look_into(self, first: int, last: int) -> Iterator[float]:
        """Every image looks into its first-th to last-th nearest clusters; yields how many of them are done."""
        looking = _Looking(self.vectors, self.device)
        if isinstance(self.threads, int):
            looking.product  # noqa: B018 (made once, before threads want it)
        lists = Lists(self.best, self.ids, self.best[:, -1].copy())
        for start, stop in _rounds(first, last):
            clusters = _clusters(
                self.nearest, start, stop, len(self.plan.centroids), lists.bars, self.scratch
            )
            search = search_homes if start == 0 else search_visits
            for share in search(looking, clusters, lists, self.threads):
                yield start + share * (stop - start)


def _rounds(first: int, last: int) -> list[tuple[int, int]]:
    """first..last cut into rounds: 0..1, 1..4, 4..16, 16..48, 48..80 and so on."""
    step = _ROUNDS[-1] - _ROUNDS[-2]
    bounds = [*_ROUNDS, *range(_ROUNDS[-1] + step, last, step)]
    inside = [first, *(bound for bound in bounds if first < bound < last), last]
    return list(pairwise(inside))


@dataclass(frozen=True, eq=False)
class Lists:
    """The best of every image as they grow: similarities and ids (n, keep), best first, and the last similarity of each (n,)."""

    best: FloatArray
    ids: IntArray
    bars: FloatArray


@dataclass(frozen=True, eq=False)
class _Looking:
    """What is compared, and where."""

    vectors: Vectors
    device: str

    @cached_property
    def product(self) -> Product:
        """From the ids of two sets of images to the table of their similarities."""
        accelerator = find_accelerator(self.device)
        if accelerator is not None:
            from cdp.graph.tiles_torch import make_product

            return make_product(self.vectors, accelerator)
        return partial(_multiply, self.vectors)


@dataclass(frozen=True, eq=False)
class _Cluster:
    """A cluster: the images at home in it, those that look into it, and the least similarity that counts for each."""

    gallery: IntArray
    visitors: IntArray
    gallery_bars: FloatArray
    visitor_bars: FloatArray


def _clusters(
    nearest: IntArray, first: int, last: int, n_clusters: int, bars: FloatArray, scratch: Scratch
) -> tuple[int, Iterator[_Cluster]]:
    """How many clusters there are, and each when its turn comes.

    A bar that is out of date lets too many pass, never too few; lists take what is better than their last one at the time.
    """
    home, home_bounds = group_rows(nearest[:, :1], n_clusters, scratch)
    visits, visit_bounds = home, np.zeros_like(home_bounds)
    if first > 0:
        visits, visit_bounds = group_rows(nearest[:, first:last], n_clusters, scratch)

    def clusters() -> Iterator[_Cluster]:
        for number in range(n_clusters):
            gallery = home[home_bounds[number] : home_bounds[number + 1]]
            visitors = visits[visit_bounds[number] : visit_bounds[number + 1]]
            yield _Cluster(gallery, visitors, bars[gallery], bars[visitors])

    return n_clusters, clusters()


def search_homes(
    looking: _Looking, clusters: tuple[int, Iterator[_Cluster]], lists: Lists, threads: Workers
) -> Iterator[float]:
    """Fill the lists, which are empty, with the best of every image's own cluster; yields the share that is done."""
    n_clusters, each = clusters
    for done, (images, similarity, others) in enumerate(
        map_shared(_look_at_home, (looking, lists.best.shape[1]), each, threads), 1
    ):
        lists.best[images], lists.ids[images], lists.bars[images] = similarity, others, similarity[:, -1]
        yield done / n_clusters


def _look_at_home(shared: tuple[_Looking, int], cluster: _Cluster) -> tuple[IntArray, FloatArray, IntArray]:
    looking, keep = shared
    images = cluster.gallery
    return images, *best_of_rows(looking.product(images, images, None), images, keep)


def search_visits(
    looking: _Looking, clusters: tuple[int, Iterator[_Cluster]], lists: Lists, threads: Workers
) -> Iterator[float]:
    """Compare every image with those at home in the clusters that it looks into, for the lists of both.

    Yields the share of clusters that are done.
    """
    n_clusters, each = clusters
    batches = iter(lambda: list(islice(each, _BATCH)), [])
    for done, found in enumerate(map_shared(_look_into, looking, batches, threads), 1):
        for hits in found:
            insert_hits(*hits, lists.best, lists.ids, lists.bars)
        yield min(1.0, done * _BATCH / n_clusters)


def _look_into(looking: _Looking, clusters: list[_Cluster]) -> list[Hits]:
    """What may belong into the lists of some clusters' images and their visitors."""
    clusters = [cluster for cluster in clusters if len(cluster.gallery) and len(cluster.visitors)]
    largest = max((len(cluster.gallery) for cluster in clusters), default=0)
    n_visitors = max((_per_tile(cluster) for cluster in clusters), default=0)
    # Once for all tiles: memory that is new each time takes longer to get than to fill.
    n_entries = max(largest, _TILE_ENTRIES)
    memory = np.empty(n_entries + n_visitors * looking.vectors.dimensions, np.float32)
    found, values = np.empty((2, 2 * n_entries), np.int32), np.empty(2 * n_entries, np.float32)
    words, hits = np.zeros(_CHUNK // 8, np.uint64), []
    working = (found, values, words, words.view(np.uint8))
    for cluster in clusters:
        for start, stop in spans(len(cluster.visitors), _per_tile(cluster)):
            visitors, bars = cluster.visitors[start:stop], cluster.visitor_bars[start:stop]
            # The images at home are the rows: products of few rows and many columns take less time than the reverse.
            tile = looking.product(cluster.gallery, visitors, memory)
            n_hits = _find_hits(tile, cluster.gallery, cluster.gallery_bars, visitors, bars, *working)
            hits.append((found[0, :n_hits].copy(), found[1, :n_hits].copy(), values[:n_hits].copy()))
    return hits


def _per_tile(cluster: _Cluster) -> int:
    """How many visitors a tile has."""
    return min(len(cluster.visitors), max(1, _TILE_ENTRIES // len(cluster.gallery)))


@kernel
def _find_hits(
    tile: FloatArray,
    rows: IntArray,
    row_bars: FloatArray,
    columns: IntArray,
    column_bars: FloatArray,
    found: IntArray,
    values: FloatArray,
    words: AnyArray,
    is_hit: AnyArray,
) -> int:
    """Write down pairs of a tile that are good enough for the list of one of the two, and return how many they are.

    `found` gets the image whose list it is and the other, `values` their similarity; `is_hit` are the bytes of the `words`.
    """
    n_hits = 0
    width = len(columns)
    for row in range(len(rows)):
        image = rows[row]
        bar = row_bars[row]
        line = tile[row]
        for start in range(0, width, _CHUNK):
            if start + _CHUNK <= width:
                # A loop without branches, so that the processor compares many at a time; mostly none is good enough. What is
                # found is cast to 32 bits each time, because the compiler would make 64 of them, of which half as many fit.
                hits = np.int32(0)
                some = line[start : start + _CHUNK]
                bars = column_bars[start : start + _CHUNK]
                for column in range(_CHUNK):
                    good = np.int32(np.int32(some[column] >= bar) | np.int32(some[column] >= bars[column]))
                    hits = np.int32(hits | good)
                if hits == 0:
                    continue
            stop = min(start + _CHUNK, width)
            for column in range(start, stop):
                is_hit[column - start] = np.uint8(line[column] >= bar) | np.uint8(
                    line[column] >= column_bars[column]
                )
            for word in range(len(words)):
                if words[word] == 0:
                    continue
                for column in range(start + 8 * word, min(start + 8 * word + 8, stop)):
                    value = line[column]
                    if value >= bar:
                        found[0, n_hits], found[1, n_hits], values[n_hits] = image, columns[column], value
                        n_hits += 1
                    if value >= column_bars[column]:
                        found[0, n_hits], found[1, n_hits], values[n_hits] = columns[column], image, value
                        n_hits += 1
    return n_hits


def _multiply(vectors: Vectors, rows: IntArray, columns: IntArray, memory: FloatArray | None) -> FloatArray:
    if memory is None:
        return _vectors_of(vectors, rows) @ _vectors_of(vectors, columns).T
    n_entries = len(rows) * len(columns)
    tile = memory[:n_entries].reshape(len(rows), len(columns))
    gathered = memory[n_entries : n_entries + len(columns) * vectors.dimensions]
    others = vectors.take(columns, gathered.reshape(len(columns), -1))
    return np.matmul(_vectors_of(vectors, rows), others.T, out=tile)


def _vectors_of(vectors: Vectors, images: IntArray) -> FloatArray:
    """Of some images; those of one cluster lie together and need no copy."""
    if len(images) and images[-1] - images[0] + 1 == len(images):
        return vectors.block(int(images[0]), int(images[-1]) + 1)
    return vectors.take(images)

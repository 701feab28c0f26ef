"""Approximate k-NN search: every image looks into its nearest clusters, then at the neighbors of its neighbors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from cdp.devices import find_accelerator
from cdp.graph.cluster_plan import CLUSTER_SIZE, choose_plan
from cdp.graph.clusters import find_centroids, group, nearest_clusters
from cdp.graph.exact import exact_graph, measure_lists
from cdp.graph.neighbor_lists import insert_hits
from cdp.graph.neighbor_passes import improve
from cdp.graph.recall import find_true_neighbors
from cdp.kernels import kernel
from cdp.parallel import Workers, map_shared, spans
from cdp.progress import Progress, no_progress
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import FloatArray, IntArray

_TILE_ENTRIES = 2**20
_CHUNK = 64
# If the plan was too hopeful, passes go on while they help, and then more clusters are looked into.
_MOST_PASSES = 10
_LEAST_GAIN = 0.002
_ROUNDING = 1e-6

Product: TypeAlias = Callable[[IntArray, IntArray], FloatArray]
"""From the ids of two sets of images to the table of their similarities."""
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
) -> KnnGraph:
    """The k nearest neighbors of every image, but for a few; the graph's recall is measured on a sample.

    How many clusters are looked into, and how many passes follow, is chosen beforehand as the cheapest way to the recall
    asked for; exact search answers if none is cheaper. Images, not threads, decide what is compared with what.
    """
    progress(step, 0, 0)
    n_images = embeddings.n_images
    truth = find_true_neighbors(embeddings, k, seed=seed, threads=threads, device=device)
    # The rounding of a product depends on how many threads it has.
    with threadpool_limits(limits=1, user_api="blas"):
        centroids = find_centroids(embeddings, max(1, n_images // CLUSTER_SIZE), seed=seed, threads=threads)
        plan = choose_plan(embeddings, truth, centroids, recall, threads=threads)
    if plan is None:
        return exact_graph(embeddings, k, threads=threads, device=device, progress=progress, step=step)
    nearest = nearest_clusters(embeddings, centroids, plan.clusters, threads=threads)
    best = np.full((n_images, k), -np.inf, np.float32)
    ids = np.full((n_images, k), -1, np.int32)

    def look_into(first: int, last: int) -> None:
        shared = _Looking(embeddings, device, nearest, first, last)
        for done in _search_clusters(shared, len(centroids), best, ids, threads):
            progress(step, int(n_images * (first + done * (last - first)) / (last + plan.passes)), n_images)

    look_into(0, 1)  # its own cluster first: the list is then full, and few images of the others are better
    look_into(1, plan.clusters)
    fresh = ids >= 0
    reached = truth.recall(best, _ROUNDING)
    for _ in range(_MOST_PASSES):
        if reached >= recall:
            break
        best, ids, fresh = improve(embeddings, best, ids, fresh, nearest, threads)
        before, reached = reached, truth.recall(best, _ROUNDING)
        if reached < recall and reached - before < _LEAST_GAIN:
            looked = nearest.shape[1]
            nearest = nearest_clusters(embeddings, centroids, 2 * looked, threads=threads)
            look_into(looked, 2 * looked)
            fresh, reached = ids >= 0, truth.recall(best, _ROUNDING)
    similarity = measure_lists(embeddings, ids, threads)
    progress(step, n_images, n_images)
    return KnnGraph(ids, similarity, "approximate", truth.recall(similarity))


@dataclass(frozen=True, eq=False)
class _Looking:
    """Every image looks into its first-th to last-th nearest clusters."""

    embeddings: Embeddings
    device: str
    nearest: IntArray
    first: int
    last: int

    @cached_property
    def product(self) -> Product:
        """From the ids of two sets of images to the table of their similarities."""
        accelerator = find_accelerator(self.device)
        if accelerator is not None:
            from cdp.graph.tiles_torch import make_product

            return make_product(self.embeddings, accelerator)
        return partial(_multiply, self.embeddings)


@dataclass(frozen=True, eq=False)
class _Cluster:
    """A cluster: the images at home in it, those that look into it, and the least similarity that counts for each."""

    number: int
    gallery: IntArray
    visitors: IntArray
    gallery_bars: FloatArray
    visitor_bars: FloatArray


def _search_clusters(
    looking: _Looking, n_clusters: int, best: FloatArray, ids: IntArray, threads: Workers
) -> Iterator[float]:
    """Compare every image with the images at home in the clusters that it looks into, for the lists of both.

    Yields the share of clusters that are done. A bar that is out of date lets too many pass, never too few, and lists do not
    depend on the order in which they are filled.
    """
    nearest, first, last = looking.nearest, looking.first, looking.last
    home, home_bounds = group(np.ascontiguousarray(nearest[:, 0]), n_clusters)
    visits, visit_bounds = group(nearest[:, first:last].ravel(), n_clusters)

    def clusters() -> Iterator[_Cluster]:
        for number in range(n_clusters):
            gallery = home[home_bounds[number] : home_bounds[number + 1]]
            visitors = visits[visit_bounds[number] : visit_bounds[number + 1]] // (last - first)
            yield _Cluster(number, gallery, visitors, best[gallery, -1], best[visitors, -1])

    if isinstance(threads, int):
        looking.product  # noqa: B018 (made once, before threads want it)
    for done, found in enumerate(map_shared(_look_into, looking, clusters(), threads), 1):
        for hits in found:
            insert_hits(*hits, best, ids, first > 1)
        yield done / n_clusters


def _look_into(looking: _Looking, cluster: _Cluster) -> list[Hits]:
    """What may belong into the lists of a cluster's images and its visitors."""
    if len(cluster.gallery) == 0:
        return []
    return [
        _find_hits(
            looking.product(cluster.visitors[start:stop], cluster.gallery),
            cluster.visitors[start:stop],
            cluster.visitor_bars[start:stop],
            cluster.gallery,
            cluster.gallery_bars,
            cluster.number,
            looking.nearest,
            looking.first,
            looking.last,
        )
        for start, stop in spans(len(cluster.visitors), max(1, _TILE_ENTRIES // len(cluster.gallery)))
    ]


@kernel
def _find_hits(
    tile: FloatArray,
    queries: IntArray,
    query_bars: FloatArray,
    gallery: IntArray,
    bars: FloatArray,
    cluster: int,
    nearest: IntArray,
    first: int,
    last: int,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs of a tile that are good enough for the list of one of the two; each pair of images occurs in one tile only."""
    width = len(gallery)
    rows = np.empty(2 * tile.size, np.int32)
    images = np.empty(2 * tile.size, np.int32)
    values = np.empty(2 * tile.size, np.float32)
    n_hits = 0
    for query in range(len(queries)):
        image = queries[query]
        bar = query_bars[query]
        line = tile[query]
        for start in range(0, width, _CHUNK):
            if start + _CHUNK <= width:
                chunk = line[start : start + _CHUNK]
                others = bars[start : start + _CHUNK]
                hits = np.int32(0)
                for column in range(_CHUNK):
                    hits |= np.int32(chunk[column] >= bar) | np.int32(chunk[column] >= others[column])
                if hits == 0:
                    continue
            for column in range(start, min(start + _CHUNK, width)):
                value = line[column]
                if value < bar and value < bars[column]:
                    continue
                other = gallery[column]
                if _is_elsewhere(image, other, cluster, nearest, first, last):
                    continue
                if value >= bar:
                    rows[n_hits], images[n_hits], values[n_hits] = image, other, value
                    n_hits += 1
                if value >= bars[column]:
                    rows[n_hits], images[n_hits], values[n_hits] = other, image, value
                    n_hits += 1
    # Copies: a view of the few that were found would keep the memory of all that might have been.
    return rows[:n_hits].copy(), images[:n_hits].copy(), values[:n_hits].copy()


@kernel
def _is_elsewhere(image: int, other: int, cluster: int, nearest: IntArray, first: int, last: int) -> bool:
    """Whether a pair is left to another tile: `other` looks into the cluster of `image` as well, and did so or will.

    `cluster` is that of `other`; inside it, the image with the lower id counts as the one that looks.
    """
    home = nearest[image, 0]
    if home == cluster:
        return image >= other
    return home in nearest[other, : first if home > cluster else last]


def _multiply(embeddings: Embeddings, queries: IntArray, gallery: IntArray) -> FloatArray:
    tile: FloatArray = embeddings.take(queries) @ embeddings.take(gallery).T
    return tile

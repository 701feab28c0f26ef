"""Images compared with those at home in the clusters that they look into, for the lists of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from cdp.blocks import spans
from cdp.knn.ivf import group_rows
from cdp.knn.panels import find_hits, pack_panels, pad_bars
from cdp.knn.pca import Projected, Vectors
from cdp.knn.topk import best_of_rows, find_hits_of_tile, insert_hits
from cdp.runtime.devices import find_accelerator
from cdp.runtime.parallel import map_blocks
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import ByteArray, FloatArray, IntArray

# Pairs that are compared before what was found is handed over.
_MOST_PAIRS = 2**17
# Clusters that are looked into with the same memory.
_BATCH = 8

Product: TypeAlias = Callable[[IntArray, IntArray], FloatArray]
"""From the ids of two sets of images to the table of their similarities."""
Hits: TypeAlias = IntArray
"""Three rows: images, for each another that may belong into its list, and the bits of their similarity."""


@dataclass(frozen=True, eq=False)
class Lists:
    """The best of every image as they grow: similarities and ids (n, keep), best first; the last similarity and a lock of each (n,)."""

    best: FloatArray
    ids: IntArray
    bars: FloatArray
    locks: ByteArray

    @classmethod
    def of(cls, best: FloatArray, ids: IntArray) -> Lists:
        """Lists that may be filled to some extent."""
        return cls(best, ids, best[:, -1].copy(), np.zeros(len(best), np.uint8))

    def insert(self, hits: Hits) -> None:
        """Put hits into the lists; several threads may at once."""
        values = hits[2].view(np.float32)
        insert_hits(hits[0], hits[1], values, self.best, self.ids, self.bars, self.locks)


@dataclass(frozen=True, eq=False)
class Looking:
    """What is compared, and where."""

    vectors: Vectors
    device: str

    @cached_property
    def product(self) -> Product | None:
        """How similarities are computed on a GPU; None where there is none."""
        accelerator = find_accelerator(self.device)
        if accelerator is None:
            return None
        from cdp.knn.gpu import make_product

        return make_product(self.vectors, accelerator)


@dataclass(frozen=True, eq=False)
class Cluster:
    """The images at home in a cluster, and those that look into it."""

    gallery: IntArray
    visitors: IntArray


def group_by_cluster(
    nearest: IntArray, first: int, last: int, n_clusters: int, runtime: Runtime
) -> Iterator[Cluster]:
    """Every cluster, with those that look into it as their first-th to last-th nearest."""
    home, home_bounds = group_rows(nearest[:, :1], n_clusters, runtime)
    visits, visit_bounds = home, np.zeros_like(home_bounds)
    if first > 0:
        visits, visit_bounds = group_rows(nearest[:, first:last], n_clusters, runtime)

    for number in range(n_clusters):
        gallery = home[home_bounds[number] : home_bounds[number + 1]]
        visitors = visits[visit_bounds[number] : visit_bounds[number + 1]]
        yield Cluster(gallery, visitors)


@dataclass(frozen=True, eq=False)
class Bars:
    """The least similarity that counts for the images of a cluster and its visitors.

    Bars that are out of date let too many pass, never too few; lists take what is better than their last one at the time.
    """

    gallery: FloatArray
    visitors: FloatArray

    @classmethod
    def of(cls, lists: Lists, cluster: Cluster) -> Bars:
        """As they are now."""
        return cls(lists.bars[cluster.gallery], lists.bars[cluster.visitors])


def search_homes(
    looking: Looking, clusters: Sequence[Cluster], lists: Lists, runtime: Runtime
) -> Iterator[float]:
    """Fill the lists, which are empty, with the best of every image's own cluster; yields the share that is done."""
    shared = looking, lists.best.shape[1]
    for done, found in enumerate(runtime.map(_look_at_homes, shared, _batches(clusters)), 1):
        for images, similarity, others in found:
            rows = _as_slice(images)
            lists.best[rows], lists.ids[rows], lists.bars[rows] = similarity, others, similarity[:, -1]
        yield min(1.0, done * _BATCH / len(clusters))


def _batches(clusters: Sequence[Cluster]) -> Iterator[Sequence[Cluster]]:
    return (clusters[start:stop] for start, stop in spans(len(clusters), _BATCH))


def _look_at_homes(
    shared: tuple[Looking, int], clusters: Sequence[Cluster]
) -> list[tuple[IntArray, FloatArray, IntArray]]:
    """The lists of the images at home in some clusters."""
    looking, keep = shared
    found = []
    for images in (cluster.gallery for cluster in clusters):
        if looking.product is None:
            rows = _vectors_of(looking.vectors, images)
            tile = rows @ rows.T
        else:
            tile = looking.product(images, images)
        found.append((images, *best_of_rows(tile, images, keep)))
    return found


def search_visits(
    looking: Looking, clusters: Sequence[Cluster], lists: Lists, runtime: Runtime
) -> Iterator[float]:
    """Compare every image with those at home in the clusters that it looks into, for the lists of both.

    Yields the share of clusters that are done.
    """
    used = [cluster for cluster in clusters if len(cluster.gallery) and len(cluster.visitors)]
    if runtime.pool is None:
        inserted = runtime.map(_look_and_insert, (looking, lists), _batches(used))
    else:
        with_bars = ([(cluster, Bars.of(lists, cluster)) for cluster in batch] for batch in _batches(used))
        inserted = map_blocks(lists.insert, runtime.map(_look_into, looking, with_bars))
    for done, _ in enumerate(inserted, 1):
        yield min(1.0, done * _BATCH / len(used))


def _look_and_insert(shared: tuple[Looking, Lists], clusters: Sequence[Cluster]) -> None:
    """Put what is found into the lists at once: bars of the next cluster are then higher, and less is found for nothing."""
    looking, lists = shared
    found = _memory_for(clusters)
    for cluster in clusters:
        for n_hits in _find(looking, cluster, Bars.of(lists, cluster), found):
            lists.insert(found[:, :n_hits])


def _look_into(looking: Looking, clusters: list[tuple[Cluster, Bars]]) -> Hits:
    """What may belong into the lists of some clusters' images and their visitors, as one array that is sent at once."""
    found = _memory_for([cluster for cluster, _ in clusters])
    hits = [
        found[:, :n_hits].copy()
        for cluster, bars in clusters
        for n_hits in _find(looking, cluster, bars, found)
    ]
    return np.concatenate(hits, axis=1)


def _memory_for(clusters: Sequence[Cluster]) -> Hits:
    """As much as any of them needs, once for all: memory that is new each time takes longer to get than to fill."""
    most = max(_per_turn(cluster) * len(cluster.gallery) for cluster in clusters)
    return np.empty((3, 2 * most), np.int32)


def _find(looking: Looking, cluster: Cluster, bars: Bars, found: Hits) -> Iterator[int]:
    """Write down what some visitors after others may have in common with the cluster; yields how much that is."""
    find = _find_on_cpu if looking.product is None else _find_on_gpu
    return find(looking, cluster, bars, found)


def _find_on_cpu(looking: Looking, cluster: Cluster, bars: Bars, found: Hits) -> Iterator[int]:
    vectors = looking.vectors
    panels, gallery_bars = pack_panels(_vectors_of(vectors, cluster.gallery)), pad_bars(bars.gallery)
    for start, stop in spans(len(cluster.visitors), _per_turn(cluster)):
        visitors = cluster.visitors[start:stop]
        if isinstance(vectors, Projected):
            source, rows = vectors.source, visitors
        else:
            source, rows = vectors.take(visitors), np.arange(len(visitors), dtype=np.int32)
        given = (source, rows, visitors, bars.visitors[start:stop], panels)
        yield find_hits(*given, cluster.gallery, gallery_bars, found)


def _find_on_gpu(looking: Looking, cluster: Cluster, bars: Bars, found: Hits) -> Iterator[int]:
    """By tables of similarities that are computed on a GPU."""
    assert looking.product is not None
    for start, stop in spans(len(cluster.visitors), _per_turn(cluster)):
        visitors = cluster.visitors[start:stop]
        tile = looking.product(visitors, cluster.gallery)
        given = (tile, visitors, bars.visitors[start:stop], cluster.gallery, bars.gallery)
        yield find_hits_of_tile(*given, found)


def _per_turn(cluster: Cluster) -> int:
    """How many visitors are compared at a time."""
    return min(len(cluster.visitors), max(1, _MOST_PAIRS // len(cluster.gallery)))


def _vectors_of(vectors: Vectors, images: IntArray) -> FloatArray:
    rows = _as_slice(images)
    return vectors.block(rows.start, rows.stop) if isinstance(rows, slice) else vectors.take(images)


def _as_slice(images: IntArray) -> slice | IntArray:
    """Ascending ids as a slice where they lie together, as those of one cluster do: then nothing needs to be gathered."""
    if len(images) and images[-1] - images[0] + 1 == len(images):
        return slice(int(images[0]), int(images[-1]) + 1)
    return images

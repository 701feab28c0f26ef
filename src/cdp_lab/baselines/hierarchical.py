"""Hierarchical clustering: groups are merged, the most similar two first, until none are similar enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Literal, NamedTuple

import numpy as np

from cdp.blocks import spans
from cdp.grouping.union_find import find_root
from cdp.runtime.kernels import kernel
from cdp.runtime.memory import parse_bytes
from cdp.runtime.parallel import on_one_thread
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray, DoubleArray, FloatArray, IntArray
from cdp_lab.baselines.baseline import Baseline, components, cosine_setting, labels_of, links_of

# Bytes per image squared, half a matrix counted: float64 values, SciPy's copy of them where it makes one, a
# mask.
_BYTES = {"average": 9, "single": 5}
_ROWS_PER_BLOCK = 256


@dataclass(frozen=True)
class Hierarchical(Baseline):
    """Agglomerative clustering by cosine similarity, cut where groups are less similar than `similarity`.

    Exact (SciPy, on all pairs) while the pairs fit the budget. Beyond it only groups joined by a link of the
    k-NN graph may merge. Their average similarity is exact even then: the mean cosine between two groups of
    unit vectors is the product of their sums, over the product of their sizes. So a complete graph gives the
    same groups as all pairs.
    """

    similarity: float = cosine_setting("Merge while the two most similar groups are at least this similar.")
    linkage: Literal["average", "single"] = setting(
        "average", "Similarity of two groups: the mean over their pairs, or the best pair."
    )
    memory_budget: int | str = "1GB"

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_bytes(self.memory_budget)

    @property
    def name(self) -> str:
        """`hierarchical_average` or `hierarchical_single`."""
        return f"hierarchical_{self.linkage}"

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Return the groups at `similarity`."""
        return _cut(self._merges(embeddings, graph, self.similarity), self.similarity, embeddings.n_images)

    def label_each(
        self, embeddings: Embeddings, graph: KnnGraph | None, settings: Sequence[Mapping[str, Any]]
    ) -> Iterator[Labels]:
        """One tree of merges, cut at every similarity asked for."""
        if any(set(each) != {"similarity"} for each in settings):
            yield from super().label_each(embeddings, graph, settings)
            return
        thresholds = [Hierarchical(**each).similarity for each in settings]
        merges = self._merges(embeddings, graph, min(thresholds, default=1.0))
        for threshold in thresholds:
            yield _cut(merges, threshold, embeddings.n_images)

    def fits(self, n_images: int) -> bool:
        """Return whether all pairs of a number of images fit the budget."""
        return _BYTES[self.linkage] * n_images**2 <= parse_bytes(self.memory_budget)

    def _merges(self, embeddings: Embeddings, graph: KnnGraph | None, floor: float) -> _Merges:
        if embeddings.n_images < 2:
            return _Merges(*(np.empty(0, np.int32),) * 2, np.empty(0))
        if self.fits(embeddings.n_images):
            return _merge_all_pairs(embeddings, self.linkage)
        links = links_of(self.graph_of(embeddings, graph))
        if self.linkage == "single":
            order = np.argsort(-links.similarity, kind="stable")
            return _Merges(links.first[order], links.second[order], links.similarity[order])
        matrix = links.rows()
        return _Merges(
            *_merge_by_average(embeddings.vectors, matrix.indptr, matrix.indices, matrix.data, floor)
        )


class _Merges(NamedTuple):
    """Merges in the order they happen: one image of either group, and the groups' similarity."""

    first: IntArray
    second: IntArray
    similarity: FloatArray | DoubleArray


def _cut(merges: _Merges, threshold: float, n_images: int) -> Labels:
    """Return the groups when, for the first time, the best merge is below the threshold."""
    below = merges.similarity < np.float32(threshold) - 1e-6  # the precision of float32 embeddings
    done = int(np.argmax(below)) if below.any() else len(below)
    return labels_of(components(merges.first[:done], merges.second[:done], n_images))


def _merge_all_pairs(embeddings: Embeddings, linkage: Literal["average", "single"]) -> _Merges:
    from scipy.cluster.hierarchy import linkage as tree_of

    n_images = embeddings.n_images
    pairs = _one_minus_cosines(embeddings.vectors)
    tree = tree_of(pairs, linkage)
    image_in = np.concatenate([np.arange(n_images), np.zeros(n_images - 1, np.int64)])
    children = tree[:, :2].astype(np.int64)
    for step, child in enumerate(children[:, 0]):
        image_in[n_images + step] = image_in[child]
    ends = image_in[children].astype(np.int32)
    return _Merges(ends[:, 0], ends[:, 1], 1 - tree[:, 2])


def _one_minus_cosines(vectors: FloatArray) -> DoubleArray:
    """1 - cosine of every pair, rows of the upper triangle one after the other, as SciPy wants them."""
    n_images = len(vectors)
    condensed = np.empty(n_images * (n_images - 1) // 2)
    filled = 0
    with on_one_thread("blas"):
        for start, stop in spans(n_images, _ROWS_PER_BLOCK):
            tile = vectors[start:stop] @ vectors[start:].T
            for row in range(stop - start):
                values = tile[row, row + 1 :]
                condensed[filled : filled + len(values)] = values
                filled += len(values)
    np.subtract(1, condensed, out=condensed)
    # Copies of an image may come out a rounding below zero, which SciPy would sort before everything.
    return np.maximum(condensed, 0, out=condensed)


@kernel
def _merge_by_average(
    vectors: AnyArray, starts: AnyArray, others: AnyArray, similarity: AnyArray, floor: float
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Best-first merging of linked groups by their mean similarity, down to `floor`.

    A merged group gets a new number, so an entry of the heap is out of date exactly if one of its groups is
    gone. `sums` (one row per group, that of one of its images) gives every mean exactly.
    """
    n_images, dimensions = vectors.shape
    sums = vectors.copy()
    row_of = np.arange(2 * n_images)
    size = np.ones(2 * n_images, np.int64)
    merged_into = np.arange(2 * n_images)
    seen = np.full(2 * n_images, -1)
    neighbors = [others[starts[image] : starts[image + 1]].astype(np.int64) for image in range(n_images)]
    heap = [(0.0, 0, 0) for _ in range(0)]
    for image in range(n_images):
        for entry in range(starts[image], starts[image + 1]):
            if image < others[entry] and similarity[entry] >= floor - 1e-6:
                heappush(heap, (-similarity[entry], image, np.int64(others[entry])))  # type: ignore[misc]
    first = np.empty(n_images, np.int32)
    second = np.empty(n_images, np.int32)
    at = np.empty(n_images, np.float64)
    n_merges = 0
    while len(heap) > 0:
        negative, one, two = heappop(heap)
        if merged_into[one] != one or merged_into[two] != two:
            continue
        first[n_merges], second[n_merges], at[n_merges] = row_of[one], row_of[two], -negative
        group = n_images + n_merges
        n_merges += 1
        merged_into[one] = merged_into[two] = group
        row_of[group] = row_of[one]
        size[group] = size[one] + size[two]
        for column in range(dimensions):
            sums[row_of[group], column] += sums[row_of[two], column]
        candidates = np.concatenate((neighbors[one], neighbors[two]))
        kept = 0
        for candidate in candidates:
            other = find_root(merged_into, candidate)
            if other == group or seen[other] == group:
                continue
            seen[other] = group
            candidates[kept] = other
            kept += 1
            total = 0.0
            for column in range(dimensions):
                total += np.float64(sums[row_of[group], column]) * np.float64(sums[row_of[other], column])
            mean = total / (size[group] * size[other])
            if mean >= floor - 1e-6:
                heappush(heap, (-mean, min(other, group), max(other, group)))
        neighbors.append(candidates[:kept].copy())
        neighbors[one] = neighbors[two] = np.empty(0, np.int64)
    return first[:n_merges], second[:n_merges], at[:n_merges]

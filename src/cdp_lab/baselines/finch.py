"""FINCH (Sarfraz et al., "Efficient Parameter-free Clustering Using First Neighbor Relations", 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cdp.knn.search import knn_graph
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray, IntArray, LongArray
from cdp_lab.baselines.baseline import Baseline, components, labels_of


@dataclass(frozen=True)
class Finch(Baseline):
    """First-neighbor clustering: an image is with its nearest neighbor, groups of groups likewise.

    Every image has a first neighbor, so no image is alone and nothing is discarded.
    """

    name = "finch"
    level: int = setting(
        0, "Which partition of the hierarchy, 0 = the finest; past the last, the last.", low=0
    )

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Return the partition at `level`."""
        return labels_of(self.levels(embeddings, graph, self.level + 1)[-1])

    def label_each(
        self, embeddings: Embeddings, graph: KnnGraph | None, settings: Sequence[Mapping[str, Any]]
    ) -> Iterator[Labels]:
        """One hierarchy for all levels."""
        if any(set(each) != {"level"} for each in settings):
            yield from super().label_each(embeddings, graph, settings)
            return
        wanted = [Finch(**each).level for each in settings]
        levels = self.levels(embeddings, graph, max(wanted, default=0) + 1)
        for level in wanted:
            yield labels_of(levels[min(level, len(levels) - 1)])

    def levels(
        self, embeddings: Embeddings, graph: KnnGraph | None = None, most: int | None = None
    ) -> list[IntArray]:
        """Return the hierarchy of partitions, finest first, int32 (n,) each, down to one group.

        Two images are linked if one is the other's first neighbor, or if they share their first neighbor
        (which then links them anyway: so the links i - first(i) are enough). At higher levels groups are
        compared by the mean of their unit vectors.
        It stops after `most` levels; of the graph only the first neighbors are used.
        """
        if embeddings.n_images < 2:
            return [np.zeros(embeddings.n_images, np.int32)]
        groups = _join(self.graph_of(embeddings, graph).neighbors[:, 0])
        levels = [groups]
        while most is None or len(levels) < most:
            means = Embeddings(_mean_vectors(embeddings, groups))
            if means.n_images < 2:
                break
            joined = _join(knn_graph(means, 1).neighbors[:, 0])
            if joined.max() == 0:
                break
            groups = joined[groups]
            levels.append(groups)
        return levels


def _join(first: AnyArray) -> IntArray:
    """Find the connected components of the links i - first(i); -1 = no neighbor is known."""
    linked = np.flatnonzero(first >= 0)
    return components(linked, first[linked], len(first))


def _mean_vectors(embeddings: Embeddings, groups: IntArray) -> AnyArray:
    """Return the mean unit vector of every group, or its first image where they cancel out."""
    order: LongArray = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(groups.max() + 1))
    means = np.add.reduceat(embeddings.vectors[order].astype(np.float64), starts, axis=0)
    canceled = np.flatnonzero(np.linalg.norm(means, axis=1) < 1e-6)
    means[canceled] = embeddings.take(order[starts[canceled]])
    return means

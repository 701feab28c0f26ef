"""Average linkage on a sparse graph of scored pairs: an alternative to Algorithm 1. Not in the paper.

Connected components join two groups if a single pair between them is accepted. Average linkage starts with
every image as a group of its own and repeatedly merges the two groups with the largest *mean* probability
between them, while that mean is greater than a threshold. A pair that is no candidate counts as probability
0: two images of one identity would probably be neighbors. One false pair between two groups of ten images is
one hundredth of the mean.

Where pairs are scored by similarity, the mean over all pairs follows from sums of vectors
(exact_linkage.py), and the rest of this page does not apply.

A k-NN graph cannot hold all pairs of a large group: an image in a group of s has at most k of its s - 1
pairs. The mean is therefore taken over the pairs that the graph can hold,

    mean(A, B) = sum of probabilities between A and B / max(present, |A| |B| min(1, k / (|A| + |B| - 1)))

where `present` is the number of pairs between A and B in the graph.

The best two groups are merged first, so the merges above a high threshold do not depend on how far linkage
goes below it. Linkage therefore runs in stages of falling thresholds. Above a high threshold the pairs form
many small components, which are linked in batches (components.py); the pairs between two groups then become
one link (links.py). At the lowest thresholds, where nearly all images may be connected, far fewer links are
left than pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cdp.errors import InputError
from cdp.grouping.components import Batch, group_batches
from cdp.grouping.dendrogram import Dendrogram, merge_groups
from cdp.grouping.exact_linkage import link_exactly
from cdp.grouping.links import Links, link_groups, link_images, may_lead_above, merge_best_first
from cdp.grouping.union_find import make_union_find
from cdp.runtime.runtime import Runtime
from cdp.runtime.spill import SpillFiles
from cdp.types import ConsensusGraph, Labels, SimilarityGraph
from cdp.types.arrays import DoubleArray, IntArray, read_only
from cdp.types.constraints import Constraints, leave_out

# The links of a batch of this many pairs fit the processor's cache: 1.8 s instead of 2.5 s for 2.6 million
# pairs. Measured with `python -m benchmarks.grouping_memory one_batch 300000`, compared with `tuning`.
_PAIRS_PER_BATCH = 2**14
# Thresholds that stages end at, besides the lowest: 1.8 s instead of 5.6 s for 2.6 million pairs. Measured
# with `python -m benchmarks.grouping_memory one_stage 300000`, compared with `tuning`.
_STAGE_ENDS = (0.5, 0.25)


def agglomerate(
    graph: ConsensusGraph,
    k: int,
    threshold: float = 0.3,
    max_cluster_size: int = 600,
    constraints: Constraints | None = None,
    *,
    runtime: Runtime | None = None,
) -> Labels:
    """Group images by average linkage: merge the two groups with the largest mean probability, best first.

    Deviation: the paper takes connected components (`propagate`). Here improbable pairs count too, so
    the graph should hold all candidates that are not negligible; `CDP(grouping="average")` keeps those above
    0.01.

    Equal means are ordered by the larger sum, then by the order of the pairs; only there does the result
    depend on how the images are numbered.

    For several thresholds, build the dendrogram once (`build_dendrogram`) and cut it.

    Args:
        graph: pairs and their doubts.
        k: neighbors per image in the graph that the pairs come from.
        threshold: two groups are merged while the mean probability between them is greater.
        max_cluster_size: largest number of images in a group.
        constraints: what groups must keep, free of contradictions (`check_constraints`); two groups with
            images that must be together are one.
        runtime: how it runs. Components of pairs above the threshold are tasks, as many at a time as fit the
            memory budget; under constraints all pairs are one task.

    Returns:
        Labels. An image that stays alone has the status `NO_ACCEPTED_PAIR` if none of its pairs is more
        probable than the threshold, else `ISOLATED`. The confidence is that of `propagate`, over the pairs
        above the threshold.

    Examples:
        >>> from cdp import ConsensusGraph, agglomerate
        >>> pairs = ConsensusGraph([[0, 1], [1, 2], [2, 3]], [0.1, 0.8, 0.1], n_images=4)
        >>> agglomerate(pairs, k=3, threshold=0.5).labels.tolist()
        [0, 0, 1, 1]
    """
    return build_dendrogram(graph, k, threshold, max_cluster_size, constraints, runtime=runtime).cut(
        threshold
    )


def build_dendrogram(
    graph: ConsensusGraph,
    k: int,
    lowest: float,
    max_cluster_size: int = 600,
    constraints: Constraints | None = None,
    *,
    runtime: Runtime | None = None,
) -> Dendrogram:
    """Run average linkage down to a threshold, and return all merges.

    A cut of the dendrogram at any threshold from `lowest` up is what `agglomerate` gives, bit for bit.
    Constraints decide which groups may merge, so a dendrogram holds for the constraints that it was built
    with.

    Args:
        graph: pairs and their doubts.
        k: neighbors per image in the graph that the pairs come from.
        lowest: the lowest threshold that the dendrogram will be cut at.
        max_cluster_size: largest number of images in a group.
        constraints: what groups must keep.
        runtime: how it runs.
    """
    _check_settings(k, lowest, max_cluster_size)
    runtime = runtime or Runtime()
    if isinstance(graph, SimilarityGraph):
        return _link_exactly(graph, lowest, max_cluster_size, constraints, runtime)
    ends = (*(end for end in _STAGE_ENDS if end > lowest), lowest)
    if constraints is not None:
        # Probabilities stay as scored, also of confirmed pairs: a confirmed pair between two groups must not
        # pull its two images out of them.
        graph, ends = leave_out(graph, constraints), (lowest,)
    links, group = link_images(graph, runtime), np.arange(graph.n_images, dtype=np.int32)
    merges, start = [], 1.0
    for end in ends:
        size = np.bincount(group, minlength=graph.n_images).astype(np.int32)
        merges.append(
            _find_merges(links, _Stage(k, start, end, max_cluster_size, size, constraints), runtime)
        )
        start = end
        if end > lowest:
            merge_groups(group, read_only(merges[-1].kept), read_only(merges[-1].gone))
            links = link_groups(links, group, runtime)
    return Dendrogram(graph, *_in_order(merges), lowest, constraints)


def _link_exactly(
    graph: SimilarityGraph,
    lowest: float,
    max_cluster_size: int,
    constraints: Constraints | None,
    runtime: Runtime,
) -> Dendrogram:
    """Run exact average linkage of z-scores; the height of a merge is the probability at the mean z-score."""
    linked = graph
    if constraints is not None:
        linked = leave_out(graph, constraints)
    merges = link_exactly(
        linked.ids,
        graph.vectors,
        graph.offset,
        graph.z_score_at(lowest),
        max_cluster_size,
        constraints,
        runtime=runtime,
    )
    height = graph.probability_of(merges.height)
    return Dendrogram(linked, merges.kept, merges.gone, height, lowest, constraints)


def _check_settings(k: int, threshold: float, max_cluster_size: int) -> None:
    if not 0 < threshold < 1:
        raise InputError(
            f"agglomerate(threshold={threshold}): a mean probability between 0 and 1, both excluded.",
            code="linkage-threshold-out-of-range",
            value=threshold,
        )
    if max_cluster_size < 2:
        raise InputError(
            f"agglomerate(max_cluster_size={max_cluster_size}): a pseudo-identity has at least 2 images.",
            code="max-cluster-size-too-small",
            value=max_cluster_size,
        )
    if k < 1:
        raise InputError(
            f"agglomerate(k={k}): at least 1 neighbor per image is needed.", code="k-too-small", value=k
        )


@dataclass(frozen=True, eq=False)
class _Stage:
    """What all batches of a stage need.

    Attributes:
        k: neighbors per image.
        start: the threshold that the stage before ended at; no merge is higher.
        end: groups are merged while the mean between them is greater.
        max_cluster_size: largest number of images in a group.
        size: int32 (n,), images in every group at the start of the stage.
        constraints: what groups must keep.
    """

    k: int
    start: float
    end: float
    max_cluster_size: int
    size: IntArray
    constraints: Constraints | None


class _Merges(NamedTuple):
    """Merges in the order they are made; groups are named after an image."""

    kept: IntArray
    gone: IntArray
    height: DoubleArray


def _find_merges(links: Links, stage: _Stage, runtime: Runtime) -> _Merges:
    """Find the merges of a stage, in batches; in one under constraints, which reach across components."""
    pairs = Batch(None, links.ids, (links.total, links.present), len(stage.size))
    if stage.constraints is not None:
        return _merge_batch(stage, pairs, runtime.spill)
    found = group_batches(
        _merge_batch,
        stage,
        pairs,
        may_lead_above(stage.end, links, runtime),
        runtime=runtime,
        most_pairs=_PAIRS_PER_BATCH,
    )
    return _concatenate([merges for _, merges in found])


def _merge_batch(stage: _Stage, batch: Batch, spill: SpillFiles) -> _Merges:
    """Find the merges of one batch."""
    state = make_union_find(batch.n_images, stage.constraints)
    if stage.constraints is None:
        size = stage.size if batch.images is None else stage.size[batch.images]
        state.size[:] = size
    else:
        # Images that must be together are united in `state`; their links are still those of single images.
        size = np.ones(batch.n_images, np.int32)
    kept, gone, height = merge_best_first(
        Links(batch.ids, *batch.columns),
        size,
        state,
        stage.k,
        (stage.start, stage.end),
        stage.max_cluster_size,
        spill,
    )
    if batch.images is not None:
        kept, gone = batch.images[kept], batch.images[gone]
    return _Merges(kept, gone, height)


def _concatenate(merges: list[_Merges]) -> _Merges:
    none = _Merges(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float64))
    return _Merges(*(np.concatenate(columns) for columns in zip(none, *merges, strict=True)))


def _in_order(stages: list[_Merges]) -> _Merges:
    """Sort merges by descending height; those of one component keep their order."""
    merges = _concatenate(stages)
    order = np.argsort(-merges.height, kind="stable")
    return _Merges(merges.kept[order], merges.gone[order], merges.height[order])

"""Soft labels: one-hot labels diffused over the graph (paper, appendix, "One-hot v.s. Soft Labels")."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cdp.errors import InputError
from cdp.runtime.kernels import kernel
from cdp.scoring.adjacency import build_adjacency
from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import DoubleArray, FloatArray, IntArray, LongArray


def diffuse(graph: ConsensusGraph, labels: Labels, depth: int = 3, decay: float = 0.2) -> sparse.csr_array:
    """Compute a distribution over pseudo-identities for every labeled image.

    Where a component was split and its groups are still connected by accepted pairs, an image near the border
    gets a part of both labels. "The label vectors are diffused from each node to their neighbors in
    breadth-first manner, with two hyper-parameters depth and decay. Finally on each node, the values of
    identities are normalized."

        value(x, c) = sum over images u labeled c within `depth` steps of x of decay ** steps(x, u)

    Steps are counted on the whole graph of accepted pairs. Discarded images pass values on, but neither
    contribute nor receive any: they stay discarded.

    Args:
        graph: the accepted pairs that the labels were propagated on; for average linkage, `likely_pairs`.
        labels: the one-hot labels.
        depth: number of diffusion steps; 0 gives the one-hot labels.
        decay: factor per step, in (0, 1].

    Returns:
        float32 (n, C); rows of labeled images sum to 1, rows of discarded images are empty.
    """
    _check_settings(graph, labels, depth, decay)
    if labels.n_identities == 0:
        nothing = np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(labels.n_images + 1, np.int64)
        return sparse.csr_array(nothing, shape=(labels.n_images, 0))
    starts, neighbors, _ = build_adjacency(graph.ids, graph.n_images)
    weights = np.float64(decay) ** np.arange(int(depth) + 1)
    counts = np.zeros(labels.n_images + 1, np.int64)
    # Two passes, count then fill, so that only the result is allocated.
    _walk(
        starts,
        neighbors,
        labels.labels,
        weights,
        counts,
        True,
        np.empty(0, np.int32),
        np.empty(0, np.float32),
    )
    rows: LongArray = np.cumsum(counts)
    columns = np.empty(int(rows[-1]), np.int32)
    values = np.empty(int(rows[-1]), np.float32)
    _walk(starts, neighbors, labels.labels, weights, rows, False, columns, values)
    return sparse.csr_array((values, columns, rows), shape=(labels.n_images, labels.n_identities))


def _check_settings(graph: ConsensusGraph, labels: Labels, depth: int, decay: float) -> None:
    if graph.n_images != labels.n_images:
        raise InputError(
            f"diffuse: the graph has {graph.n_images:,} images, the labels {labels.n_images:,}.",
            code="diffuse-images-differ",
            expected=graph.n_images,
            found=labels.n_images,
        )
    if depth < 0 or int(depth) != depth:
        raise InputError(
            f"diffuse(depth={depth}): depth is a number of steps, 0 or more.",
            code="diffuse-depth-negative",
            value=depth,
        )
    if not 0 < decay <= 1:
        raise InputError(
            f"diffuse(decay={decay}): decay must be in (0, 1].",
            code="diffuse-decay-out-of-range",
            value=decay,
        )


def likely_pairs(graph: ConsensusGraph) -> ConsensusGraph:
    """Select the pairs with a probability above 1/2.

    Average linkage works on all pairs that are not negligible, most of which are improbable; diffusion along
    those would spread every label everywhere.
    """
    kept = graph.doubt < 0.5
    return ConsensusGraph(graph.ids[kept], graph.doubt[kept], graph.n_images)


@kernel
def _walk(
    starts: LongArray,
    neighbors: IntArray,
    labels: IntArray,
    weights: DoubleArray,
    rows: LongArray,
    only_count: bool,
    columns: IntArray,
    values: FloatArray,
) -> None:
    """Search breadth-first from every labeled image; count or write the labels in reach and their values."""
    n_images = len(labels)
    reached_by = np.full(n_images, -1, np.int32)
    queue = np.empty(n_images, np.int32)
    value = np.zeros(labels.max() + 1, np.float64)
    found = np.empty(len(value), np.int32)
    # `value` == 0 does not mean that a label was not found: decay ** step can underflow.
    found_by = np.full(len(value), -1, np.int32)
    for image in range(n_images):
        if labels[image] < 0:
            continue
        queue[0] = image
        reached_by[image] = image
        ready, filled, n_found = 0, 1, 0
        for step in range(len(weights)):
            level_end = filled
            while ready < level_end:
                here = queue[ready]
                ready += 1
                label = labels[here]
                if label >= 0:
                    if found_by[label] != image:
                        found_by[label] = image
                        value[label] = 0
                        found[n_found] = label
                        n_found += 1
                    value[label] += weights[step]
                if step + 1 < len(weights):
                    for other in neighbors[starts[here] : starts[here + 1]]:
                        if reached_by[other] != image:
                            reached_by[other] = image
                            queue[filled] = other
                            filled += 1
        if only_count:
            rows[image + 1] = n_found
        else:
            total = 0.0
            in_order = np.sort(found[:n_found])
            for label in in_order:
                total += value[label]
            for index in range(n_found):
                columns[rows[image] + index] = in_order[index]
                values[rows[image] + index] = value[in_order[index]] / total

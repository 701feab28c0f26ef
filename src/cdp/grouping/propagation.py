"""Propagation: from accepted pairs to pseudo-identities (paper, Algorithm 1).

The algorithm with its steps, M being `max_cluster_size`:

    1. Find the connected components of the graph, and put them into a queue.         `find_components`
    2. Take a component from the queue. If it has more than M nodes,                  `_cut`
       a. th = s_min + (1 - s_min) * Step, s_min being the lowest score of its edges,   `_worst_doubt`
       b. remove its edges with score <= th,
       c. find the connected components of the edges left, if any, and put them into the queue.
    3. Otherwise give all its nodes a new label.                                      `_label`
    4. Repeat from 2 until the queue is empty.

In terms of doubt q = 1 - score, an edge stays in 2b if  q < (1 - step) * max q. Every pass removes at least
the worst edge of the component, so the algorithm ends.

Done literally, every pass reads a large component from end to end. Instead the edges are merged once in
ascending order of doubt, as in Kruskal's algorithm (`_merge_tree`). "The component of an image among edges
with q < t" is always a subtree of the resulting tree, and the edges of a subtree are contiguous in one array,
so a pass is one scan.

Under constraints the edges are first united in ascending order of doubt, except where that would put together
two images that cannot be (`_keep_apart`). Edges between groups that stayed apart are left out, and the rest
goes through Algorithm 1. Must-link edges have a doubt below zero, so that no split removes them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.errors import InputError
from cdp.grouping.components import Batch, find_components, group_batches
from cdp.grouping.union_find import UnionFind, compress_paths, find_root, make_union_find, may_unite, unite
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.runtime.spill import SpillFiles
from cdp.types import ConsensusGraph, Labels, Status
from cdp.types.arrays import AnyArray, ByteArray, DoubleArray, FloatArray, IntArray, LongArray
from cdp.types.constraints import Constraints, confirm


def propagate(
    graph: ConsensusGraph,
    max_cluster_size: int = 600,
    step: float = 0.1,
    constraints: Constraints | None = None,
    *,
    runtime: Runtime | None = None,
) -> Labels:
    """Assign pseudo-identities by Algorithm 1: components, split while larger than `max_cluster_size`.

    Args:
        graph: the accepted pairs and their doubts.
        max_cluster_size: largest number of images in a group (the paper's M).
        step: relative increase of the threshold while a component is split, in (0, 1) (the paper's Step).
        constraints: what groups must keep, free of contradictions (`check_constraints`).
        runtime: how it runs. Components are tasks, as many at a time as fit the memory budget; under
            constraints all pairs are one task.

    Returns:
        Labels. Images without an accepted pair, images that lose all their pairs while a component is split,
        and components that lose all pairs at once (all equally doubtful) stay without a label, as in the
        paper; `status` says which. The confidence of a labeled image is the sum of the probabilities of its
        remaining pairs, divided by the largest number of such pairs of any image in the group: it is low for
        images connected by a single pair, where groups go wrong.

    Examples:
        >>> from cdp import ConsensusGraph, propagate
        >>> pairs = ConsensusGraph([[0, 1], [1, 2], [2, 3]], [0.01, 0.04, 0.01], n_images=5)
        >>> propagate(pairs).labels.tolist(), propagate(pairs, max_cluster_size=2).labels.tolist()
        ([0, 0, 0, 0, -1], [0, 0, 1, 1, -1])
    """
    if not 0 < step < 1:
        raise InputError(
            f"propagate(step={step}): step must be between 0 and 1, both excluded; the paper uses 0.1.",
            code="step-out-of-range",
            value=step,
        )
    if max_cluster_size < 2:
        raise InputError(
            f"propagate(max_cluster_size={max_cluster_size}): a pseudo-identity has at least 2 images.",
            code="max-cluster-size-too-small",
            value=max_cluster_size,
        )
    if constraints is not None and len(constraints):
        graph, doubt = _keep_apart(graph, constraints)
        group, status, keep_below = _split_components(graph, doubt, max_cluster_size, step)
    else:
        group = np.arange(graph.n_images, dtype=np.int32)
        status = np.full(graph.n_images, Status.NO_ACCEPTED_PAIR, np.uint8)
        keep_below = np.full(graph.n_images, np.inf)
        pairs = Batch(None, graph.ids, (graph.doubt,), graph.n_images)
        found = group_batches(_split_batch, (max_cluster_size, step), pairs, runtime=runtime or Runtime())
        for images, (groups, statuses, bounds) in found:
            rows = slice(None) if images is None else images
            group[rows], status[rows], keep_below[rows] = groups, statuses, bounds
    labels = number_groups(group, status)
    confidence = measure_ties(graph.ids, graph.doubt, labels, keep_below)
    return Labels(labels, status, confidence)


def _split_batch(
    settings: tuple[int, float], batch: Batch, _: SpillFiles
) -> tuple[IntArray, ByteArray, DoubleArray]:
    """Run `_split_components` on a batch; groups are named after an image in its original number."""
    graph = ConsensusGraph(batch.ids, batch.columns[0], batch.n_images)
    group, status, keep_below = _split_components(graph, graph.doubt, *settings)
    return group if batch.images is None else batch.images[group], status, keep_below


def _split_components(
    graph: ConsensusGraph, doubt: AnyArray, max_cluster_size: int, step: float
) -> tuple[IntArray, ByteArray, DoubleArray]:
    """Run Algorithm 1.

    Returns:
        For every image: its group, named after one of its images; its status; and the doubt that the edges of
        its group are below.
    """
    group = find_components(graph.ids, graph.n_images)
    size = np.bincount(group, minlength=graph.n_images)[group]
    status = np.where(size > 1, Status.LABELED, Status.NO_ACCEPTED_PAIR).astype(np.uint8)
    keep_below = np.full(graph.n_images, np.inf)
    if size.max(initial=0) > max_cluster_size:
        _split(
            graph,
            doubt,
            np.flatnonzero(size > max_cluster_size),
            max_cluster_size,
            step,
            group,
            status,
            keep_below,
        )
    return group, status, keep_below


def _keep_apart(graph: ConsensusGraph, constraints: Constraints) -> tuple[ConsensusGraph, DoubleArray]:
    """Return the edges that the constraints allow, and their doubts, below zero for must-links."""
    corrected = confirm(graph, constraints)
    state = make_union_find(graph.n_images, constraints)
    must = state.parent.copy()
    compress_paths(must)
    is_certain = must[corrected.ids[:, 0]] == must[corrected.ids[:, 1]]
    doubt = np.where(is_certain, -1.0, corrected.doubt.astype(np.float64))
    _join_apart(corrected.ids[np.argsort(doubt, kind="stable")], state)
    kept = state.parent[corrected.ids[:, 0]] == state.parent[corrected.ids[:, 1]]
    return ConsensusGraph(corrected.ids[kept], corrected.doubt[kept], graph.n_images), doubt[kept]


@kernel
def _join_apart(ends: IntArray, state: UnionFind) -> None:
    """Unite the ends of edges in order, except where the constraints forbid it."""
    for row in range(len(ends)):
        if may_unite(state, ends[row, 0], ends[row, 1], len(state.parent)):
            unite(state, ends[row, 0], ends[row, 1])
    compress_paths(state.parent)


def _split(
    graph: ConsensusGraph,
    doubts: AnyArray,
    images: LongArray,
    max_cluster_size: int,
    step: float,
    group: IntArray,
    status: ByteArray,
    keep_below: DoubleArray,
) -> None:
    """Split the components of these images, all too large; write the images' group, status and threshold."""
    local = np.full(graph.n_images, -1, np.int32)
    local[images] = np.arange(len(images), dtype=np.int32)
    edges = np.flatnonzero(local[graph.ids[:, 0]] >= 0)
    if len(edges) == len(graph):
        edges, doubt = _sort_by_doubt(doubts)
    else:
        order, doubt = _sort_by_doubt(doubts[edges])
        edges = edges[order]
    # Both ids of a pair are moved as one 64-bit number, which is three times as fast.
    pairs = np.ascontiguousarray(graph.ids).view(np.int64).ravel()[edges].view(np.int32).reshape(-1, 2)
    tree = _merge_tree(pairs, local, doubt, len(images))
    local_group = np.full(len(images), -1, np.int32)
    local_status = np.full(len(images), Status.UNSPLITTABLE, np.uint8)
    local_below = np.zeros(len(images))
    _cut(tree, doubt, len(images), max_cluster_size, step, local_group, local_status, local_below)
    group[images] = np.where(local_group >= 0, images[np.maximum(local_group, 0)], images)
    status[images], keep_below[images] = local_status, local_below


def _sort_by_doubt(doubt: AnyArray) -> tuple[LongArray, AnyArray]:
    """Return the order of doubt, and the sorted doubts; NumPy sorts five times as fast as it argsorts."""
    if doubt.dtype != np.float32 or len(doubt) >= 2**32:
        order = np.argsort(doubt)
        return order, doubt[order]
    # Floats >= 0 sort like their bits (adding 0 turns -0.0 into 0.0), so bits and row fit one number.
    bits = (doubt + np.float32(0)).view(np.uint32)
    packed = bits.astype(np.uint64) << 32
    packed |= np.arange(len(doubt), dtype=np.uint64)
    packed.sort()
    in_order = (packed >> 32).astype(np.uint32).view(np.float32)
    packed &= np.uint64(2**32 - 1)
    return packed.view(np.int64), in_order


class _Tree(NamedTuple):
    """Merge tree of Kruskal's algorithm. Nodes 0..n-1 are images, n.. are merges, children before parents.

    Every edge belongs to the merge that contained both its ends when the edge was processed. Edges are laid
    out so that those of a subtree are contiguous.
    """

    left: IntArray  # children of each merge
    right: IntArray
    height: AnyArray  # doubt of the edge that made it
    lowest: AnyArray  # smallest doubt in its subtree
    n_below: IntArray  # images below it
    parent: IntArray  # the merge above, -1 at a root
    begin: LongArray  # its subtree's edges are filed[begin:end]
    end: LongArray
    filed: AnyArray  # doubts of all edges by subtree
    position: LongArray  # index in `filed` of each edge, edges in order of doubt


@kernel
def _merge_tree(ends: IntArray, local: IntArray, doubt: AnyArray, n_images: int) -> _Tree:
    left, right, height, lowest, n_below, parent, merge_of = _merge_by_doubt(ends, local, doubt, n_images)
    begin, end, position = _file_edges(left, right, parent, merge_of, n_images)
    filed = np.empty(len(doubt), doubt.dtype)
    filed[position] = doubt
    return _Tree(left, right, height, lowest, n_below, parent, begin, end, filed, position)


@kernel
def _merge_by_doubt(
    ends: IntArray, local: IntArray, doubt: AnyArray, n_images: int
) -> tuple[IntArray, IntArray, AnyArray, AnyArray, IntArray, IntArray, LongArray]:
    """Merge the ends of edges in ascending order of doubt; the last array is the merge of each edge."""
    leader = np.arange(n_images).astype(np.int32)
    node_of = np.arange(n_images).astype(np.int32)
    left = np.empty(n_images, np.int32)
    right = np.empty(n_images, np.int32)
    height = np.empty(n_images, doubt.dtype)
    lowest = np.empty(n_images, doubt.dtype)
    n_below = np.zeros(n_images, np.int32)
    parent = np.full(n_images, -1, np.int32)
    merge_of = np.empty(len(ends), np.int64)
    merge = 0
    for row in range(len(ends)):
        a = find_root(leader, local[ends[row, 0]])
        b = find_root(leader, local[ends[row, 1]])
        if a != b:
            left[merge] = node_of[a]
            right[merge] = node_of[b]
            height[merge] = doubt[row]
            lowest[merge] = doubt[row]
            for node in (node_of[a], node_of[b]):
                if node < n_images:
                    n_below[merge] += 1
                else:
                    n_below[merge] += n_below[node - n_images]
                    lowest[merge] = min(lowest[merge], lowest[node - n_images])
                    parent[node - n_images] = merge
            if a > b:
                a, b = b, a
            leader[b] = a
            node_of[a] = n_images + merge
            merge += 1
        merge_of[row] = node_of[a] - n_images
    return (
        left[:merge],
        right[:merge],
        height[:merge],
        lowest[:merge],
        n_below[:merge],
        parent[:merge],
        merge_of,
    )


@kernel
def _file_edges(
    left: IntArray, right: IntArray, parent: IntArray, merge_of: LongArray, n_images: int
) -> tuple[LongArray, LongArray, LongArray]:
    """Return where the edges of every subtree begin and end, and the position of every edge."""
    n_merges = len(left)
    own = np.zeros(n_merges, np.int64)
    for merge in merge_of:
        own[merge] += 1
    below = own.copy()
    for merge in range(n_merges):
        if parent[merge] >= 0:
            below[parent[merge]] += below[merge]
    begin = np.zeros(n_merges, np.int64)
    end = np.zeros(n_merges, np.int64)
    free_root = 0
    for merge in range(n_merges - 1, -1, -1):
        if parent[merge] < 0:
            begin[merge] = free_root
            free_root += below[merge]
        end[merge] = begin[merge] + below[merge]
        free = begin[merge] + own[merge]
        for child in (left[merge], right[merge]):
            if child >= n_images:
                begin[child - n_images] = free
                free += below[child - n_images]
    next_free = begin.copy()
    position = merge_of  # overwritten, which saves an array of the size of the edges
    for row in range(len(merge_of)):
        merge = merge_of[row]
        position[row] = next_free[merge]
        next_free[merge] += 1
    return begin, end, position


@kernel
def _worst_doubt(tree: _Tree, doubt: AnyArray, component: int, bound: float) -> float:
    """Return the largest doubt below `bound` inside a component (step 2a).

    Walking down from `bound` in the order of doubt soon meets an edge of a large component; a small one is
    scanned. The cost is at most the number of edges of the component, mostly far less.
    """
    begin = tree.begin[component]
    end = tree.end[component]
    row = np.searchsorted(doubt, bound) if bound < np.inf else len(doubt)
    for _ in range(end - begin):
        row -= 1
        if row < 0 or begin <= tree.position[row] < end:
            break
    else:
        worst = -1.0
        for edge in range(begin, end):
            if worst < tree.filed[edge] < bound:
                worst = tree.filed[edge]
        return worst
    return float(doubt[row])


@kernel
def _cut(
    tree: _Tree,
    doubt: AnyArray,
    n_images: int,
    max_cluster_size: int,
    step: float,
    group: IntArray,
    status: ByteArray,
    keep_below: DoubleArray,
) -> None:
    """Run steps 2 to 4 of Algorithm 1 on the merge tree; the queue holds components and their bounds."""
    n_merges = len(tree.left)
    components = np.empty(n_merges, np.int32)
    thresholds = np.empty(n_merges, np.float64)
    descent = np.empty(n_merges + 1, np.int32)
    n_waiting = 0
    for merge in range(n_merges):
        if tree.parent[merge] < 0:
            components[n_waiting] = merge
            thresholds[n_waiting] = np.inf
            n_waiting += 1
    while n_waiting > 0:
        n_waiting -= 1
        component = components[n_waiting]
        bound = (1.0 - step) * _worst_doubt(tree, doubt, component, thresholds[n_waiting])
        if not tree.lowest[component] < bound:
            continue  # no edge is left: the images keep their initial status, unsplittable
        # Descend to the subtrees that are connected by edges below the new bound (steps 2b and 2c).
        n_descent = 1
        descent[0] = component + n_images
        while n_descent > 0:
            n_descent -= 1
            node = descent[n_descent]
            if node < n_images:
                status[node] = 2  # Status.ISOLATED
            elif tree.height[node - n_images] >= bound:
                descent[n_descent] = tree.left[node - n_images]
                descent[n_descent + 1] = tree.right[node - n_images]
                n_descent += 2
            elif tree.n_below[node - n_images] > max_cluster_size:
                components[n_waiting] = node - n_images
                thresholds[n_waiting] = bound
                n_waiting += 1
            else:
                _label(tree.left, tree.right, node, n_images, bound, group, status, keep_below)


@kernel
def _label(
    left: IntArray,
    right: IntArray,
    top: int,
    n_images: int,
    bound: float,
    group: IntArray,
    status: ByteArray,
    keep_below: DoubleArray,
) -> None:
    """Give all images of a subtree a new label (step 3): the name of its leftmost image."""
    name = top
    while name >= n_images:
        name = left[name - n_images]
    waiting = [top]
    while len(waiting) > 0:
        node = waiting.pop()
        if node >= n_images:
            waiting.append(left[node - n_images])
            waiting.append(right[node - n_images])
        else:
            group[node] = name
            status[node] = 0  # Status.LABELED
            keep_below[node] = bound


@kernel
def number_groups(group: IntArray, status: ByteArray) -> IntArray:
    """Assign groups the numbers 0, 1, 2, … by first appearance; -1 for images that are not labeled."""
    number = np.full(len(group), -1, np.int32)
    labels = np.full(len(group), -1, np.int32)
    found = 0
    for image in range(len(group)):
        if status[image] == 0:
            if number[group[image]] < 0:
                number[group[image]] = found
                found += 1
            labels[image] = number[group[image]]
    return labels


@kernel
def measure_ties(ids: IntArray, doubt: AnyArray, labels: IntArray, keep_below: DoubleArray) -> FloatArray:
    """Compute the confidence of every image (`propagate`) from pairs below `keep_below`, float32 (n,)."""
    ties = np.zeros((len(labels), 2), np.float32)  # sum of doubt, number of pairs; they share a cache line
    for row in range(len(ids)):
        one = ids[row, 0]
        other = ids[row, 1]
        if labels[one] >= 0 and labels[one] == labels[other] and doubt[row] < keep_below[one]:
            for image in (one, other):
                ties[image, 0] += min(1.0, doubt[row])
                ties[image, 1] += 1
    n_groups = 0
    for image in range(len(labels)):
        n_groups = max(n_groups, labels[image] + 1)
    most = np.zeros(n_groups, np.float32)
    for image in range(len(labels)):
        if labels[image] >= 0:
            most[labels[image]] = max(most[labels[image]], ties[image, 1])
    confidence = np.zeros(len(labels), np.float32)
    for image in range(len(labels)):
        if labels[image] >= 0:
            confidence[image] = max(0.0, (ties[image, 1] - ties[image, 0]) / max(most[labels[image]], 1.0))
    return confidence

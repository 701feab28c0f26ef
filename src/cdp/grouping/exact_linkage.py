"""Exact average linkage where the score of a pair is a dot product plus a constant. Not in the paper.

The mean over all pairs between two groups then follows from the sums of their vectors, so no pair counts as
zero because a k-NN graph cannot hold it, and a group may have any number of images. Candidate pairs say which
groups are compared at all: two groups without a candidate pair between them are not merged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.blocks import spans
from cdp.grouping.links import GroupSums, Links, merge_best_first, score_pairs
from cdp.grouping.union_find import make_union_find
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import AnyArray, DoubleArray, IntArray
from cdp.types.constraints import Constraints

_ROWS_PER_BLOCK = 4096


class ExactMerges(NamedTuple):
    """Merges in the order they are made.

    Attributes:
        kept: int32 (m,), the group that remains, named after one of its images.
        gone: int32 (m,), the group merged into it.
        height: float64 (m,), smallest mean score so far, descending.
    """

    kept: IntArray
    gone: IntArray
    height: DoubleArray


def link_exactly(
    ids: IntArray,
    vectors: AnyArray,
    offset: float,
    lowest: float,
    max_cluster_size: int | None = None,
    constraints: Constraints | None = None,
    *,
    runtime: Runtime,
) -> ExactMerges:
    """Merge the two groups with the largest mean score, best first.

    Args:
        ids: int32 (m, 2), candidate pairs.
        vectors: float16 or float32 (n, d); score = offset + dot product.
        offset: score of two vectors whose dot product is 0.
        lowest: groups are merged while the mean between them is greater.
        max_cluster_size: largest number of images in a group; None = no limit.
        constraints: what groups must keep.
        runtime: its spill files hold large arrays.
    """
    n_images = len(vectors)
    sums = runtime.empty(vectors.shape, np.float32)
    for start, stop in spans(n_images, _ROWS_PER_BLOCK):
        sums[start:stop] = vectors[start:stop]
    score = runtime.empty(len(ids), np.float64)
    score_pairs(ids, sums, offset, score)
    links = Links(ids, score, runtime.full(len(ids), 1, np.int32))
    return ExactMerges(
        *merge_best_first(
            links,
            np.ones(n_images, np.int32),
            make_union_find(n_images, constraints),
            1,
            (np.inf, lowest),
            n_images if max_cluster_size is None else max_cluster_size,
            runtime.spill,
            GroupSums(sums, offset),
        )
    )

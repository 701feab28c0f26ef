"""What the judged pairs say about finished groups: how well an image is tied to its own, and two groups to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import DoubleArray, IntArray, LongArray


@dataclass(frozen=True, eq=False)
class GroupTies:
    """Pairs of groups that judged pairs of images lie between, the most probable first.

    Attributes:
        ids: int32 (m, 2), two labels, the smaller first.
        probability: float64 (m,), mean over the pairs between them that a k-NN graph can hold, as in `agglomerate`.
    """

    ids: IntArray
    probability: DoubleArray

    def __len__(self) -> int:
        return len(self.ids)


def tie_to_group(scored: ConsensusGraph, labels: Labels, k: int) -> DoubleArray:
    """The mean probability of every image's pairs with the rest of its group, over those a k-NN graph can hold, float64 (n,).

    A pair that was not judged, or found improbable, counts as 0, as in `agglomerate`; so do images without a group.
    """
    ends = labels.labels[scored.ids]
    inside = (ends[:, 0] == ends[:, 1]) & (ends[:, 0] >= 0)
    images = scored.ids[inside].ravel()
    probability = np.repeat(1 - scored.doubt[inside].astype(np.float64), 2)
    total = np.bincount(images, probability, labels.n_images)
    present = np.bincount(images, minlength=labels.n_images)
    possible = np.minimum(group_sizes(labels) - 1, k)
    tie: DoubleArray = total / np.maximum(np.maximum(present, possible), 1)
    return tie


def tie_groups(scored: ConsensusGraph, labels: Labels, k: int) -> GroupTies:
    """How probable it is, pair by pair, that two groups are one identity."""
    ends = labels.labels[scored.ids].astype(np.int64)
    between = (ends >= 0).all(axis=1) & (ends[:, 0] != ends[:, 1])
    low, high = ends[between].min(axis=1), ends[between].max(axis=1)
    probability = 1 - scored.doubt[between].astype(np.float64)
    n_groups = max(1, labels.n_identities)
    key, position = np.unique(low * n_groups + high, return_inverse=True)
    total, present = np.bincount(position, probability, len(key)), np.bincount(position, minlength=len(key))
    ids = np.stack([key // n_groups, key % n_groups], axis=1)
    sizes = np.bincount(labels.labels[labels.labels >= 0], minlength=n_groups).astype(np.float64)[ids]
    possible = sizes.prod(axis=1) * np.minimum(1, k / np.maximum(sizes.sum(axis=1) - 1, 1))
    mean = total / np.maximum(possible, present)
    order = np.argsort(-mean, kind="stable")
    return GroupTies(ids[order].astype(np.int32), mean[order])


def group_sizes(labels: Labels) -> LongArray:
    """How many images the group of every image has; 1 for an image without one."""
    found = labels.labels
    sizes = np.bincount(found[found >= 0], minlength=1)
    return np.where(found >= 0, sizes[np.maximum(found, 0)], 1)

"""Labels with some of their mistakes corrected by the truth, to find out what each kind of mistake costs."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.types import Fate, Labels
from cdp.types.arrays import LongArray
from cdp.types.labels import number_by_first_appearance

Mistakes = Literal["splits", "mixtures", "all"]


def correct_by_truth(labels: Labels, identities: npt.ArrayLike, mistakes: Mistakes) -> Labels:
    """The labels without splits, without mixtures, or without either; it looks at the truth.

    Discarded images stay discarded. The images of a group whose identities are unknown stay together.

    Args:
        labels: as found.
        identities: the truth; negative = unknown.
        mistakes: what is corrected. `splits`: groups with the same majority identity become one, their other images
            included. `mixtures`: every group is divided by identity, and single images are discarded.
            `all`: both, so that every image with a label has its own identity.
    """
    truth = np.asarray(identities, dtype=np.int64)
    if truth.shape != (labels.n_images,):
        raise InputError(f"correct_by_truth: {truth.size:,} identities for {labels.n_images:,} labels.")
    if not (truth >= 0).any():
        raise InputError(
            "correct_by_truth: no true identity of an unlabeled image is known; leave the oracle correction out."
        )
    labeled = np.flatnonzero(labels.labels >= 0)
    known = np.maximum(truth[labeled], -1)
    group = labels.labels[labeled].astype(np.int64)
    if mistakes in ("mixtures", "all"):
        group = np.unique(np.stack([group, known], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    if mistakes in ("splits", "all"):
        group = np.unique(_majority(group, known)[group], return_inverse=True)[1]
    single = labeled[np.bincount(group)[group] < 2]
    corrected = np.full(labels.n_images, -1, np.int64)
    corrected[labeled] = group
    corrected[single] = -1
    fate, confidence = labels.fate.copy(), labels.confidence.copy()
    fate[single], confidence[single] = Fate.ISOLATED, 0
    return Labels(number_by_first_appearance(corrected), fate, confidence)


def _majority(group: LongArray, known: LongArray) -> LongArray:
    """The most frequent identity of every group, of equally frequent ones the smallest.

    A group of unknown images only has a number of its own.
    """
    n_groups = int(group.max(initial=-1)) + 1
    majority: LongArray = known.max(initial=-1) + 1 + np.arange(n_groups, dtype=np.int64)
    pairs = np.stack([group, known], axis=1)[known >= 0]
    cells, counts = np.unique(pairs, axis=0, return_counts=True)
    # Written from the least to the most frequent, so that the last one stays; of equals the smallest comes last.
    order = np.lexsort((-cells[:, 1], counts))
    majority[cells[order, 0]] = cells[order, 1]
    return majority

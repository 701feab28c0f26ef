"""Labels with some of their mistakes put right by the truth, to find out what each kind of mistake costs."""

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
        mistakes: what is put right. `splits`: groups that are mostly one and the same identity become one, strangers
            included. `mixtures`: every group is divided by identity, and whoever is left alone is discarded.
            `all`: both, so that every image with a label has its own identity.
    """
    truth = np.asarray(identities, dtype=np.int64)
    if truth.shape != (labels.n_images,):
        raise InputError(f"mend: {truth.size:,} identities for {labels.n_images:,} labels.")
    if not (truth >= 0).any():
        raise InputError(
            "Labels cannot be mended: no true identity of an unlabeled image is known. Set consensus.mend = "
            '"nothing".'
        )
    kept = np.flatnonzero(labels.labels >= 0)
    known = np.maximum(truth[kept], -1)
    group = labels.labels[kept].astype(np.int64)
    if mistakes in ("mixtures", "all"):
        group = _numbered(np.stack([group, known], axis=1))
    if mistakes in ("splits", "all"):
        group = _numbered(np.stack([_one_for_all(group, known)[group]], axis=1))
    lonely = kept[np.bincount(group)[group] < 2]
    found = np.full(labels.n_images, -1, np.int64)
    found[kept] = group
    found[lonely] = -1
    fate, confidence = labels.fate.copy(), labels.confidence.copy()
    fate[lonely], confidence[lonely] = Fate.ISOLATED, 0
    return Labels(number_by_first_appearance(found), fate, confidence)


def _numbered(rows: LongArray) -> LongArray:
    """Equal rows get equal numbers, from 0."""
    number: LongArray = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return number


def _one_for_all(group: LongArray, known: LongArray) -> LongArray:
    """For every group a number that it shares with all groups of the same most frequent identity.

    Of equally frequent identities the smallest counts. A group of unknown images only has a number of its own.
    """
    n_groups = int(group.max(initial=-1)) + 1
    number: LongArray = known.max(initial=-1) + 1 + np.arange(n_groups, dtype=np.int64)
    told = known >= 0
    cells, counts = np.unique(np.stack([group[told], known[told]], axis=1), axis=0, return_counts=True)
    # Written from the least to the most frequent, so that the last one stays; of equals the smallest comes last.
    order = np.lexsort((-cells[:, 1], counts))
    number[cells[order, 0]] = cells[order, 1]
    return number

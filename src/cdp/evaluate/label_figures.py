"""Figures of labels: pairwise, BCubed, NMI; once with discarded images as groups of one, once without them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.types import Labels
from cdp.types.arrays import AnyArray, LongArray


@dataclass(frozen=True)
class Score:
    """Precision, recall and their harmonic mean; None where nothing could be counted (0/0)."""

    precision: float | None
    recall: float | None
    f: float | None

    def weighted(self, recall_weight: float) -> float:
        """F-beta, in which recall is `recall_weight` times as important as precision; 0 where nothing was counted."""
        precision, recall = self.precision or 0.0, self.recall or 0.0
        total = recall_weight**2 * precision + recall
        return (1 + recall_weight**2) * precision * recall / total if total else 0.0


@dataclass(frozen=True)
class GroupFigures:
    """How well groups match identities.

    Attributes:
        images: how many images were counted.
        groups: number of groups among them.
        identities: number of true identities among them.
        pairwise: over all pairs of images in one group.
        bcubed: averaged over images, so large groups do not drown small ones.
        nmi: normalized mutual information, arithmetic mean.
    """

    images: int
    groups: int
    identities: int
    pairwise: Score
    bcubed: Score
    nmi: float | None


@dataclass(frozen=True)
class LabelFigures:
    """All figures of labels against true identities; images with unknown identity are not counted.

    Attributes:
        images: images with a known identity.
        coverage: share of them that carry a label.
        identities_found: pseudo-identities among them.
        identities_true: true identities among them.
        identities_true_shared: true identities with at least two images, the only ones that can be found.
        discards_kept: every discarded image counts as a group of one.
        discards_removed: discarded images are left out.
    """

    images: int
    coverage: float
    identities_found: int
    identities_true: int
    identities_true_shared: int
    discards_kept: GroupFigures
    discards_removed: GroupFigures


def measure_labels(labels: Labels | npt.ArrayLike, identities: npt.ArrayLike) -> LabelFigures:
    """Every figure of `labels` against the true identities (negative = unknown, not counted)."""
    given = labels if isinstance(labels, Labels) else Labels.from_array(labels)
    truth = whole_numbers(identities, "measure_labels")
    if truth.shape != (given.n_images,):
        raise InputError(f"measure_labels: {truth.size:,} identities for {given.n_images:,} labels.")
    known = truth >= 0
    if not known.any():
        raise InputError("measure_labels: no identity is known, so there is nothing to compare with.")
    found, true = given.labels[known].astype(np.int64), truth[known]
    kept = found >= 0
    alone = found.max(initial=-1) + 1 + np.arange(len(found))
    true_sizes = np.unique(true, return_counts=True)[1]
    return LabelFigures(
        images=len(true),
        coverage=float(kept.mean()),
        identities_found=len(np.unique(found[kept])),
        identities_true=len(true_sizes),
        identities_true_shared=int((true_sizes > 1).sum()),
        discards_kept=_measure_groups(np.where(kept, found, alone), true),
        discards_removed=_measure_groups(found[kept], true[kept]),
    )


def measure_among_others(labels: Labels, identities: npt.ArrayLike) -> Score:
    """Pairwise figures of images whose identities are known, labeled together with many others.

    Counting pairs among the known images only would see a tenth of the mistakes if a tenth of the images is known.
    So every image that shares a group with a known one counts, and the others are taken to be other people: all
    images of a known identity must be known.
    """
    truth = whole_numbers(identities, "measure_among_others")
    known = truth >= 0
    if truth.shape != (labels.n_images,) or not known.any():
        raise InputError("measure_among_others: one identity per label is needed, and some must be known.")
    sizes = np.bincount(labels.labels[labels.labels >= 0], minlength=1)
    grouped = known & (labels.labels >= 0)
    pairs = np.stack([labels.labels[grouped].astype(np.int64), truth[grouped]], axis=1)
    overlap = np.unique(pairs, axis=0, return_counts=True)[1]
    together = _ordered_pairs(overlap)
    return _score(
        _ratio(together, float((sizes[labels.labels[grouped]] - 1).sum())),
        _ratio(together, _ordered_pairs(np.unique(truth[known], return_counts=True)[1])),
    )


def _measure_groups(found: LongArray, true: LongArray) -> GroupFigures:
    from sklearn.metrics import normalized_mutual_info_score

    n_images = len(found)
    if n_images == 0:
        undefined = Score(None, None, None)
        return GroupFigures(0, 0, 0, undefined, undefined, None)
    _, group = np.unique(found, return_inverse=True)
    _, person = np.unique(true, return_inverse=True)
    group_sizes, person_sizes = np.bincount(group), np.bincount(person)
    # The contingency table, only its filled cells: it has at most n of them, never groups x identities.
    cells, overlap = np.unique(group * np.int64(len(person_sizes)) + person, return_counts=True)
    cell_group, cell_person = np.divmod(cells, len(person_sizes))
    squares = overlap.astype(np.float64) ** 2
    together = float(squares.sum()) - n_images
    bcubed_precision = float((squares / group_sizes[cell_group]).sum()) / n_images
    bcubed_recall = float((squares / person_sizes[cell_person]).sum()) / n_images
    return GroupFigures(
        images=n_images,
        groups=len(group_sizes),
        identities=len(person_sizes),
        pairwise=_score(
            _ratio(together, _ordered_pairs(group_sizes)), _ratio(together, _ordered_pairs(person_sizes))
        ),
        bcubed=_score(bcubed_precision, bcubed_recall),
        nmi=float(normalized_mutual_info_score(person, group, average_method="arithmetic")),
    )


def whole_numbers(identities: npt.ArrayLike, caller: str) -> LongArray:
    """Identities as int64; numbers with a fraction or NaN are refused, not cut."""
    numbers = np.asarray(identities)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise InputError(f"{caller}: identities are {numbers.dtype}; give whole numbers, -1 where unknown.")
    return numbers.astype(np.int64)


def _ordered_pairs(sizes: AnyArray) -> float:
    return float((sizes.astype(np.float64) * (sizes - 1)).sum())


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _score(precision: float | None, recall: float | None) -> Score:
    if precision is None or recall is None:
        return Score(precision, recall, None)
    total = precision + recall
    return Score(precision, recall, 2 * precision * recall / total if total > 0 else 0.0)

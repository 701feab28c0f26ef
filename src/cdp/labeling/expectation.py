"""Expected quality of labels, estimated from labeled images that were grouped among the unlabeled ones.

The groups of labeled images show how often groups are mixed and identities split. If no unlabeled image shows
a labeled identity (`disjoint`), partners of other identities are counted whether labeled or not, and scaled
to the unlabeled images alone. Otherwise labeled partners of other identities say how many of the unlabeled
partners are impostors by chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.evaluate.bootstrap import draw_identities, interval
from cdp.grouping.cohesion import group_sizes, tie_to_group
from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import BoolArray, DoubleArray, LongArray
from cdp.types.run_record import CalibrationBin, Expectation, Figure

FEWEST_IMAGES = 50
"""Labeled images in groups, below which confidence is not calibrated."""

_REPLICATES = 1000
_N_BINS = 10


def expect(labels: Labels, identities: LongArray, seed: int = 0, *, disjoint: bool = True) -> Expectation:
    """Precision and recall of pairs, and coverage, with 95 % intervals over the labeled identities.

    Args:
        labels: of all images, labeled ones among them.
        identities: int64 (n,), negative where unlabeled.
        seed: of the resampled identities.
        disjoint: no unlabeled image shows a labeled identity.
    """
    counts = count_by_identity(labels, identities, disjoint=disjoint)
    whole = counts.sum(axis=0)
    draws = np.stack([draw_identities(len(counts), seed, number) @ counts for number in range(_REPLICATES)])
    return Expectation(
        identities=len(counts),
        precision=_ratio(whole, draws, 0, 1),
        recall=_ratio(whole, draws, 0, 2),
        coverage=_ratio(whole, draws, 3, 4),
    )


def count_by_identity(labels: Labels, identities: LongArray, *, disjoint: bool = True) -> DoubleArray:
    """For every labeled identity: ordered pairs found, in its groups, and in all; images grouped, and in all.

    Returns:
        float64 (identities, 5).
    """
    labeled = identities >= 0
    _, person = np.unique(identities[labeled], return_inverse=True)
    own, others = _partners(labels, labeled, person, disjoint)
    grouped = labels.labels[labeled] >= 0
    n_people = int(person.max(initial=-1)) + 1
    images = np.bincount(person, minlength=n_people)
    columns = [own, own + others, None, grouped.astype(np.float64), np.ones(len(person))]
    counts = np.empty((n_people, len(columns)))
    for at, values in enumerate(columns):
        counts[:, at] = images * (images - 1) if values is None else np.bincount(person, values, n_people)
    return counts


def _partners(
    labels: Labels, labeled: BoolArray, person: LongArray, disjoint: bool
) -> tuple[DoubleArray, DoubleArray]:
    """For every labeled image: images of its identity in its group, and unlabeled impostors."""
    found = labels.labels[labeled].astype(np.int64)
    grouped = found >= 0
    cell = (found * (int(person.max(initial=-1)) + 1) + person)[grouped]
    _, cell_of, overlap = np.unique(cell, return_inverse=True, return_counts=True)
    own = np.zeros(len(found))
    own[grouped] = overlap[cell_of] - 1
    n_unlabeled = int((~labeled).sum())
    if not disjoint:
        n_labeled = np.bincount(found[grouped], minlength=1)
        impostors = np.where(grouped, n_labeled[np.maximum(found, 0)] - 1 - own, 0.0)
        others = group_sizes(labels)[labeled] - 1 - own - impostors
        # By chance unlabeled images are impostors as often as labeled ones; the rest show the same identity.
        unlabeled = np.minimum(others, impostors * n_unlabeled / max(1, len(found) - 1))
        genuine = own + others - unlabeled
        share = np.divide(own, genuine, out=np.ones(len(own)), where=genuine > 0)
        return own, (impostors + unlabeled) * np.where(own > 0, share, 1.0)
    # Impostors are in a group by chance: without the labeled images their number shrinks in proportion.
    scale = n_unlabeled / len(labeled) if n_unlabeled else 1.0
    return own, scale * (group_sizes(labels)[labeled] - 1 - own)


def _ratio(whole: DoubleArray, draws: DoubleArray, above: int, below: int) -> Figure:
    if whole[below] == 0:
        return Figure()
    with np.errstate(divide="ignore", invalid="ignore"):
        replicates = draws[:, above] / draws[:, below]
    band = interval(replicates[np.isfinite(replicates)])
    value = float(whole[above] / whole[below])
    return Figure(value=value) if band is None else Figure(value=value, **band._asdict())


def calibrate(
    scored: ConsensusGraph, labels: Labels, identities: LongArray, k: int, *, disjoint: bool = True
) -> Labels:
    """Calibrate confidence: the expected share of an image's group that has its identity.

    It is a rising function of the image's mean probability with its group, fitted on the labeled images; with
    few of them the labels stay as they are.
    """
    from sklearn.isotonic import IsotonicRegression

    labeled = identities >= 0
    _, person = np.unique(identities[labeled], return_inverse=True)
    own, others = _partners(labels, labeled, person, disjoint)
    says = own + others > 0
    if says.sum() < FEWEST_IMAGES:
        return labels
    tie = tie_to_group(scored, labels, k)
    share = own[says] / (own + others)[says]
    rising = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(tie[labeled][says], share)
    confidence = np.where(labels.labels >= 0, rising.predict(tie), 0)
    return replace(labels, confidence=np.clip(confidence, 0, 1).astype(np.float32))


def measure_calibration(
    scored: ConsensusGraph, identities: LongArray, *, disjoint: bool
) -> list[CalibrationBin]:
    """Compute a reliability diagram: how often pairs of a given probability are genuine.

    Args:
        scored: pairs of all images.
        identities: int64 (n,), negative where unlabeled.
        disjoint: a pair of a labeled and an unlabeled image is an impostor; else such pairs do not count.
    """
    pairs, total, right = np.zeros(_N_BINS, np.int64), np.zeros(_N_BINS), np.zeros(_N_BINS)
    for start, stop in spans(len(scored), PAIRS_PER_BLOCK):
        ends = identities[scored.ids[start:stop]]
        counts = (ends >= 0).any(axis=1) if disjoint else (ends >= 0).all(axis=1)
        same: BoolArray = (ends[:, 0] == ends[:, 1])[counts]
        probability = 1 - scored.doubt[start:stop][counts].astype(np.float64)
        at = np.minimum((probability * _N_BINS).astype(np.int64), _N_BINS - 1)
        pairs += np.bincount(at, minlength=_N_BINS)
        total += np.bincount(at, probability, _N_BINS)
        right += np.bincount(at, same, _N_BINS)
    mean, share = total / np.maximum(pairs, 1), right / np.maximum(pairs, 1)
    return [
        CalibrationBin(pairs=int(pairs[one]), probability=float(mean[one]), same=float(share[one]))
        for one in np.flatnonzero(pairs)
    ]

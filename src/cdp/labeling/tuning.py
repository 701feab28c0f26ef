"""The threshold with labels: chosen on labeled identities among the unlabeled images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cdp.evaluate.label_figures import pair_score
from cdp.grouping.average_linkage import build_dendrogram
from cdp.grouping.components import BYTES_PER_PAIR
from cdp.grouping.dendrogram import Dendrogram
from cdp.grouping.group import group, pairs_at
from cdp.labeling.expectation import count_by_identity
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings, ThresholdKind
from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.run_record import Tuning, TuningPoint

THRESHOLDS: dict[ThresholdKind, tuple[float, ...]] = {
    "probability": (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 0.995, 0.999),
    "similarity": tuple(round(0.05 * step, 2) for step in range(20)),
    "mean probability": (
        *(0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4),
        *(0.5, 0.6, 0.7, 0.8, 0.9),
    ),
}
"""Thresholds that are tried, from low to high."""

MIN_IDENTITIES = 20
"""Identities with two images or more, below which none are held out, and a choice is noted as made on few."""

_HELD_OUT = 0.3
# Peak memory per image of one cut of the dendrogram, and of what is counted in it.
_BYTES_PER_CUT = 64
_AS_GOOD = 0.002


def lowest_threshold(settings: ConsensusSettings) -> float:
    """Return the lowest threshold that will be tried."""
    return THRESHOLDS[settings.threshold_kind][0]


def not_chosen(settings: ConsensusSettings, why: str) -> str:
    """Return the note about a default threshold."""
    return (
        f"threshold = {settings.default_threshold:g}, the default, was not chosen on labeled identities: "
        f"{why}."
    )


def tune(
    scored: ConsensusGraph,
    identities: LongArray,
    settings: ConsensusSettings,
    runtime: Runtime | None = None,
) -> tuple[Tuning, Dendrogram | None]:
    """Choose the threshold with the best pairwise F-beta on the labeled images.

    They are labeled among all unlabeled images, so the threshold is right for as many; any other image in
    their groups counts as a mistake.

    Args:
        scored: pairs of all images, scored at `lowest_threshold`.
        identities: int64 (n,), -1 where unlabeled.
        settings: how groups are made, beta and the minimum precision.
        runtime: how it runs.

    Returns:
        The chosen threshold with the whole curve, and the dendrogram that gives the groups at any threshold;
        None with connected components.
    """
    runtime = runtime or Runtime()
    thresholds = THRESHOLDS[settings.threshold_kind]
    dendrogram = None
    if settings.grouping == "average":
        dendrogram = build_dendrogram(
            scored, settings.k, thresholds[0], settings.most_images, runtime=runtime
        )
        points = _measure_cuts(dendrogram, identities, thresholds, runtime)
    else:
        points = _measure_components(scored, identities, settings, thresholds, runtime)
    curve = []
    for point in points:
        curve.append(point)
        runtime.progress("tuning", len(curve), len(thresholds))
    curve.sort(key=lambda point: point.threshold)
    chosen = best_of(curve, settings.default_threshold, settings.beta, settings.min_precision)
    return chosen, dendrogram


def _measure_cuts(
    dendrogram: Dendrogram, identities: LongArray, thresholds: Sequence[float], runtime: Runtime
) -> Iterator[TuningPoint]:
    block_bytes = _BYTES_PER_CUT * len(identities)
    shared = (dendrogram, identities)
    return runtime.map(_measure_cut, shared, sorted(thresholds, reverse=True), block_bytes=block_bytes)


def _measure_cut(shared: tuple[Dendrogram, LongArray], threshold: float) -> TuningPoint:
    dendrogram, identities = shared
    return measure_point(threshold, dendrogram.cut(threshold), identities)


def _measure_components(
    scored: ConsensusGraph,
    identities: LongArray,
    settings: ConsensusSettings,
    thresholds: Sequence[float],
    runtime: Runtime,
) -> Iterator[TuningPoint]:
    size = BYTES_PER_PAIR * len(scored)
    shared = (scored, identities, settings, runtime.here(threads=1).settings)
    if size <= runtime.block_memory:
        return runtime.map(_measure_threshold, shared, thresholds, block_bytes=size)
    return (_measure_threshold(shared, threshold, runtime) for threshold in thresholds)


def _measure_threshold(
    shared: tuple[ConsensusGraph, LongArray, ConsensusSettings, RuntimeSettings],
    threshold: float,
    runtime: Runtime | None = None,
) -> TuningPoint:
    scored, identities, settings, alone = shared
    runtime = runtime or Runtime(alone)
    labels = group(pairs_at(scored, settings, threshold, runtime), settings, threshold, runtime=runtime)
    return measure_point(threshold, labels, identities)


def best_of(
    curve: Sequence[TuningPoint], prior: float, beta: float = 1.0, min_precision: float | None = None
) -> Tuning:
    """Pick the threshold with the best F-beta.

    With a minimum precision, the threshold with the greatest recall of those that keep it; if none does, the
    most precise one.

    Of thresholds whose F is within 0.002 of the best, the one nearest to `prior`, the default. The labeled
    identities seldom include the largest ones, so a high threshold that splits a person of hundreds of images
    may look slightly better than one that does not: LFW fell from F 0.997 to 0.50 that way.
    """
    if min_precision is not None:
        kept = [point for point in curve if (point.precision or 0.0) >= min_precision]
        point = (
            max(kept, key=lambda one: one.recall or 0.0)
            if kept
            else max(curve, key=lambda one: one.precision or 0.0)
        )
        return Tuning(chosen=point.threshold, curve=list(curve), beta=beta, min_precision=min_precision)
    best = max(point.weighted(beta) for point in curve)
    good = [point.threshold for point in curve if point.weighted(beta) >= best - _AS_GOOD]
    chosen = min(good, key=lambda threshold: abs(threshold - prior))
    return Tuning(chosen=chosen, curve=list(curve), beta=beta)


def measure_point(threshold: float, labels: Labels, identities: LongArray) -> TuningPoint:
    """Measure precision and recall on the labeled images at one threshold.

    Unlabeled partners count as impostors. Where some show labeled people, that makes the threshold a little
    stricter; not to count them makes it far too low, because labeled images meet few impostors.
    """
    counts = count_by_identity(labels, identities)
    found, in_groups, to_find, grouped, images = counts.sum(axis=0).tolist()
    score = pair_score(found, in_groups, to_find)
    return TuningPoint(
        threshold=threshold,
        f=score.f,
        precision=score.precision,
        recall=score.recall,
        coverage=grouped / images,
    )


def count_shared(identities: LongArray) -> int:
    """Count labeled identities with two images or more: the only ones that can be found."""
    return int((np.unique(identities[identities >= 0], return_counts=True)[1] > 1).sum())


def hold_out(identities: LongArray, seed: int) -> BoolArray | None:
    """Hold out labeled identities to choose the threshold on; None if there are too few."""
    known = np.unique(identities[identities >= 0])
    held_out = np.random.default_rng([seed, 5]).permutation(known)[: round(_HELD_OUT * len(known))]
    mask: BoolArray = np.isin(identities, held_out)
    fewest = min(count_shared(identities[mask]), count_shared(identities[~mask]))
    return mask if fewest >= MIN_IDENTITIES else None

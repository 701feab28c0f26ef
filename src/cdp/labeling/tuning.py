"""Choosing the bar on known identities that are labeled among the unlabeled images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cdp.evaluate.label_figures import pair_score
from cdp.grouping.average_linkage import build_dendrogram
from cdp.grouping.components import BYTES_PER_PAIR
from cdp.grouping.dendrogram import Dendrogram
from cdp.grouping.group import at_threshold, group
from cdp.labeling.expectation import count_by_identity
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.run_record import Tuning, TuningPoint

BARS = {
    "threshold": (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 0.995, 0.999),
    "vote_threshold": tuple(round(0.05 * step, 2) for step in range(20)),
    "join_above": (
        *(0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4),
        *(0.5, 0.6, 0.7, 0.8, 0.9),
    ),
}
"""What is tried for each bar, from low to high."""

FEWEST_IDENTITIES = 20
"""Identities with two images or more, below which none are held out, and a choice is noted as made on few."""

_HELD_OUT = 0.3
_AS_GOOD = 0.002


def lowest_bar(settings: ConsensusSettings) -> ConsensusSettings:
    """The settings with the lowest bar that tuning will try."""
    return with_bar(settings, BARS[settings.bar_key][0])


def with_bar(settings: ConsensusSettings, bar: float) -> ConsensusSettings:
    """The settings with another bar."""
    changed: dict[str, Any] = {settings.bar_key: bar}
    return replace(settings, **changed)


def not_tuned(settings: ConsensusSettings, why: str) -> str:
    """The note about a bar that stays as it is."""
    return f"{settings.bar_key} = {settings.bar:g} was not tuned: {why}."


def linkage_for_tuning(
    scored: ConsensusGraph, settings: ConsensusSettings, runtime: Runtime | None = None
) -> Dendrogram | None:
    """Run average linkage down to the lowest bar that tuning will try; None for connected components."""
    if settings.grouping != "average":
        return None
    lowest = lowest_bar(settings).join_above
    return build_dendrogram(scored, settings.k, lowest, settings.max_size, runtime=runtime)


def tune(
    scored: ConsensusGraph,
    identities: LongArray,
    settings: ConsensusSettings,
    dendrogram: Dendrogram | None = None,
    *,
    runtime: Runtime | None = None,
) -> Tuning:
    """The bar with the best pairwise F (by the weight of recall) on the known images, and the whole curve.

    They are labeled among all unlabeled images, so the bar is right for as many; any other image that ends in their
    groups counts as a mistake.

    Args:
        scored: pairs of all images, scored at `lowest_bar`.
        identities: int64 (n,), -1 where unknown.
        settings: how groups are made, and the weight of recall.
        dendrogram: `linkage_for_tuning` of these pairs, if it was built already.
        runtime: how it runs. Bars of connected components are tried on as many threads as have memory for the pairs.
    """
    runtime = runtime or Runtime()
    bars = BARS[settings.bar_key]
    dendrogram = dendrogram or linkage_for_tuning(scored, settings, runtime)
    points = (
        _measure_components(scored, identities, settings, bars, runtime)
        if dendrogram is None
        else _measure_cuts(dendrogram, identities, settings, bars)
    )
    curve = []
    for point in points:
        curve.append(point)
        runtime.progress("tuning", len(curve), len(bars))
    curve.sort(key=lambda point: point.threshold)
    return best_of(curve, settings.bar, settings.recall_weight, settings.precision)


def _measure_cuts(
    dendrogram: Dendrogram, identities: LongArray, settings: ConsensusSettings, bars: Sequence[float]
) -> Iterator[TuningPoint]:
    for bar in bars:
        yield measure_point(bar, dendrogram.cut(bar), identities, disjoint=settings.disjoint)


def _measure_components(
    scored: ConsensusGraph,
    identities: LongArray,
    settings: ConsensusSettings,
    bars: Sequence[float],
    runtime: Runtime,
) -> Iterator[TuningPoint]:
    size = BYTES_PER_PAIR * len(scored)
    alone = replace(runtime.settings, engine="threads", threads=1)
    shared = (scored, identities, settings, alone)
    if size <= runtime.block_memory:
        return runtime.map(_measure_bar, shared, bars, block_bytes=size)
    return (_measure_bar(shared, bar, runtime) for bar in bars)


def _measure_bar(
    shared: tuple[ConsensusGraph, LongArray, ConsensusSettings, RuntimeSettings],
    bar: float,
    runtime: Runtime | None = None,
) -> TuningPoint:
    scored, identities, settings, alone = shared
    runtime = runtime or Runtime(alone)
    tried = with_bar(settings, bar)
    labels = group(at_threshold(scored, tried, runtime), tried, runtime=runtime)
    return measure_point(bar, labels, identities, disjoint=settings.disjoint)


def best_of(
    curve: Sequence[TuningPoint], prior: float, recall_weight: float = 1.0, precision: float = 0.0
) -> Tuning:
    """The bar with the best F, recall so many times as important as precision, and the whole curve.

    With a precision, the bar with the greatest recall of those that keep it; if none does, the most precise one.

    Of bars whose F is within 0.002 of the best the one nearest to `prior`, the bar that was set. The known identities seldom
    include the largest ones, so a high bar that splits a person of hundreds of images may look a hair better than one that
    does not: LFW fell from F 0.997 to 0.50 that way.
    """
    if precision:
        kept = [point for point in curve if (point.precision or 0.0) >= precision]
        point = (
            max(kept, key=lambda one: one.recall or 0.0)
            if kept
            else max(curve, key=lambda one: one.precision or 0.0)
        )
        return Tuning(
            chosen=point.threshold, curve=list(curve), recall_weight=recall_weight, precision=precision
        )
    best = max(point.weighted(recall_weight) for point in curve)
    good = [point.threshold for point in curve if point.weighted(recall_weight) >= best - _AS_GOOD]
    chosen = min(good, key=lambda bar: abs(bar - prior))
    return Tuning(chosen=chosen, curve=list(curve), recall_weight=recall_weight)


def measure_point(bar: float, labels: Labels, identities: LongArray, *, disjoint: bool = True) -> TuningPoint:
    """What the known images let expect at one bar."""
    counts = count_by_identity(labels, identities, disjoint=disjoint)
    found, in_groups, to_find, grouped, images = counts.sum(axis=0).tolist()
    score = pair_score(found, in_groups, to_find)
    return TuningPoint(
        threshold=bar, f=score.f, precision=score.precision, recall=score.recall, coverage=grouped / images
    )


def count_shared(identities: LongArray) -> int:
    """Known identities with two images or more: the only ones that can be found."""
    return int((np.unique(identities[identities >= 0], return_counts=True)[1] > 1).sum())


def hold_out(identities: LongArray, seed: int) -> BoolArray | None:
    """Which of the known images are kept from training to choose the bar on, by identity; None if there are too few."""
    known = np.unique(identities[identities >= 0])
    held_out = np.random.default_rng([seed, 5]).permutation(known)[: round(_HELD_OUT * len(known))]
    mask: BoolArray = np.isin(identities, held_out)
    fewest = min(count_shared(identities[mask]), count_shared(identities[~mask]))
    return mask if fewest >= FEWEST_IDENTITIES else None

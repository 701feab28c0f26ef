"""Choosing the bar on known identities that are labeled in the midst of the unlabeled images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cdp.consensus.grouping import at_bar, group
from cdp.consensus.settings import ConsensusSettings
from cdp.evaluate.label_figures import Score, measure_among_others
from cdp.progress import Progress, no_progress
from cdp.types import ConsensusGraph, Labels, Views
from cdp.types.arrays import LongArray

BARS = {
    "threshold": (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 0.995, 0.999),
    "vote_threshold": tuple(round(0.05 * step, 2) for step in range(20)),
    "join_above": (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7),
}
"""What is tried for each bar, from low to high."""

FEWEST_IDENTITIES = 20
"""Known identities with two images or more, below which a bar is not chosen by them."""

_HELD_OUT = 0.3


@dataclass(frozen=True)
class Point:
    """One bar that was tried, and the pairwise figures of the known images."""

    threshold: float
    f: float
    precision: float | None
    recall: float | None
    coverage: float

    def merit(self, recall_weight: float) -> float:
        """What tuning maximizes."""
        return Score(self.precision, self.recall, self.f).weighted(recall_weight)


@dataclass(frozen=True)
class Tuning:
    """The bar that was chosen, and the whole curve."""

    chosen: float
    curve: tuple[Point, ...]
    recall_weight: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def lowest_bar(settings: ConsensusSettings) -> ConsensusSettings:
    """The settings with the lowest bar that tuning will try."""
    return with_bar(settings, BARS[settings.bar_key][0])


def with_bar(settings: ConsensusSettings, bar: float) -> ConsensusSettings:
    """The settings with another bar."""
    return replace(settings, **{settings.bar_key: bar})


def tune(
    scored: ConsensusGraph,
    identities: LongArray,
    settings: ConsensusSettings,
    progress: Progress = no_progress,
) -> Tuning:
    """The bar with the best pairwise F (by the weight of recall) on the known images, and the whole curve.

    They are labeled in the midst of all unlabeled images, so the bar is right for as many; whoever else ends in their
    groups counts as a mistake.

    Args:
        scored: pairs of all images, scored at `lowest_bar`.
        identities: int64 (n,), -1 where unknown.
        settings: how groups are made, and the weight of recall.
        progress: called as the work goes on.
    """
    bars = BARS[settings.bar_key]

    def points() -> Iterator[Point]:
        for done, bar in enumerate(bars):
            progress("tuning", done, len(bars))
            tried = with_bar(settings, bar)
            yield measure_point(bar, group(at_bar(scored, tried), tried), identities)
        progress("tuning", len(bars), len(bars))

    return best_of(tuple(points()), settings.recall_weight)


def best_of(curve: tuple[Point, ...], recall_weight: float = 1.0) -> Tuning:
    """The first point with the best F, recall so many times as important as precision, and the whole curve."""
    best = max(curve, key=lambda point: point.merit(recall_weight))
    return Tuning(best.threshold, curve, recall_weight)


def measure_point(bar: float, labels: Labels, identities: LongArray) -> Point:
    """The figures of the known images at one bar."""
    score = measure_among_others(labels, identities)
    coverage = float((labels.labels[identities >= 0] >= 0).mean())
    return Point(bar, score.f or 0.0, score.precision, score.recall, coverage)


def count_shared(identities: LongArray) -> int:
    """Known identities with two images or more: the only ones that can be found."""
    return int((np.unique(identities[identities >= 0], return_counts=True)[1] > 1).sum())


def hold_out(labeled: Views, seed: int) -> tuple[Views, Views] | None:
    """Views to train on and views to tune on, by identity; None if there are too few identities for both."""
    assert labeled.identities is not None
    people = np.unique(labeled.identities)
    n_held_out = round(_HELD_OUT * len(people))
    chosen = np.random.default_rng([seed, 5]).permutation(people)[:n_held_out]
    is_held_out = np.isin(labeled.identities, chosen)
    if min(count_shared(labeled.identities[is_held_out]), count_shared(labeled.identities[~is_held_out])) < (
        FEWEST_IDENTITIES
    ):
        return None
    return labeled.take(~is_held_out), labeled.take(is_held_out)

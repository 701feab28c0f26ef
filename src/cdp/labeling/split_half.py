"""Split-half agreement: the threshold without labels where no genuine pairs stand out, and how stable groups are.

Every model is cut into two: its even and its odd dimensions. Each half groups all images by itself, at every threshold. Were the
errors of the halves independent, a genuine pair would be found by both with probability recall², and an impostor by both hardly
ever; so the pairs that both found, relative to those that one found, would be precision · recall. The threshold where the halves agree
best is then about the threshold with the best F, without labels.

The whole is sharper than its halves: genuine pairs are further above chance, so its best threshold is a little higher. As many
pairs pass in the whole as in the halves at a threshold which is an upper end for it; the middle of the two is taken.

Errors that both halves make (lookalikes, images that no model can tell apart) do not show: agreement measures stability, not
correctness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_agreement
from cdp.grouping.components import BYTES_PER_PAIR
from cdp.grouping.group import group, pairs_at
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.similarity import SimilarityScorer
from cdp.scoring.zscore import ZScoredPairs, max_z_score
from cdp.types import Embeddings, Labels, Views
from cdp.types.run_record import EstimatePoint, ThresholdEstimate

THRESHOLDS = tuple(round(1.5 + 0.25 * step, 2) for step in range(35))
"""Z-scores that are tried, from low to high, where the greatest possible one is not low itself."""

_LOW_TOP = 4.0
_QUANTILE = 1.96

Half = tuple[Views, ZScoredPairs]


def score_halves(views: Views, settings: ConsensusSettings, *, seed: int, runtime: Runtime) -> list[Half]:
    """Score the pairs of each half of the models."""
    nobody = np.full(views.n_images, -1, np.int64)
    found = []
    for name, half in zip(("first", "second"), cut_in_two(views), strict=True):
        scorer = SimilarityScorer(settings, seed, part=f"{name} half of ")
        pairs = scorer.score(half, nobody, runtime).scored
        assert isinstance(pairs, ZScoredPairs)
        found.append((half, pairs))
    return found


def group_alone(
    pairs: ZScoredPairs, settings: ConsensusSettings, threshold: float, runtime: Runtime
) -> Labels:
    """Group images at a threshold, on one thread."""
    alone = runtime.here(threads=1)
    return group(pairs_at(pairs, settings, threshold, alone), settings, threshold, runtime=alone)


def thresholds_for(halves: Sequence[Half]) -> tuple[float, ...]:
    """Thresholds to try; lower where an image and itself are hardly more similar than random pairs.

    So it is where few people fill a collection, and random pairs are as unlike as these are.
    """
    top = min(max_z_score(pairs.null) for _, pairs in halves)
    if top >= _LOW_TOP:
        return THRESHOLDS
    return tuple(round(top * (0.2 + 0.02 * step), 3) for step in range(len(THRESHOLDS)))


def agree_on_threshold(
    views: Views,
    whole: ZScoredPairs,
    settings: ConsensusSettings,
    *,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> ThresholdEstimate:
    """Choose the threshold at which the groups of two halves of every model agree best.

    Compared by the lower end of Wilson's 95 % interval over the images in groups, because a handful of near copies always agrees; of
    equal ones the middle one is taken.
    """
    runtime = runtime or Runtime()
    halves = score_halves(views, settings, seed=seed, runtime=runtime)
    thresholds = thresholds_for(halves)

    def measure(threshold: float) -> EstimatePoint:
        first, second = (group_alone(pairs, settings, threshold, runtime) for _, pairs in halves)
        return EstimatePoint(
            threshold=threshold, agreement=measure_agreement(first, second), coverage=_coverage(first, second)
        )

    size = 2 * BYTES_PER_PAIR * max(len(pairs.pairs) for _, pairs in halves)
    curve = []
    with runtime.step("agreement"):
        for point in runtime.map_here(measure, thresholds, block_bytes=size):
            curve.append(point)
            runtime.progress("agreement of two halves", len(curve), len(thresholds))
    ends = [lower_end(point.agreement or 0.0, point.coverage * views.n_images) for point in curve]
    equal = [point for point, end in zip(curve, ends, strict=True) if end == max(ends)]
    best = equal[len(equal) // 2]
    share = float(np.mean([pairs.share_above(best.threshold) for _, pairs in halves]))
    as_many = float(np.quantile(whole.z, 1 - share)) if len(whole.pairs) else best.threshold
    chosen = round((best.threshold + max(as_many, best.threshold)) / 2, 2)
    return ThresholdEstimate(chosen=chosen, agreement=best.agreement, curve=curve)


def lower_end(share: float, count: float) -> float:
    """Lower end of Wilson's 95 % interval for a share measured on `count` images; 0 for none."""
    if not count:
        return 0.0
    square = _QUANTILE**2
    spread = _QUANTILE * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return (share + square / (2 * count) - spread) / (1 + square / count)


def cut_in_two(views: Views) -> tuple[Views, Views]:
    """Split every model into its even and its odd dimensions; nothing is copied."""

    def half(first: int) -> Views:
        models = {
            name: _every_other(name, model, first) for name, model in zip(views.names, views, strict=True)
        }
        return Views(models.pop("base"), models)

    return half(0), half(1)


def _every_other(name: str, model: Embeddings, first: int) -> Embeddings:
    way_out = "set threshold yourself (a z-score of about 5), or leave the model out"
    if model.dimensions < 2:
        raise InputError(
            f"{name}: one dimension cannot be cut in two to choose the threshold; {way_out}.",
            code="halves-one-dimension",
            model=name,
        )
    try:
        return Embeddings(model.source[:, first::2])
    except InputError as error:
        raise InputError(
            f"{name}, every other dimension: {error} To choose no threshold, {way_out}.",
            **error.details(model=name),
        ) from None


def _coverage(*groupings: Labels) -> float:
    return float(np.mean([(one.labels >= 0).mean() for one in groupings]))

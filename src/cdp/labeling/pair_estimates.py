"""The threshold without labels where models separate badly: the z-score with the best expected F of pairs.

Two estimates of precision and recall at every threshold, from the z-scores of all pairs:

- among few images, a mixture of genuine pairs and impostors is fitted to all of them (`cdp.scoring.mixture`);
- among many, far more pairs are impostors than genuine, so the distribution of impostors is fitted to the bulk and extrapolated
  (`cdp.scoring.null_distribution`).

From 1,000 to 4,000 images the one passes into the other. Where no genuine pairs stand out among few images, as among a dozen, the
threshold is the one at which two halves of the models agree best (`cdp.labeling.split_half`).

The agreement of the halves also says how stable the groups are. It measures stability, not correctness: errors shared by both halves
do not show. Where the halves agree no better than by chance, only copies are joined.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_agreement
from cdp.labeling.split_half import agree_on_threshold, group_alone, score_halves
from cdp.runtime.runtime import Runtime
from cdp.scoring.mixture import estimate_curve_of_few
from cdp.scoring.null_distribution import (
    EstimatedCurve,
    SimilarityCounts,
    count_similarities,
    estimate_curve,
)
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.zscore import ZScoredPairs, softness
from cdp.types import KnnGraph, Views
from cdp.types.arrays import LongArray
from cdp.types.run_record import EstimatePoint, ThresholdEstimate

FEW, MANY = 1000, 4000
"""Up to the first number of images the mixture decides, from the second on the null distribution, between them both.

On LFW the mixture is better below, the null distribution above where most people are strangers (`python -m benchmarks unsupervised`).
"""

SAMPLE = 4000
"""Images that split-half agreement is measured on at most."""

_RAISE = 0.43
"""Share of the softness by which the threshold is raised above the best F of pairs, of a mixture: in groups a wrong pair brings others."""

_LOWEST, _HIGHEST = 0.01, 100.0
_CHANCE, _RARE = 0.2, 1.0
"""Agreement of two halves below which there seems to be nothing to agree on, if an image has less than one neighbor above the threshold."""


def estimate_from_pairs(
    views: Views,
    scored: ScoredPairs,
    settings: ConsensusSettings,
    *,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> ThresholdEstimate:
    """Estimate the threshold with the best F, and measure how far two halves of the models agree.

    Args:
        views: of all images.
        scored: their pairs with z-scores (`SimilarityScorer`).
        settings: of section 3.1.
        seed: of samples.
        runtime: how it runs.
    """
    runtime, pairs = runtime or Runtime(), scored.scored
    assert isinstance(pairs, ZScoredPairs)
    with runtime.step("threshold"):
        counts = count_similarities(views, pairs.null, seed, runtime.progress)
    estimated, chosen = _estimate(counts)
    if views.n_images < MANY and not estimated.f.any():
        agreed = agree_on_threshold(views, pairs, settings, seed=seed, runtime=runtime)
        return msgspec.structs.replace(agreed, share_above=counts.share_above(agreed.chosen))
    agreement = _agreement_of_halves(views, scored.fused, settings, seed, runtime)
    is_rare = counts.share_above(chosen) * (views.n_images - 1) < _RARE
    if agreement is not None and agreement < _CHANCE and is_rare:
        # Some pairs always stand out; where nobody is there twice, they are others in every half.
        return ThresholdEstimate(
            chosen=_as_setting(counts.edges[-1]),
            share_above=0.0,
            precision=0.0,
            recall=0.0,
            agreement=agreement,
        )
    at = max(0, int(np.searchsorted(estimated.thresholds, chosen, "right")) - 1)
    return ThresholdEstimate(
        chosen=chosen,
        share_above=counts.share_above(chosen),
        precision=float(estimated.precision[at]),
        recall=float(estimated.recall[at]),
        agreement=agreement,
        curve=_points(estimated),
    )


def _points(estimated: EstimatedCurve) -> list[EstimatePoint]:
    columns = (estimated.thresholds, estimated.precision, estimated.recall)
    return [
        EstimatePoint(threshold=round(threshold, 3), precision=round(precision, 4), recall=round(recall, 4))
        for threshold, precision, recall in zip(*(column.tolist() for column in columns), strict=True)
        if precision > 0
    ]


def _estimate(counts: SimilarityCounts) -> tuple[EstimatedCurve, float]:
    """Precision and recall at all thresholds, and the best threshold."""
    many = min(1.0, max(0.0, math.log(counts.n_images / FEW) / math.log(MANY / FEW)))
    if many == 0:
        few, threshold = _estimate_of_few(counts)
        return few, _as_setting(threshold)
    estimated = estimate_curve(counts)
    threshold = float(estimated.thresholds[estimated.best])
    if many < 1:
        few, of_few = _estimate_of_few(counts)
        if few.f.any():
            threshold = (1 - many) * of_few + many * threshold
            estimated = EstimatedCurve(
                estimated.thresholds,
                (1 - many) * few.precision + many * estimated.precision,
                (1 - many) * few.recall + many * estimated.recall,
            )
    return estimated, _as_setting(threshold)


def _estimate_of_few(counts: SimilarityCounts) -> tuple[EstimatedCurve, float]:
    """The same by the mixture alone."""
    estimated, top = estimate_curve_of_few(counts), float(counts.edges[-1])
    best = estimated.f.argmax() if estimated.f.any() else -1
    return estimated, min(float(estimated.thresholds[best]) + _RAISE * softness(top), top)


def _as_setting(threshold: float) -> float:
    """Clip to the range of the setting."""
    return round(float(np.clip(threshold, _LOWEST, _HIGHEST)), 2)


def _agreement_of_halves(
    views: Views, fused: KnnGraph, settings: ConsensusSettings, seed: int, runtime: Runtime
) -> float | None:
    """Pairwise F between the groups of two halves, each at a threshold of its own; None where a model cannot be cut in two."""
    some = views
    if views.n_images > SAMPLE:
        some = views.take(_sample(fused, seed))
    try:
        halves = score_halves(some, settings, seed=seed, runtime=runtime)
    except InputError:
        return None
    with runtime.step("agreement"):
        groups = []
        for half, pairs in halves:
            _, threshold = _estimate(count_similarities(half, pairs.null, seed, runtime.progress))
            groups.append(group_alone(pairs, settings, threshold, runtime))
        return measure_agreement(*groups)


def _sample(graph: KnnGraph, seed: int) -> LongArray:
    """Draw images with all their neighbors, ascending."""
    drawn = np.random.default_rng([seed, 10]).permutation(graph.n_images)
    taken = np.zeros(graph.n_images, np.bool_)
    for image in drawn:
        taken[image] = True
        near = graph.neighbors[image]
        taken[near[near >= 0]] = True
        if np.count_nonzero(taken) >= SAMPLE:
            break
    return np.flatnonzero(taken)

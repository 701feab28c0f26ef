"""The threshold without labels: the z-score with the best expected F.

Far more pairs are impostors than genuine, so the distribution of impostors can be read off all pairs, and with it the number of
impostors to expect above a threshold (`cdp.scoring.null_distribution`). Whatever else is above it is genuine: so precision and
recall at every threshold are known well enough to take the one with the best F. Among fewer images genuine pairs and
impostors are estimated together (`cdp.scoring.mixture`); among a few dozen it is the threshold at which two halves of the models
agree best (`cdp.labeling.split_half`).

The agreement of the halves says how stable the groups are. It measures stability, not correctness: errors shared by both halves do
not show.
"""

from __future__ import annotations

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
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.zscore import ZScoredPairs, softness
from cdp.types import Views
from cdp.types.run_record import EstimatePoint, ThresholdEstimate

FEW, MANY = 50, 2000
"""Below the first number of images two halves agree on the threshold; from the second on, the null distribution is fitted."""

_RAISE = 0.43
"""Share of the softness by which the threshold is raised above the best F of pairs, of a mixture: in groups a wrong pair brings others."""

_LOWEST, _HIGHEST = 0.01, 100.0
_STABLE, _CHANCE = 0.9, 0.2
"""Agreement of two halves from which on groups are stable, and below which there seems to be nothing to agree on."""


def estimate_threshold(
    views: Views,
    pairs: ZScoredPairs,
    settings: ConsensusSettings,
    *,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> ThresholdEstimate:
    """Estimate the threshold with the best F, and measure how far two halves of the models agree.

    Of very few images, and where no genuine pairs stand out, it is the one on which the halves agree best.
    """
    runtime = runtime or Runtime()
    with runtime.step("threshold"):
        counts = count_similarities(views, pairs.null, seed, runtime.progress)
    estimated, chosen = _estimate(counts)
    if views.n_images < FEW or (views.n_images < MANY and not estimated.f.any()):
        agreed = agree_on_threshold(views, pairs, settings, seed=seed, runtime=runtime)
        return msgspec.structs.replace(agreed, share_above=counts.share_above(agreed.chosen))
    agreement = _agreement_of_halves(views, settings, seed, runtime)
    if agreement is not None and agreement < _CHANCE:
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
    if counts.n_images >= MANY:
        estimated = estimate_curve(counts)
        threshold = estimated.thresholds[estimated.best]
    else:
        estimated = estimate_curve_of_few(counts)
        top, best = counts.edges[-1], estimated.f.argmax() if estimated.f.any() else -1
        threshold = min(estimated.thresholds[best] + _RAISE * softness(top), top)
    return estimated, _as_setting(threshold)


def _as_setting(threshold: float) -> float:
    """Clip to the range of the setting."""
    return round(float(np.clip(threshold, _LOWEST, _HIGHEST)), 2)


def _agreement_of_halves(
    views: Views, settings: ConsensusSettings, seed: int, runtime: Runtime
) -> float | None:
    """Pairwise F between the groups of two halves, each at a threshold of its own; None where a model cannot be cut in two."""
    try:
        halves = score_halves(views, settings, seed=seed, runtime=runtime)
    except InputError:
        return None
    with runtime.step("agreement"):
        groups = []
        for half, pairs in halves:
            _, threshold = _estimate(count_similarities(half, pairs.null, seed, runtime.progress))
            groups.append(group_alone(pairs, settings, threshold, runtime))
        return measure_agreement(*groups)


def describe_estimate(found: ThresholdEstimate) -> str:
    """The note: what was chosen, in words, and how sure that is."""
    text = "Nobody is labeled, so the threshold was estimated without labels"
    if found.precision is not None and not found.curve:
        return (
            f"{text}: only copies are joined, because no pair is more similar than impostors are. Are there several images of "
            "anybody, and does the model get its images as it wants them?"
        )
    text += f": {describe_share(found)} (threshold = {found.chosen:g})."
    if found.precision is not None:
        text += (
            f" About {1 - found.precision:.0%} of these pairs are expected to be wrong, and {1 - (found.recall or 0):.0%} of the "
            "right ones to be missed."
        )
    if found.agreement is None:
        return text
    care = "" if found.agreement >= _STABLE else " Look at the groups with care."
    return (
        f"{text} Two halves of the models make the same groups to a pairwise F of {found.agreement:.3f}; this measures stability, "
        f"not correctness.{care}"
    )


def describe_share(found: ThresholdEstimate) -> str:
    """The threshold among all pairs, in words."""
    if not found.share_above:
        return "more similar than any two images that were compared"
    return f"as similar as only 1 of {round(1 / found.share_above):,} pairs of images"

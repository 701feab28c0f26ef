"""The threshold without labels: the z-score above which two groups are merged, for any number of images.

Models that separate identities well: `cdp.labeling.false_merges` says how far average linkage may merge, and what precision to expect. Up to 2,000
images are compared with each other; of more a sample is drawn with its neighbors, and false merges are expected among all.

Weaker models, and where nobody seems to be there twice: `cdp.labeling.pair_estimates`.
"""

from __future__ import annotations

import math

import numpy as np

from cdp.labeling.false_merges import MergeThreshold, find_merge_threshold
from cdp.labeling.pair_estimates import estimate_from_pairs
from cdp.runtime.runtime import Runtime
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import DEFAULT_THRESHOLDS, ConsensusSettings
from cdp.scoring.zscore import NullStatistics, ZScoredPairs, fused_z_score, max_z_score, softness
from cdp.types import KnnGraph, Views
from cdp.types.arrays import AnyArray, BoolArray, LongArray
from cdp.types.run_record import EstimatePoint, ThresholdEstimate

SAMPLE = 2000
"""Images that are compared with each other."""

_LOWEST, _HIGHEST = 0.01, 100.0
_FEWEST_MERGES = 5
"""Merges from which on a precision is worth saying."""

_POINTS = 60
_STABLE = 0.9
_NEAREST, _CLOSE = 10, 0.6
_FEWEST_RELIABLE = 10


def estimate_threshold(
    views: Views,
    scored: ScoredPairs,
    settings: ConsensusSettings,
    *,
    reliable: BoolArray | None = None,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> ThresholdEstimate:
    """Estimate the best threshold, and the precision to expect there.

    Args:
        views: of all images.
        scored: their pairs with z-scores (`SimilarityScorer`).
        settings: of section 3.1.
        reliable: bool (n,), images to estimate it on; tiny or blurred faces resemble each other. All unless given.
        seed: of the sample.
        runtime: how it runs.
    """
    runtime, pairs = runtime or Runtime(), scored.scored
    assert isinstance(pairs, ZScoredPairs)
    top = max_z_score(pairs.null)
    with runtime.step("threshold"):
        usable = np.flatnonzero(_usable(reliable, views.n_images))
        rows, background = usable, None
        if len(usable) > SAMPLE:
            center = float(np.mean([center for center, _ in pairs.null.models]))
            rows = sample_neighborhoods(scored.fused, SAMPLE, center, seed)
            rows = rows[np.isin(rows, usable)]
            random = np.sort(np.random.default_rng([seed, 11]).permutation(usable)[: SAMPLE // 2])
            background = z_scores_between(views.take(random), pairs.null)
        z = z_scores_between(views.take(rows), pairs.null)
        found = find_merge_threshold(z, top, len(usable), background)
    if found is None:
        return estimate_from_pairs(views, scored, settings, seed=seed, runtime=runtime)
    # Average linkage joins groups whose mean probability is above the default; one pair has it at this distance from the threshold.
    default = DEFAULT_THRESHOLDS["mean probability"]
    shift = softness(top) * math.log((1 - default) / default)
    chosen = _as_setting(min(found.threshold + shift, max(found.threshold, 0.98 * top)))
    above = float((z[np.triu_indices(len(z), 1)] > found.threshold).mean())
    return ThresholdEstimate(
        chosen=chosen,
        share_above=above,
        precision=float(found.precision[found.at]) if found.at + 1 >= _FEWEST_MERGES else None,
        curve=_points(found, shift),
    )


def _points(found: MergeThreshold, shift: float) -> list[EstimatePoint]:
    """The precision to expect at other thresholds, from low to high."""
    drawn = np.unique(np.linspace(0, min(2 * found.at + 1, len(found.heights) - 1), _POINTS).astype(np.int64))
    return [
        EstimatePoint(
            threshold=round(float(found.heights[at]) + shift, 3),
            precision=round(float(found.precision[at]), 4),
        )
        for at in drawn[::-1].tolist()
    ]


def z_scores_between(views: Views, null: NullStatistics) -> AnyArray:
    """Compute the z-scores of all pairs of some images, float64 (n, n)."""
    blocks = [model.block(0, views.n_images) for model in views]
    return fused_z_score([block @ block.T for block in blocks], null)


def _usable(reliable: BoolArray | None, n_images: int) -> BoolArray:
    """Images to estimate the threshold on: the reliable ones, or all where there are hardly any."""
    if reliable is None or np.count_nonzero(reliable) < _FEWEST_RELIABLE:
        return np.ones(n_images, np.bool_)
    return reliable


def sample_neighborhoods(graph: KnnGraph, n_images: int, center: float, seed: int) -> LongArray:
    """Draw images with their close mutual neighbors, ascending: a plain sample would hold hardly two images of one identity.

    An image with m of them is drawn with probability 1 / (1 + m), so that an identity is about as likely to be drawn whether it has few
    images or many.

    Args:
        graph: of all images.
        n_images: how many to draw.
        center: mean similarity of random pairs; a neighbor is close if it is at least 0.6 times as far above it as the nearest.
        seed: of the sample.
    """
    generator = np.random.default_rng([seed, 10])
    lists = graph.neighbors[:, :_NEAREST]
    best = graph.similarity[:, 0]
    taken = np.zeros(graph.n_images, np.bool_)
    count = 0
    order, chances = generator.permutation(graph.n_images), generator.random(graph.n_images)
    for image in order.tolist():
        near = lists[image][graph.similarity[image, :_NEAREST] - center > _CLOSE * (best[image] - center)]
        near = near[(lists[near] == image).any(axis=1)]
        if taken[image] or chances[image] * (1 + len(near)) > 1:
            continue
        new = [one for one in (image, *near.tolist()) if not taken[one]]
        if count + len(new) > n_images:
            break
        taken[new] = True
        count += len(new)
    return np.flatnonzero(taken)


def _as_setting(threshold: float) -> float:
    """Clip to the range of the setting."""
    return round(float(np.clip(threshold, _LOWEST, _HIGHEST)), 2)


def describe_estimate(found: ThresholdEstimate) -> str:
    """Say what was chosen, and how sure that is."""
    text = "Nobody is labeled, so the threshold was estimated without labels"
    if found.precision is not None and not found.curve:
        return (
            f"{text}: only copies are joined, because no pair is more similar than impostors are. Are there several images of "
            "anybody, and does the model get its images as it wants them?"
        )
    text += f": {describe_share(found)} (threshold = {found.chosen:g})."
    if found.precision is not None:
        missed = (
            f", and {1 - found.recall:.0%} of the right ones to be missed" if found.recall is not None else ""
        )
        text += f" About {1 - found.precision:.1%} of the pairs in groups are expected to be wrong{missed}."
    if found.agreement is not None:
        care = "" if found.agreement >= _STABLE else " Look at the groups with care."
        text += f" The models separate badly; two halves of them make the same groups to a pairwise F of {found.agreement:.3f}.{care}"
    return text


def describe_share(found: ThresholdEstimate) -> str:
    """Say in words how few pairs are above the threshold."""
    if not found.share_above:
        return "more similar than any two images that were compared"
    return f"as similar as only 1 of {round(1 / found.share_above):,} pairs of images"

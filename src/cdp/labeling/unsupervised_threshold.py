"""The threshold without labels: the mean z-score above which two groups are merged, for any number of images.

Exact average linkage of all images (`cdp.grouping.exact_linkage`) gives the merges from high to low, and
`cdp.labeling.false_merges` says how far they can be trusted. Where no merge can be, only copies are joined.
"""

from __future__ import annotations

import numpy as np

from cdp.grouping.exact_linkage import link_exactly
from cdp.grouping.union_find import compress_paths, unite_pairs
from cdp.labeling.false_merges import MergeThreshold, find_merge_threshold
from cdp.labeling.merge_steps import LinkedImages
from cdp.runtime.runtime import Runtime
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.zscore import ZScoredPairs, max_z_score
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.run_record import EstimatePoint, ThresholdEstimate

_LOWEST, _HIGHEST = 0.01, 100.0
_FEWEST_MERGES = 5
"""Merges from which on a precision is worth saying."""

_POINTS = 60
_FEWEST_RELIABLE = 10
_LOWEST_MERGE, _LOWEST_OF_TOP = 1.0, 0.25
"""Linkage ends at a mean z-score of 1, or at a quarter of that of an image and itself; impostors are as
similar as that."""

_COPIES = 0.98
"""Share of the z-score of an image and itself from which on two images are copies."""

_COMPARED = 1000
"""Images drawn to say how rare a similarity is."""


def estimate_threshold(
    scored: ScoredPairs,
    *,
    reliable: BoolArray | None = None,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> ThresholdEstimate:
    """Estimate the best threshold, and the precision to expect there.

    Args:
        scored: pairs with z-scores (`SimilarityScorer`).
        reliable: bool (n,), images to estimate it on; tiny or blurred faces resemble each other. All unless
            given.
        seed: of the sample.
        runtime: how it runs.
    """
    runtime, pairs = runtime or Runtime(), scored.scored
    assert isinstance(pairs, ZScoredPairs)
    top = max_z_score(pairs.null)
    with runtime.step("threshold"):
        usable = np.flatnonzero(_usable(reliable, len(pairs.vectors)))
        images = link_images(pairs, usable, runtime)
        found = find_merge_threshold(images, seed)
    if found is None:
        return ThresholdEstimate(chosen=_as_setting(_COPIES * top))
    z = images.similarity(np.random.default_rng([seed, 13]).permutation(len(usable))[:_COMPARED])
    above = float((z[np.triu_indices(len(z), 1)] > found.threshold).mean())
    n_merges = int((images.merges.height > found.threshold).sum())
    return ThresholdEstimate(
        chosen=_as_setting(min(found.threshold, _COPIES * top)),
        softness=found.softness,
        share_above=above,
        precision=float(found.precision[found.at]) if n_merges >= _FEWEST_MERGES else None,
        curve=_points(found),
    )


def _points(found: MergeThreshold) -> list[EstimatePoint]:
    """Return the precision to expect at other thresholds, from low to high."""
    drawn = np.unique(np.linspace(0, min(2 * found.at + 1, len(found.heights) - 1), _POINTS).astype(np.int64))
    return [
        EstimatePoint(
            threshold=round(float(found.heights[at]), 3),
            precision=round(float(found.precision[at]), 4),
        )
        for at in drawn[::-1].tolist()
    ]


def link_images(pairs: ZScoredPairs, rows: LongArray, runtime: Runtime) -> LinkedImages:
    """Run exact average linkage on some images.

    Args:
        pairs: candidate pairs of all images.
        rows: int64 (m,), the images, ascending.
        runtime: its spill files hold the vectors.
    """
    ids, z = _pairs_of(pairs, rows)
    top = max_z_score(pairs.null)
    lowest = min(_LOWEST_MERGE, _LOWEST_OF_TOP * top)
    vectors = pairs.vectors if len(rows) == len(pairs.vectors) else pairs.vectors[rows]
    merges = link_exactly(ids, vectors, pairs.offset, lowest, runtime=runtime)

    def similarity(some: LongArray) -> AnyArray:
        own = vectors[some].astype(np.float32)
        return pairs.offset + own @ own.T

    return LinkedImages(len(rows), merges, _mutual_neighbors(ids, z, len(rows)), similarity, top, lowest)


def _pairs_of(pairs: ZScoredPairs, rows: LongArray) -> tuple[IntArray, AnyArray]:
    """Return the pairs between some images, numbered among these."""
    if len(rows) == pairs.pairs.n_images:
        return pairs.pairs.ids, pairs.z
    number = np.full(pairs.pairs.n_images, -1, np.int32)
    number[rows] = np.arange(len(rows), dtype=np.int32)
    ids = number[pairs.pairs.ids]
    inside = (ids >= 0).all(axis=1)
    return ids[inside], pairs.z[inside]


def _mutual_neighbors(ids: IntArray, z: AnyArray, n_images: int) -> LongArray:
    """Images and their mutual nearest neighbors as the first groups, int64 (n,)."""
    best = np.full(n_images, -np.inf, z.dtype)
    for side in range(2):
        np.maximum.at(best, ids[:, side], z)
    mutual = (z == best[ids[:, 0]]) & (z == best[ids[:, 1]])
    group = np.arange(n_images, dtype=np.int32)
    unite_pairs(group, ids, mutual)
    compress_paths(group)
    found: LongArray = np.unique(group, return_inverse=True)[1].astype(np.int64)
    return found


def _usable(reliable: BoolArray | None, n_images: int) -> BoolArray:
    """Images to estimate the threshold on: the reliable ones, or all where there are hardly any."""
    if reliable is None or np.count_nonzero(reliable) < _FEWEST_RELIABLE:
        return np.ones(n_images, np.bool_)
    return reliable


def _as_setting(threshold: float) -> float:
    """Clip to the range of the setting."""
    return round(float(np.clip(threshold, _LOWEST, _HIGHEST)), 2)


def describe_estimate(found: ThresholdEstimate, subject: str = "Nobody is labeled, so the threshold") -> str:
    """Describe what was chosen, and how sure that is."""
    if found.share_above is None:
        return (
            f"{subject} was estimated without labels: no pair of images is clearly more similar than images "
            "of different people, so only copies are grouped. Check what input the model expects, or label a "
            "few people."
        )
    reached = (
        f"1 of {round(1 / found.share_above):,} pairs of images reaches"
        if found.share_above
        else "no pair reaches"
    )
    text = f"{subject} was estimated without labels: {found.chosen:g}, which {reached}."
    if found.precision is not None:
        text += f" About {1 - found.precision:.1%} of the pairs in groups are expected to be wrong."
    return text

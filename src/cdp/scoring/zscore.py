"""Similarity as z-score: standard deviations above random pairs. Not in the paper.

A cosine of 0.5 is far above chance in one model and common in another. Random pairs are nearly all impostors,
so their similarities are the null distribution. Center and spread are the median and the distance to the
lower 16 % quantile: the few random pairs that are genuine have higher similarities and do not affect them.
The z-scores of the models are averaged, each with a weight that says how well it separates: the median
z-score of mutual nearest neighbors. The average is standardized in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.knn.pair_similarity import similarities
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, Pairs, SimilarityGraph, Softness, Views
from cdp.types.arrays import AnyArray, FloatArray, IntArray

SOFTNESS = 0.7
"""Scale of the logistic function from z-score to probability where the threshold is given, so that no merges
say how fast the probability falls."""

_MAX_SOFTNESS = 1 / 6
"""As a share of the z-score of an image and itself: a wider function would not tell copies from other
pairs."""

_RANDOM_PAIRS = 200_000
_ROWS_PER_BLOCK = 4096
_LOWER = 0.1587
_MIN_SPREAD = 1e-6
_LEAST_HALF_SPREAD = 1e-4
"""Vectors have single precision where spreads are smaller than this: half precision would overflow."""

_FEWEST_NEAR, _LEAST_SEPARATION = 10, 0.1


@dataclass(frozen=True)
class NullStatistics:
    """Center and spread of random pairs, per model and for the mean z-score.

    The models' weights sum to 1.
    """

    models: tuple[tuple[float, float], ...]
    average: tuple[float, float]
    weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ZScoredPairs:
    """Candidate pairs with their z-scores.

    Attributes:
        pairs: candidates.
        z: float32 (m,).
        null: statistics of random pairs.
        vectors: float16 or float32 (n, d); the z-score of any pair is `offset` + their dot product.
        offset: z-score of two vectors whose dot product is 0.
        softness: scales of the logistic function from z-score to probability; None until they are measured.
    """

    pairs: Pairs
    z: FloatArray
    null: NullStatistics
    vectors: AnyArray
    offset: float
    softness: Softness | None = None

    def at(self, threshold: float, above: float) -> SimilarityGraph:
        """Return pairs of probability > `above`; a pair at the threshold has one half."""
        ids, doubts = [np.empty((0, 2), np.int32)], [np.empty(0, np.float32)]
        softness = default_softness(max_z_score(self.null)) if self.softness is None else self.softness
        for start, stop in spans(len(self.pairs), PAIRS_PER_BLOCK):
            doubt = softness.doubt(self.z[start:stop], threshold).astype(np.float32)
            kept = doubt < 1 - above
            ids.append(self.pairs.ids[start:stop][kept])
            doubts.append(doubt[kept])
        return SimilarityGraph(
            ids=np.concatenate(ids),
            doubt=np.concatenate(doubts),
            n_images=self.pairs.n_images,
            vectors=self.vectors,
            offset=self.offset,
            threshold=threshold,
            softness=softness,
        )


def measure_null(views: Views, near: IntArray | None = None, seed: int = 0) -> NullStatistics:
    """Measure center and spread of the similarity of random pairs, in every model and on average.

    Args:
        views: of all images.
        near: int32 (m, 2), mutual nearest neighbors in all models, which say how well each model separates;
            models have equal weights unless given.
        seed: of random pairs.
    """
    generator = np.random.default_rng([seed, 8])
    ids = generator.integers(0, views.n_images, (_RANDOM_PAIRS, 2)).astype(np.int32)
    ids = ids[ids[:, 0] != ids[:, 1]]
    cosines = [_similarities(model, ids) for model in views]
    models = tuple(_center_and_spread(values) for values in cosines)
    weights = (1 / len(models),) * len(models)
    if near is not None and len(near) >= _FEWEST_NEAR and len(models) > 1:
        weights = _separation([_similarities(model, near) for model in views], models)
    return NullStatistics(models, _center_and_spread(_average(cosines, models, weights)), weights)


def _separation(cosines: Sequence[AnyArray], models: tuple[tuple[float, float], ...]) -> tuple[float, ...]:
    """Weights in proportion to the median z-score of near pairs."""
    medians = [
        max(float(np.median((values - center) / spread)), _LEAST_SEPARATION)
        for values, (center, spread) in zip(cosines, models, strict=True)
    ]
    return tuple(median / sum(medians) for median in medians)


def z_score_pairs(views: Views, pairs: Pairs, null: NullStatistics, runtime: Runtime) -> ZScoredPairs:
    """Compute the z-score of every pair in the fused models."""
    z = runtime.empty(len(pairs), np.float32)
    for start, stop in spans(len(pairs), PAIRS_PER_BLOCK):
        z[start:stop] = fused_z_score([similarities(model, pairs.ids[start:stop]) for model in views], null)
    is_narrow = min(null.average[1], *(spread for _, spread in null.models)) < _LEAST_HALF_SPREAD
    shape = (views.n_images, sum(model.dimensions for model in views))
    vectors = runtime.empty(shape, np.float32 if is_narrow else np.float16)
    offset = fused_vectors(views, null, vectors)
    return ZScoredPairs(pairs, z, null, runtime.finished(vectors), offset)


def fused_z_score(cosines: Sequence[AnyArray], null: NullStatistics) -> AnyArray:
    """Average the z-scores of all models, given the cosines in each; arrays of one shape."""
    center, spread = null.average
    z: AnyArray = (_average(cosines, null.models, null.weights) - center) / spread
    return z


def fused_vectors(views: Views, null: NullStatistics, out: AnyArray) -> float:
    """Write vectors whose dot products, plus what is returned, are the fused z-scores.

    Args:
        views: of all images.
        null: statistics of random pairs.
        out: float (n, sum of the models' dimensions), overwritten.
    """
    center, spread = null.average
    parts = list(zip(views, null.models, null.weights, strict=True))
    for start, stop in spans(views.n_images, _ROWS_PER_BLOCK):
        column = 0
        for model, (_, its_spread), weight in parts:
            scale = np.float32(np.sqrt(weight / (its_spread * spread)))
            width = model.dimensions
            out[start:stop, column : column + width] = scale * model.block(start, stop)
            column += width
    return (sum(-weight * mean / its for _, (mean, its), weight in parts) - center) / spread


def max_z_score(null: NullStatistics) -> float:
    """Return the z-score of an image and itself, the greatest there is."""
    return float(fused_z_score([np.ones(1)] * len(null.models), null)[0])


def default_softness(top: float) -> Softness:
    """Return `SOFTNESS`, or less where an image and itself are hardly more similar than random pairs."""
    scale = max(min(SOFTNESS, _MAX_SOFTNESS * top), _MIN_SPREAD)
    return Softness(scale, scale)


def _similarities(model: Embeddings, ids: IntArray) -> FloatArray:
    return np.concatenate(
        [similarities(model, ids[start:stop]) for start, stop in spans(len(ids), PAIRS_PER_BLOCK)]
    )


def _center_and_spread(values: AnyArray) -> tuple[float, float]:
    lower, center = np.quantile(values, [_LOWER, 0.5]).tolist()
    return center, max(center - lower, _MIN_SPREAD)


def _average(
    cosines: Sequence[AnyArray], models: tuple[tuple[float, float], ...], weights: Sequence[float]
) -> AnyArray:
    total = np.zeros(cosines[0].shape)
    for values, (center, spread), weight in zip(cosines, models, weights, strict=True):
        total += weight * (values - center) / spread
    return total

"""Similarity on one scale for all models: how many spreads of random pairs a pair lies above them. Not in the paper.

A cosine of 0.5 is far above chance in one model and quite common in another. Random pairs are nearly all of two identities, so
their similarities say what chance gives. Center and spread are the median and the distance to the lower 16 % quantile: the few
random pairs that are one identity lie above, and do not count. The models' standard similarities are averaged, and the average is
standardized in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK
from cdp.knn.pair_similarity import similarities
from cdp.runtime.spill import SpillFiles
from cdp.types import Embeddings, Pairs, Views
from cdp.types.arrays import AnyArray, FloatArray, IntArray

SOFTNESS = 0.7
"""Standard similarity over which the doubt about a pair falls from 0.73 to 0.27, on either side of the bar.

Wide, so that the average between two groups weighs how similar their pairs are, and not only how many pass; the F of groups then
depends less on the bar.
"""

_SOFTEST = 1 / 6
"""Of the similarity of an image and itself: wider than that, doubt would not tell copies from others."""


_RANDOM_PAIRS = 200_000
_LOWER = 0.1587
_SMALLEST_SPREAD = 1e-6


@dataclass(frozen=True)
class Background:
    """Center and spread of random pairs: of every model, and of the models' average."""

    models: tuple[tuple[float, float], ...]
    average: tuple[float, float]


def measure_background(views: Views, seed: int = 0) -> Background:
    """How similar random pairs of images are, in every model and on average."""
    generator = np.random.default_rng([seed, 8])
    ids = generator.integers(0, views.n_images, (_RANDOM_PAIRS, 2)).astype(np.int32)
    ids = ids[ids[:, 0] != ids[:, 1]]
    seen = [_similarities(model, ids) for model in views]
    models = tuple(_center_and_spread(values) for values in seen)
    return Background(models, _center_and_spread(_average(seen, models)))


def standard_similarities(
    views: Views, pairs: Pairs, background: Background, scratch: SpillFiles | None = None
) -> FloatArray:
    """Of every pair, in all models together, float32 (m,)."""
    out = (scratch or SpillFiles()).empty(len(pairs), np.float32)
    for start in range(0, len(pairs), PAIRS_PER_BLOCK):
        rows = slice(start, start + PAIRS_PER_BLOCK)
        out[rows] = average_similarity([similarities(model, pairs.ids[rows]) for model in views], background)
    return out


def average_similarity(seen: Sequence[AnyArray], background: Background) -> AnyArray:
    """The standard similarity in all models together, of the cosines in each; arrays of one shape."""
    center, spread = background.average
    standard: AnyArray = (_average(seen, background.models) - center) / spread
    return standard


def similarity_to_itself(background: Background) -> float:
    """The standard similarity of an image and itself, the greatest there is."""
    return float(average_similarity([np.ones(1)] * len(background.models), background)[0])


def soften(standard: FloatArray, bar: float, top: float) -> FloatArray:
    """The doubt about pairs: one half at the bar, and soon nothing above it, float32 (m,); `top` as `similarity_to_itself`.

    Soft, because average linkage of a hard yes or no could not tell close groups from closer ones.
    """
    with np.errstate(over="ignore"):
        doubt = 1 / (1 + np.exp((standard.astype(np.float64) - bar) / softness(top)))
    return doubt.astype(np.float32)


def softness(top: float) -> float:
    """`SOFTNESS`, or less where an image and itself are hardly more similar than random pairs."""
    return max(min(SOFTNESS, _SOFTEST * top), _SMALLEST_SPREAD)


def _similarities(model: Embeddings, ids: IntArray) -> FloatArray:
    blocks = range(0, len(ids), PAIRS_PER_BLOCK)
    return np.concatenate([similarities(model, ids[start : start + PAIRS_PER_BLOCK]) for start in blocks])


def _center_and_spread(values: AnyArray) -> tuple[float, float]:
    lower, center = np.quantile(values, [_LOWER, 0.5]).tolist()
    return center, max(center - lower, _SMALLEST_SPREAD)


def _average(seen: Sequence[AnyArray], models: tuple[tuple[float, float], ...]) -> AnyArray:
    total = np.zeros(seen[0].shape)
    for values, (center, spread) in zip(seen, models, strict=True):
        total += (values - center) / spread
    return total / len(seen)

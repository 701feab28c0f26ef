"""The null distribution: how many impostors to expect above a z-score, without labels. Not in the paper.

Nearly all pairs of a collection are impostors, so the bulk of all similarities is the null distribution. Random directions have
cosines with a Beta distribution, and the bulk of real embeddings follows one closely:

    log density(x) = a + b log(1 - x) + c log(1 + x),      x = 0 for a random pair, 1 for an image and itself.

It is fitted just below the similarities where genuine pairs begin, and extrapolated above them. Counts in excess of it are genuine
pairs: this gives precision and recall at every threshold, and the threshold with the best F. The fit range is extended as far as the counts
follow it: first in coarse steps, because in a collection of few identities each has a large share of all pairs; then in careful ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.runtime.progress import Progress, no_progress
from cdp.scoring.zscore import NullStatistics, fused_z_score, max_z_score
from cdp.types import Views
from cdp.types.arrays import AnyArray, DoubleArray

N_BINS = 400
_PAIRS, _FEWEST_ROWS = 40_000_000, 500
_ROWS_PER_BLOCK, _COLUMNS_PER_BLOCK = 128, 8192
_CLOSEST = 40
"""Pairs per image above the end of the fit, down to which it climbs coarsely."""

_FIRST_SHARE, _STEP = 0.4, 0.63
_WIDEST, _NARROWEST = 0.9, 0.1
"""Share of all pairs above the beginning of the fit: three times that above its end, within these."""

_COARSE, _CAREFUL = 1.3, 1.05
"""The fit stops climbing where there are this many times the pairs it expects in the next step."""

_NEARLY = 0.98
"""Of the best F: what counts as nearly as good."""

_LEAST_PRECISION = 0.1
_LEAST_TOP = 1e-9
"""Where all images are copies, an image and itself are no more similar than any other pair."""


@dataclass(frozen=True, eq=False)
class SimilarityCounts:
    """Histogram of the z-scores of all pairs of some images with all others.

    Attributes:
        counts: float64 (b,).
        edges: float64 (b + 1,), z-scores; the last is that of an image and itself.
        n_images: number of images that each was compared with.
    """

    counts: DoubleArray
    edges: DoubleArray
    n_images: int

    def share_above(self, threshold: float) -> float:
        """Share of all pairs with a greater z-score."""
        first = int(np.searchsorted(self.edges[:-1], threshold))
        return float(self.counts[first:].sum() / max(1.0, self.counts.sum()))


@dataclass(frozen=True, eq=False)
class EstimatedCurve:
    """Expected precision and recall of pairs above every edge of the histogram; zero below the range of the fit.

    Attributes:
        thresholds: float64 (b,), from low to high.
        precision: float64 (b,), share of the pairs above that are genuine.
        recall: float64 (b,), share of the genuine pairs that are above.
    """

    thresholds: DoubleArray
    precision: DoubleArray
    recall: DoubleArray

    @property
    def f(self) -> DoubleArray:
        """Harmonic mean of both; 0 where so few pairs are genuine that there may be none."""
        total, sure = self.precision + self.recall, self.precision >= _LEAST_PRECISION
        return np.divide(2 * self.precision * self.recall, total, out=np.zeros_like(total), where=sure)

    @property
    def best(self) -> int:
        """Index of the highest threshold whose F is nearly the best; the last where no genuine pair is expected.

        The highest, because this is the F of pairs: in groups a wrong pair brings others with it.
        """
        return int(np.flatnonzero(self.f >= _NEARLY * self.f.max())[-1])


def count_similarities(
    views: Views, null: NullStatistics, seed: int = 0, progress: Progress = no_progress
) -> SimilarityCounts:
    """Compute the histogram of z-scores between a sample of images and all images."""
    n_images, top = views.n_images, max(max_z_score(null), _LEAST_TOP)
    n_rows = min(n_images, max(_FEWEST_ROWS, _PAIRS // n_images))
    rows = np.sort(np.random.default_rng([seed, 9]).permutation(n_images)[:n_rows])
    counts = np.zeros(N_BINS)
    for start in range(0, n_rows, _ROWS_PER_BLOCK):
        some = rows[start : start + _ROWS_PER_BLOCK]
        seen = [model.take(some) for model in views]
        for first in range(0, n_images, _COLUMNS_PER_BLOCK):
            stop = min(n_images, first + _COLUMNS_PER_BLOCK)
            cosines = [mine @ model.block(first, stop).T for mine, model in zip(seen, views, strict=True)]
            share = fused_z_score(cosines, null) / top
            place = np.clip((share + 1) * (N_BINS / 2), 0, N_BINS - 1).astype(np.int64)
            inside = (some >= first) & (some < stop)
            place[np.flatnonzero(inside), some[inside] - first] = 0  # an image and itself
            counts += np.bincount(place.ravel(), minlength=N_BINS)
        progress("similarities of random pairs", min(start + _ROWS_PER_BLOCK, n_rows), n_rows)
    counts[0] = 0
    return SimilarityCounts(counts, np.linspace(-top, top, N_BINS + 1), n_images)


def estimate_curve(found: SimilarityCounts) -> EstimatedCurve:
    """Estimate precision and recall of pairs at every threshold from the null distribution."""
    expected, start = fit_null(found)
    above, false = (values[::-1].cumsum()[::-1] for values in (found.counts, expected))
    true = np.clip(above - false, 0, above)
    true[:start] = 0
    total = true.max(initial=0.0)
    precision = np.divide(true, above, out=np.zeros(len(above)), where=above > 0)
    recall = true / total if total else np.zeros(len(above))
    return EstimatedCurve(found.edges[:-1], precision, recall)


def fit_null(found: SimilarityCounts) -> tuple[DoubleArray, int]:
    """Fit the null distribution: expected impostors in every bin, float64 (b,), and the bin where the fit ends."""
    counts, n_images = found.counts, found.n_images
    above = counts[::-1].cumsum()[::-1] / max(1.0, counts.sum())

    def bin_of(share: float) -> int:
        return int(np.searchsorted(-above, -share))

    (first, _), *others = _ladder(n_images)
    stop = bin_of(first)
    expected = _fit(counts, bin_of(_WIDEST), stop)
    for share, tolerance in others:
        higher = bin_of(share)
        if counts[stop:higher].sum() > tolerance * expected[stop:higher].sum():
            break
        stop = higher
        expected = _fit(counts, bin_of(min(_WIDEST, max(_NARROWEST, 3 * share))), stop)
    return expected, stop


def _ladder(n_images: int) -> list[tuple[float, float]]:
    """Shares of all pairs above the end of the fit, falling, each with how many times the expected pairs may be there."""
    coarse = [_FIRST_SHARE]
    while coarse[-1] * _STEP * n_images > _CLOSEST:
        coarse.append(coarse[-1] * _STEP)
    careful = [count / n_images for count in (25, 15, 10)]
    return [(share, _COARSE) for share in (*coarse, _CLOSEST / n_images)] + [
        (one, _CAREFUL) for one in careful
    ]


def _fit(counts: DoubleArray, start: int, stop: int) -> DoubleArray:
    """The Beta density through the logarithms of counts in [start, stop), each with the weight of what it counted."""
    stop = max(stop, start + 4)
    n_bins = len(counts)
    x = (np.arange(n_bins) + 0.5) / (n_bins / 2) - 1
    terms: AnyArray = np.stack([np.ones(n_bins), np.log1p(-x), np.log1p(x)], axis=1)
    rows = np.arange(start, min(stop, n_bins))
    rows = rows[counts[rows] > 0]
    if len(rows) < terms.shape[1]:
        return np.zeros(n_bins)
    weight = np.sqrt(counts[rows])
    weight = np.minimum(weight, 5 * np.median(weight))
    found, *_ = np.linalg.lstsq(terms[rows] * weight[:, None], np.log(counts[rows]) * weight, rcond=None)
    expected: DoubleArray = np.exp(np.minimum(terms @ found, 50.0))
    return expected

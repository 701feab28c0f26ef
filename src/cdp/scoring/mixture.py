"""Mixture of impostors and genuine pairs: precision and recall at every threshold among few images, without labels. Not in the paper.

The similarities of all pairs are a mixture of two distributions,

    density(x) = (1 - share) null(x) + share same(x),

of impostors and of genuine pairs. Among few images the latter are too large a share, and the former too few, to
fit the null distribution to a part of the similarities (`cdp.scoring.null_distribution`); so both are fitted to all of them at
once, by expectation maximization. The null distribution is the exponential of a polynomial, because the bulk is skewed in one model
and flat in another; past its mode it falls ever faster. That of genuine pairs is a Beta distribution. The most likely of
several starts is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np

from cdp.scoring.null_distribution import EstimatedCurve, SimilarityCounts
from cdp.types.arrays import AnyArray, DoubleArray

_DEGREE = 5
_STARTS = (0.1, 0.02, 0.005, 0.001)
"""Initial shares of genuine pairs."""

_STEPS, _CLOSE = 80, 2e-8
_FEWEST = 3.0
"""Genuine pairs; fewer are not enough for an estimate."""

_MOST = 0.3
"""Share of genuine pairs, as if one person were on more than half of the photos; a larger component is no identity."""

_NARROWEST = 0.3
"""Spread of genuine pairs, relative to that of impostors."""

_GENUINE_ABOVE = 1.0
"""Genuine pairs are at least so many spreads above the mean of impostors; else a wide component runs away with the bulk of all pairs."""

_LOWEST, _HIGHEST = -4.0, 4.5
"""Range of the polynomial, in spreads of all pairs."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Both distributions over the bins that were fitted.

    Attributes:
        null: float64 (b,), of impostors; sums to 1.
        same: float64 (b,), of genuine pairs.
        share: of genuine pairs among all.
        likelihood: log-likelihood of all pairs.
    """

    null: DoubleArray
    same: DoubleArray
    share: float
    likelihood: float


def estimate_curve_of_few(found: SimilarityCounts) -> EstimatedCurve:
    """Estimate precision and recall of pairs at every threshold by the mixture; zero below the mode of the null distribution.

    All zero where no genuine pairs stand out.
    """
    precision, recall = np.zeros(len(found.counts)), np.zeros(len(found.counts))
    mixture = fit_mixture(found)
    if mixture is not None:
        null, same = (values[::-1].cumsum()[::-1] for values in (mixture.null, mixture.same))
        first = len(precision) - len(null)
        true, false = mixture.share * same, (1 - mixture.share) * null
        np.divide(true, true + false, out=precision[first:], where=true + false > 0)
        recall[first:] = same
        mode = first + int(mixture.null.argmax())
        precision[:mode], recall[:mode] = 0, 0
    return EstimatedCurve(found.edges[:-1], precision, recall)


def fit_mixture(found: SimilarityCounts) -> Mixture | None:
    """Fit the most likely mixture, over the bins from the first that is not empty; None where there is none."""
    taken = np.flatnonzero(found.counts)
    if not len(taken):
        return None
    counts = found.counts[taken[0] :] / 2  # every pair was counted from both its images
    x = (found.edges[1:] + found.edges[:-1])[taken[0] :] / 2
    above = counts[::-1].cumsum()[::-1] / counts.sum()
    starts = [
        x[min(len(x) - 1, int(np.searchsorted(-above, -share)))]
        for share in _STARTS
        if share * counts.sum() >= _FEWEST
    ]
    ends = [_climb(counts, x, float(found.edges[-1]), start) for start in starts]
    return max((one for one in ends if one is not None), key=lambda one: one.likelihood, default=None)


def _climb(counts: DoubleArray, x: DoubleArray, top: float, start: float) -> Mixture | None:
    """Run expectation maximization, with pairs above `start` as genuine ones at first."""
    mean, spread = _moments(counts, x)
    if not spread:
        return None
    terms = _polynomials(np.clip((x - mean) / spread, _LOWEST, _HIGHEST))
    coefficients = np.zeros(_DEGREE + 1)
    coefficients[2] = -0.5 * np.sqrt(2)  # a normal distribution
    coefficients[0] = np.log(counts.sum() / np.exp(terms @ coefficients).sum())
    is_same: DoubleArray = 1 / (1 + np.exp(-np.clip((x - start) / (3 * (x[1] - x[0])), -50, 50)))
    found: Mixture | None = None
    for step in range(_STEPS):
        ones, others = counts * is_same, counts * (1 - is_same)
        share = ones.sum() / counts.sum()
        if ones.sum() < _FEWEST or share > _MOST:
            return None
        (center, width), (mean, spread) = _moments(ones, x), _moments(others, x)
        same = _beta(x, top, center, max(width, _NARROWEST * spread))
        try:
            coefficients = _fit_null(terms, others, coefficients, 2 if step else 8)
        except np.linalg.LinAlgError:  # the polynomial ran away
            return None
        null = _falling(terms @ coefficients)
        both = (1 - share) * null + share * same + 1e-300
        is_same = np.where(x < mean + _GENUINE_ABOVE * spread, 0.0, share * same / both)
        before, likelihood = found, float((counts * np.log(both)).sum())
        if not np.isfinite(likelihood):
            return None
        found = Mixture(null, same, float(share), likelihood)
        if before is not None and abs(likelihood - before.likelihood) < _CLOSE * abs(likelihood):
            break
    return found


def _moments(weight: DoubleArray, x: DoubleArray) -> tuple[float, float]:
    mean = float((weight * x).sum() / weight.sum())
    return mean, float(np.sqrt((weight * (x - mean) ** 2).sum() / weight.sum()))


def _polynomials(u: DoubleArray) -> AnyArray:
    """Hermite polynomials of length one under the normal distribution, float64 (b, degree + 1)."""
    lengths = np.sqrt([factorial(degree) for degree in range(_DEGREE + 1)])
    values: AnyArray = np.polynomial.hermite_e.hermevander(u, _DEGREE) / lengths
    return values


def _fit_null(terms: AnyArray, counts: DoubleArray, coefficients: DoubleArray, steps: int) -> DoubleArray:
    """Take damped Newton steps towards the maximum-likelihood coefficients."""
    tiny = 1e-9 * counts.sum() * np.eye(len(coefficients))
    for _ in range(steps):
        expected = np.exp(np.minimum(terms @ coefficients, 40.0))
        slope = terms.T @ (counts - expected)
        change = np.linalg.solve((terms * expected[:, None]).T @ terms + tiny, slope)
        coefficients = coefficients + change * min(1.0, 1 / max(float(np.abs(change).max()), 1e-9))
    return coefficients


def _falling(logarithm: DoubleArray) -> DoubleArray:
    """Exponentiate and normalize a log-density, made concave past its mode; sums to 1."""
    mode, slope = int(logarithm.argmax()), np.diff(logarithm)
    slope[mode:] = np.minimum.accumulate(slope[mode:])
    return _normalized(np.concatenate([[0.0], slope.cumsum()]))


def _beta(x: DoubleArray, top: float, mean: float, spread: float) -> DoubleArray:
    """A Beta distribution from -top to top by its mean and spread; sums to 1."""
    y = np.clip((x / top + 1) / 2, 1e-6, 1 - 1e-6)
    center = float(np.clip((mean / top + 1) / 2, 0.02, 0.995))
    size = center * (1 - center) / min((spread / top / 2) ** 2, 0.9 * center * (1 - center)) - 1
    return _normalized((center * size - 1) * np.log(y) + ((1 - center) * size - 1) * np.log1p(-y))


def _normalized(logarithm: DoubleArray) -> DoubleArray:
    density: DoubleArray = np.exp(logarithm - logarithm.max())
    density /= density.sum()
    return density

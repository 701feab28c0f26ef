"""Confidence intervals by resampling identities, and the paired comparison of two networks.

Pairs of one person rise and fall together, so resampling pairs would give far too narrow intervals. Here
identities are drawn with replacement. The pairs of one person count as often as the person was drawn; a pair
of two people counts as often as one was drawn times as often as the other was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cdp.errors import InputError
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, LongArray

LEVEL = 0.95


class Interval(NamedTuple):
    """Interval of a figure in 95 % of the resamplings."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One figure of two networks, measured on the same resamplings.

    Attributes:
        figure: of the network measured.
        against: of the other network.
        interval: of the difference; None without resampling.
        verdict: `better`, `worse`, or `no significant difference` where the interval holds zero; None without
            one.
    """

    name: str
    figure: float
    against: float
    difference: float
    interval: Interval | None
    verdict: str | None


def draw_identities(n_identities: int, seed: int, replicate: int) -> DoubleArray:
    """Return how often every identity is drawn in one resampling, float64 (n,); the same for all networks."""
    generator = np.random.default_rng([seed, replicate])
    drawn = generator.integers(0, n_identities, n_identities)
    return np.bincount(drawn, minlength=n_identities).astype(np.float64)


def number_by_appearance(identities: AnyArray) -> LongArray:
    """Identities as 0..n-1 in the order they first appear, so that names and numbers are resampled alike."""
    _, first, group = np.unique(identities, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group.ravel()]


def check_replicates(replicates: int) -> None:
    """Refuse so few resamplings that the interval itself would be chance."""
    if replicates < 0 or 0 < replicates < 20:
        raise InputError(
            f"replicates={replicates}: use 0 for no intervals, or at least 20 (usual: 1000).",
            code="replicates-too-few",
            value=replicates,
        )


def interval(values: DoubleArray) -> Interval | None:
    """Return the middle 95 % of a figure's resamplings; None where there are none, or most are undefined."""
    defined = values[np.isfinite(values)]
    if len(defined) < max(1, len(values) // 2):
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def compare(
    name: str,
    figure: float,
    against: float,
    replicates: DoubleArray,
    against_replicates: DoubleArray,
    *,
    lower_is_better: bool = False,
) -> Comparison:
    """Compare two networks' figures under the same resamplings: difference and significance."""
    difference = interval(replicates - against_replicates)
    verdict = None
    if difference is not None:
        verdict = "no significant difference"
        if difference.low > 0 or difference.high < 0:
            verdict = "better" if (difference.low > 0) != lower_is_better else "worse"
    return Comparison(name, figure, against, figure - against, difference, verdict)


def joined_identities(ends: LongArray, same: BoolArray, n_images: int) -> LongArray:
    """Identities as far as a list of pairs gives them: images joined by same pairs are one identity.

    Images that no same pair joins count as identities of their own, so intervals come out a little too narrow
    where the list leaves out that two of them are one person.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    one, other = ends[same].T
    links = coo_array((np.ones(len(one), bool), (one, other)), shape=(n_images, n_images))
    return np.asarray(connected_components(links, directed=False)[1], np.int64)

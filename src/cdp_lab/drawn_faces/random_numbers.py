"""Random numbers as a function of their purpose, independent of order, threads and amounts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from cdp.types.arrays import AnyArray, BoolArray, DoubleArray

Keys = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def keys(seed: int, purpose: int, *numbers: AnyArray) -> Keys:
    """One key per row for (seed, purpose, number, number, ...)."""
    key = _mix(np.array([seed], np.uint64) + _GOLDEN * np.array([purpose + 1], np.uint64))
    for number in numbers:
        key = _mix(key + _GOLDEN * (np.asarray(number).astype(np.uint64) + np.uint64(1)))
    return key


def uniforms(key: Keys, n_columns: int) -> DoubleArray:
    """Numbers in (0, 1), f8 (rows, n_columns); a column does not depend on how many there are."""
    counter = _GOLDEN * np.arange(1, n_columns + 1, dtype=np.uint64)
    bits = _mix(key[:, None] + counter) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


def _mix(bits: Keys) -> Keys:
    """Return the finalizer of SplitMix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class Columns:
    """Hands out the columns of a table of uniform numbers, each once, in the form that is asked for."""

    def __init__(self, table: DoubleArray) -> None:
        self._columns: Iterator[DoubleArray] = iter(table.T)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> DoubleArray:
        """Evenly between two bounds."""
        return low + (high - low) * next(self._columns)

    def normal(self, middle: float = 0.0, spread: float = 1.0, most: float = 2.2) -> DoubleArray:
        """Around a middle, never further from it than `most` spreads."""
        standard: DoubleArray = np.clip(ndtri(next(self._columns)), -most, most)
        return middle + spread * standard

    def chance(self, probability: float) -> BoolArray:
        """Draw True with a probability."""
        return next(self._columns) < probability

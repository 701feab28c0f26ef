"""`Softness`: how z-scores become probabilities."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cdp.types.arrays import AnyArray


class Softness(NamedTuple):
    """Scales of the logistic function from z-score to probability, which is one half at the threshold.

    Above the threshold it says how sure groups are, below it how likely groups were not merged: where a wide
    gap separates the two, one scale would not do for both.
    """

    above: float
    below: float

    def probability(self, z: AnyArray, threshold: float) -> AnyArray:
        """Compute the probability at z-scores."""
        mirrored = Softness(self.below, self.above)
        return mirrored.doubt(2 * threshold - np.asarray(z, np.float64), threshold)

    def doubt(self, z: AnyArray, threshold: float) -> AnyArray:
        """Compute 1 - probability, float64; it does not saturate where the probability is nearly 1."""
        far = np.asarray(z, np.float64) - threshold
        with np.errstate(over="ignore"):
            doubt: AnyArray = 1 / (1 + np.exp(far / np.where(far > 0, self.above, self.below)))
        return doubt

    def z_score(self, probability: float, threshold: float) -> float:
        """Compute the z-score at a probability between 0 and 1."""
        scale = self.above if probability > 0.5 else self.below
        return threshold + scale * math.log(probability / (1 - probability))

"""Mean and standard deviation over seeds, which differences are called significant, and exponents of growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, linear_regression, stdev

Values = Sequence[float | None]

BEST, SAME, WORSE, UNKNOWN = "best", "no significant difference", "behind", ""


def summarize(values: Values) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation of what is known; no deviation of a single value."""
    known = [value for value in values if value is not None]
    return (fmean(known) if known else None), (stdev(known) if len(known) > 1 else None)


def is_significant(one: Values, other: Values) -> bool:
    """Whether the means differ by more than sqrt(sd1² + sd2²), the standard deviation of such a difference.

    A rule of thumb, not a test: with few seeds a difference that passes is a hint, and one that does not is not called any.
    """
    (mean, sd), (other_mean, other_sd) = summarize(one), summarize(other)
    if mean is None or other_mean is None or sd is None or other_sd is None:
        return False
    return abs(mean - other_mean) > math.hypot(sd, other_sd)


def verdicts(rows: Sequence[Values], better: str = "high") -> list[str]:
    """For every row: the best, no significant difference from it, or behind it; nothing without a standard deviation."""
    sign = -1 if better == "low" else 1
    means = {
        number: sign * mean for number, row in enumerate(rows) if (mean := summarize(row)[0]) is not None
    }
    best = max(means, key=lambda number: means[number], default=-1)
    if len(means) < 2 or summarize(rows[best])[1] is None:
        return [UNKNOWN] * len(rows)

    def verdict(number: int) -> str:
        if number == best:
            return BEST
        if summarize(rows[number])[1] is None:
            return UNKNOWN
        return WORSE if is_significant(rows[best], rows[number]) else SAME

    return [verdict(number) for number in range(len(rows))]


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """The slope of log(value) over log(size), by least squares: 1 = grows in proportion."""
    points = [(math.log(n), math.log(v)) for n, v in zip(sizes, values, strict=True) if n > 0 and v > 0]
    if len({x for x, _ in points}) < 2:
        return None
    return linear_regression([x for x, _ in points], [y for _, y in points]).slope

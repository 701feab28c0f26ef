"""Mean and spread over seeds, and whether two rows differ by more than that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

Values = Sequence[float | None]

BEST, SAME, WORSE, UNKNOWN = "best", "not told apart", "behind", ""


def summarize(values: Values) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation of what is known; no deviation of a single value."""
    known = [value for value in values if value is not None]
    return (fmean(known) if known else None), (stdev(known) if len(known) > 1 else None)


def is_told_apart(one: Values, other: Values) -> bool:
    """Whether the means differ by more than the spread of such a difference, sqrt(sd1² + sd2²).

    A modest bar: with few seeds a difference that passes is a hint, and one that does not is not called any.
    """
    (mean, sd), (other_mean, other_sd) = summarize(one), summarize(other)
    if mean is None or other_mean is None or sd is None or other_sd is None:
        return False
    return abs(mean - other_mean) > math.hypot(sd, other_sd)


def verdicts(rows: Sequence[Values], better: str = "high") -> list[str]:
    """For every row: the best, not told apart from it, or behind it; nothing where there is one seed or no figure."""
    means = [summarize(row)[0] for row in rows]
    known = [(mean if better != "low" else -mean, at) for at, mean in enumerate(means) if mean is not None]
    if len(known) < 2:
        return [UNKNOWN] * len(rows)
    best = max(known, key=lambda pair: (pair[0], -pair[1]))[1]
    if summarize(rows[best])[1] is None:
        return [UNKNOWN] * len(rows)
    told = []
    for at, row in enumerate(rows):
        if at == best:
            told.append(BEST)
        elif means[at] is None or summarize(row)[1] is None:
            told.append(UNKNOWN)
        else:
            told.append(WORSE if is_told_apart(rows[best], row) else SAME)
    return told


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """The slope of log(value) over log(size), by least squares: 1 = grows in proportion."""
    points = [(math.log(n), math.log(v)) for n, v in zip(sizes, values, strict=True) if n > 0 and v > 0]
    if len({x for x, _ in points}) < 2:
        return None
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread

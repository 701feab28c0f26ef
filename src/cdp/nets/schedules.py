"""How fast to learn at each step; pure functions, so that a rerun learns at the same rate."""

from __future__ import annotations

import math


def paper_rate(step: int, n_steps: int, rate: float) -> float:
    """The paper's schedule: a tenth from 2/3.5 of the run on, a hundredth from 3/3.5 on."""
    if step * 3.5 >= 3 * n_steps:
        return rate / 100
    if step * 3.5 >= 2 * n_steps:
        return rate / 10
    return rate


def one_cycle_rate(step: int, n_steps: int, rate: float, warm: float = 0.25) -> float:
    """One rise and one fall, both cosine-shaped, for short runs: from rate/25 up to rate, down to rate/10000."""
    top = warm * n_steps
    low, last = rate / 25, rate / 10_000
    if step < top:
        return low + (rate - low) * (1 - math.cos(math.pi * step / top)) / 2
    part = (step - top) / max(1.0, n_steps - 1 - top)
    return last + (rate - last) * (1 + math.cos(math.pi * min(1.0, part))) / 2


SCHEDULES = {"paper": paper_rate, "one_cycle": one_cycle_rate}

"""Second-order pair features: what the probabilities of other pairs say about a pair.

If two images are both probably the same as a third, they are probably one person; if one is tied to many that
are candidates of the other and improbable there, they are probably not.
"""

from __future__ import annotations

import numpy as np

from cdp.runtime.kernels import kernel
from cdp.types.arrays import FloatArray, IntArray, LongArray

COLUMNS = (
    "probability", "common support", "strongest path", "contradiction", "agreed neighbors", "smaller total",
    "larger total", "share of the smaller", "share of both", "smaller rest", "larger rest",
)  # fmt: skip


@kernel
def second_order(
    ids: IntArray,
    probability: FloatArray,
    starts: LongArray,
    neighbors: IntArray,
    weights: FloatArray,
    out: FloatArray,
) -> None:
    """Write the columns of `COLUMNS` about every pair into `out` (m, 11).

    With p(i, c) the probabilities of the candidates, over the common candidates c of i and j other than
    themselves: common support = sum p(i, c) p(j, c); strongest path = max min; contradiction = sum of the
    larger times one minus the smaller; a total is the sum of all p of an image, a rest the part of it that
    the other image has no candidate for.

    Lists of candidates (`build_adjacency`) are ascending, as they come from sorted pairs.
    """
    for row in range(len(ids)):
        one = ids[row, 0]
        other = ids[row, 1]
        total_one: float = 0.0
        for at in range(starts[one], starts[one + 1]):
            total_one += weights[at]
        total_other, both, strongest, against, agreed, rest_other = 0.0, 0.0, 0.0, 0.0, 0, 0.0
        rest_one = total_one
        place, end = starts[one], starts[one + 1]
        for at in range(starts[other], starts[other + 1]):
            third = neighbors[at]
            mine = weights[at]
            total_other += mine
            while place < end and neighbors[place] < third:
                place += 1
            is_common = place < end and neighbors[place] == third
            theirs = weights[place] if is_common else np.float32(0)
            rest_one -= float(theirs)
            if third == one:
                continue
            if is_common:
                both += mine * theirs
                least = min(mine, theirs)
                strongest = max(strongest, least)
                against += max(mine, theirs) * (1 - least)
                if least > 0.5:
                    agreed += 1
            else:
                rest_other += mine
        out[row, 0] = probability[row]
        out[row, 1] = both
        out[row, 2] = strongest
        out[row, 3] = against
        out[row, 4] = agreed
        out[row, 5] = min(total_one, total_other)
        out[row, 6] = max(total_one, total_other)
        out[row, 7] = both / (min(total_one, total_other) + 1e-3)
        out[row, 8] = both / (total_one + total_other - both + 1e-3)
        out[row, 9] = min(rest_one, rest_other)
        out[row, 10] = max(rest_one, rest_other)

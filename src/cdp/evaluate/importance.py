"""How much the mediator needs each kind of input: average precision lost when that kind is shuffled."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.types.arrays import FloatArray
from cdp.types.opinions import block_columns
from cdp.types.run_record import Importance


class FittedMediator(Protocol):
    """What is needed of a mediator: its committee, its inputs, and its doubt about pairs."""

    @property
    def committee(self) -> tuple[str, ...]:
        """Names of the committee members."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input blocks."""

    def doubt(self, matrix: FloatArray) -> FloatArray:
        """1 - probability that a pair is one identity, float32 (m,)."""


def permutation_importance(
    mediator: FittedMediator, matrix: FloatArray, same: npt.ArrayLike, seed: int, repeats: int = 5
) -> list[Importance]:
    """For every input block, how far average precision falls when its columns are shuffled among the pairs.

    The columns of a block move together, so each pair gets the block of some other pair, whole. Average
    precision asks for the order of the pairs only: accuracy would depend on a threshold, and near certainty
    it would not move at all. Blocks that repeat one another each look less important than they are together.

    Args:
        matrix: float32 (m, inputs), features of pairs; best of pairs that it was not fitted to.
        same: bool (m,), whether the pair is one identity.
        seed: of the shuffling; every repeat shuffles all blocks alike.
        repeats: shuffles per block.
    """
    truth = np.asarray(same, np.bool_)
    blocks = block_columns(mediator.committee, mediator.inputs)
    n_columns = sum(map(len, blocks.values()))
    if matrix.shape != (len(truth), n_columns):
        raise InputError(
            f"permutation_importance: features have shape {matrix.shape}, expected "
            f"{(len(truth), n_columns)}: a row per pair, a column per input of the mediator.",
            code="importance-shape-wrong",
            expected=(len(truth), n_columns),
            found=matrix.shape,
        )
    if not truth.any() or truth.all():
        kind = "one identity" if truth.any() else "two identities"
        raise InputError(
            f"permutation_importance: all {len(truth):,} pairs are of {kind}; both kinds are needed.",
            code="importance-pairs-one-sided",
            pairs=len(truth),
        )
    if repeats < 1:
        raise InputError(
            f"permutation_importance(repeats={repeats}): shuffle at least once.",
            code="importance-repeats-too-few",
            value=repeats,
        )
    from sklearn.metrics import average_precision_score

    def precision(features: FloatArray) -> float:
        return float(average_precision_score(truth, -mediator.doubt(features)))

    orders = [np.random.default_rng([seed, repeat]).permutation(len(matrix)) for repeat in range(repeats)]
    whole = precision(matrix)
    found = []
    for block, columns in blocks.items():
        drops = []
        for order in orders if columns else ():
            shuffled = matrix.copy()
            shuffled[:, columns] = matrix[order][:, columns]
            drops.append(whole - precision(shuffled))
        drop, sd = float(np.mean(drops or [0])), float(np.std(drops or [0]))
        found.append(Importance(block=block, drop=drop, sd=sd))
    return found

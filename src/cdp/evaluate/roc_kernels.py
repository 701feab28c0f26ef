"""One walk down the pairs, most similar first: false accepts, true accepts and all that follows from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.errors import InputError
from cdp.runtime.kernels import kernel
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, FloatArray, LongArray

# The thresholds the field chooses from, since the first published script: squared distances 0, 0.01 ... 3.99
# of unit vectors, which are similarities 1, 0.995 ... -0.995. Strictest first: the strictest of equally good
# ones wins.
_THRESHOLDS: DoubleArray = 1 - np.arange(0, 4, 0.01) / 2


class OrderedPairs(NamedTuple):
    """Pairs, most similar first.

    Attributes:
        similarity: float32 (m,), falling.
        same: bool (m,).
        one, other: int32 (m,), numbers of the two identities.
        ends_tie: bool (m,), whether the next pair is less similar.
        correct: bool (m,), whether the pair was decided correctly at its fold's threshold.
    """

    similarity: FloatArray
    same: BoolArray
    one: AnyArray
    other: AnyArray
    ends_tie: BoolArray
    correct: BoolArray


class Walk(NamedTuple):
    """What one walk found, at every FPR asked for.

    Attributes:
        tpr: share of the same pairs accepted.
        false_accepts: weight of the different pairs accepted (their number where all weigh 1).
        thresholds: pairs with a greater similarity are accepted.
        accuracy: of the decisions in `correct`.
    """

    tpr: DoubleArray
    false_accepts: DoubleArray
    thresholds: DoubleArray
    eer: float
    accuracy: float


class Folds(NamedTuple):
    """Accuracy and threshold of every fold, and which pairs were decided correctly."""

    accuracies: DoubleArray
    thresholds: DoubleArray
    correct: BoolArray


def order_pairs(
    similarity: FloatArray, same: BoolArray, identities: LongArray, correct: BoolArray | None
) -> OrderedPairs:
    """Pairs sorted for walks."""
    order = np.argsort(-similarity, kind="stable")
    falling = similarity[order]
    return OrderedPairs(
        falling,
        same[order],
        identities[order, 0].astype(np.int32),
        identities[order, 1].astype(np.int32),
        np.append(falling[1:] < falling[:-1], True),
        np.zeros(len(order), bool) if correct is None else correct[order],
    )


def walk(pairs: OrderedPairs, weights: DoubleArray, fprs: DoubleArray) -> Walk:
    """ROC figures where a same pair weighs its identity's weight, a different pair the product of both.

    Args:
        pairs: most similar first.
        weights: float64 (identities,); all 1 for the figures themselves.
        fprs: where to read the curve, in any order.
    """
    order = np.argsort(fprs, kind="stable")
    tpr, accepts, thresholds = (np.empty(len(fprs)) for _ in range(3))
    share_same = float(pairs.same.mean())
    eer, accuracy = _walk(*pairs, share_same, weights, fprs[order], tpr, accepts, thresholds)
    back = np.argsort(order)
    return Walk(tpr[back], accepts[back], thresholds[back], eer, accuracy)


@kernel
def _walk(
    similarity: FloatArray,
    same: BoolArray,
    one: AnyArray,
    other: AnyArray,
    ends_tie: BoolArray,
    correct: BoolArray,
    share_same: float,
    weights: DoubleArray,
    fprs: DoubleArray,
    tpr: DoubleArray,
    accepts: DoubleArray,
    thresholds: DoubleArray,
) -> tuple[float, float]:
    genuine = impostor = genuine_right = impostor_right = 0.0
    for pair in range(len(same)):
        if same[pair]:
            genuine += weights[one[pair]]
            genuine_right += weights[one[pair]] * correct[pair]
        else:
            both = weights[one[pair]] * weights[other[pair]]
            impostor += both
            impostor_right += both * correct[pair]
    if genuine == 0 or impostor == 0:
        tpr[:] = np.nan
        accepts[:] = 0
        thresholds[:] = np.nan
        return np.nan, np.nan
    # true and false: accepted up to the last finished group of ties; new_*: including the group under way.
    true = false = new_true = new_false = 0.0
    eer = -1.0
    at = 0
    for pair in range(len(same)):
        if same[pair]:
            new_true += weights[one[pair]]
        else:
            new_false += weights[one[pair]] * weights[other[pair]]
        if not ends_tie[pair]:
            continue
        while at < len(fprs) and new_false > fprs[at] * impostor + 1e-9:
            tpr[at] = true / genuine
            accepts[at] = false
            thresholds[at] = similarity[pair]
            at += 1
        # Multiplied crosswise, which is exact for whole weights.
        if eer < 0 and new_false * genuine >= (genuine - new_true) * impostor:
            # The two error rates cross between two points of the curve; straight lines in between.
            gap = 1 - true / genuine - false / impostor
            closing = (new_true - true) / genuine + (new_false - false) / impostor
            share = gap / closing if closing > 0 else 0.0
            eer = false / impostor + share * (new_false - false) / impostor
        true, false = new_true, new_false
    while at < len(fprs):
        tpr[at] = 1.0
        accepts[at] = false
        thresholds[at] = -2.0
        at += 1
    accuracy = share_same * genuine_right / genuine + (1 - share_same) * impostor_right / impostor
    return eer, accuracy


def best_accuracy(pairs: OrderedPairs) -> tuple[float, float]:
    """Return the best share of correct decisions of any threshold on all pairs, and that threshold."""
    true, false = np.cumsum(pairs.same), np.cumsum(~pairs.same)
    right = np.append(false[-1], (true + false[-1] - false)[pairs.ends_tie])
    # A pair is accepted if it is more similar than the first one refused.
    refused = np.append(pairs.similarity[0], np.append(pairs.similarity[1:], -2.0)[pairs.ends_tie])
    best = int(np.argmax(right))
    return float(right[best] / len(pairs.same)), float(refused[best])


def fold_accuracies(similarity: FloatArray, same: BoolArray, folds: LongArray) -> Folds:
    """Accuracy of every fold at the threshold that is best on all other folds.

    The thresholds tried are the field's own 400, so that figures can be compared with published ones; of
    equally good ones the strictest is taken. A pair is accepted if its similarity is greater.
    """
    numbers = np.unique(folds)
    if len(numbers) < 2:
        raise InputError(
            "Verification: at least two folds are needed; one chooses the other's threshold.",
            code="folds-too-few",
        )
    right = np.empty((len(numbers), len(_THRESHOLDS)), np.int64)
    for row, fold in enumerate(numbers):
        inside = folds == fold
        accepted = np.sort(similarity[inside & same].astype(np.float64))
        refused = np.sort(similarity[inside & ~same].astype(np.float64))
        right[row] = len(accepted) - np.searchsorted(accepted, _THRESHOLDS, side="right")
        right[row] += np.searchsorted(refused, _THRESHOLDS, side="right")
    best = np.argmax(right.sum(axis=0) - right, axis=1)
    fold_of = np.searchsorted(numbers, folds)
    correct: BoolArray = (similarity > _THRESHOLDS[best][fold_of]) == same
    rates = right[np.arange(len(numbers)), best] / np.bincount(fold_of)
    return Folds(rates, _THRESHOLDS[best], correct)

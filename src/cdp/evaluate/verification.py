"""Verification: do two images show one person? TPR at FPR, ROC, equal error rate, accuracy over folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.evaluate.bootstrap import (
    Comparison,
    Interval,
    check_replicates,
    compare,
    draw_identities,
    interval,
    joined_identities,
    number_by_appearance,
)
from cdp.evaluate.roc_kernels import Walk, best_accuracy, fold_accuracies, order_pairs, walk
from cdp.graph.exact import similarities
from cdp.parallel import map_blocks, spans
from cdp.progress import Progress, no_progress
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, FloatArray, LongArray, read_only

FPRS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
_CURVE: DoubleArray = np.logspace(-6, 0, 61)
_PAIR_ROWS = 2**18


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs, how similar one network finds them, and who is in them.

    Attributes:
        similarity: float32 (m,).
        same: bool (m,).
        identities: int64 (m, 2), who the two ends show; only used to resample.
        folds: int64 (m,), or None.
    """

    similarity: FloatArray
    same: BoolArray
    identities: LongArray
    folds: LongArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "similarity", read_only(self.similarity, np.float32))
        object.__setattr__(self, "same", read_only(self.same, np.bool_))
        object.__setattr__(self, "identities", read_only(self.identities, np.int64))
        if not self.same.any() or self.same.all():
            raise InputError("Verification: pairs of one identity and pairs of two are both needed.")


@dataclass(frozen=True)
class TprAtFpr:
    """Share of same pairs accepted where at most a share `fpr` of the different pairs is.

    Attributes:
        fpr: the share of different pairs allowed.
        tpr: mean over the splits; None where it would rest on no false accept at all.
        sd: standard deviation over the splits; None with one split.
        false_accepts: different pairs accepted there, the fewest of all splits.
        threshold: pairs with a greater similarity are accepted; None with several splits.
        interval: from resampled identities.
        reason: why there is no figure.
    """

    fpr: float
    tpr: float | None
    sd: float | None
    false_accepts: int
    threshold: float | None
    interval: Interval | None
    reason: str | None = None


@dataclass(frozen=True)
class FoldAccuracy:
    """Accuracy of every fold at the threshold that is best on the other folds; sd over the folds."""

    mean: float
    sd: float
    folds: tuple[float, ...]
    thresholds: tuple[float, ...]
    interval: Interval | None


@dataclass(frozen=True, eq=False)
class Verification:
    """All figures of one network on one protocol; with several splits, means over them.

    Attributes:
        pairs: number of pairs, all splits together.
        impostors: how many of them are different identities.
        identities: how many people were resampled.
        splits: number of splits.
        accuracy: over folds; None where the protocol has none.
        best_accuracy: at the one threshold that is best on all pairs: an upper bound, not a result.
        best_threshold: that threshold (accept if greater); None with several splits.
        eer: where as many same pairs are refused as different ones accepted.
        eer_interval: of it.
        tpr: per FPR.
        curve: the ROC at 61 FPRs from 1e-6 to 1: columns fpr, tpr, low, high; NaN where it rests on nothing.
        replicates: float64 (r, 2 + len(tpr)), resampled accuracy, eer and tpr.
    """

    pairs: int
    impostors: int
    identities: int
    splits: int
    accuracy: FoldAccuracy | None
    best_accuracy: float
    best_threshold: float | None
    eer: float
    eer_interval: Interval | None
    tpr: tuple[TprAtFpr, ...]
    curve: DoubleArray
    replicates: DoubleArray = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; what cannot be said is null."""
        accuracy = self.accuracy
        return {
            "protocol": "verification",
            "pairs": self.pairs,
            "impostors": self.impostors,
            "identities": self.identities,
            "splits": self.splits,
            "accuracy": None
            if accuracy is None
            else {
                "mean": accuracy.mean,
                "sd": accuracy.sd,
                "interval": _plain(accuracy.interval),
                "folds": list(accuracy.folds),
                "thresholds": list(accuracy.thresholds),
            },
            "best_accuracy": {"accuracy": self.best_accuracy, "threshold": self.best_threshold},
            "eer": {"eer": self.eer, "interval": _plain(self.eer_interval)},
            "tpr": {
                name_fpr(figure.fpr): {
                    "tpr": figure.tpr,
                    "sd": figure.sd,
                    "false_accepts": figure.false_accepts,
                    "threshold": figure.threshold,
                    "interval": _plain(figure.interval),
                    "reason": figure.reason,
                }
                for figure in self.tpr
            },
            "roc": {
                name: [None if np.isnan(value) else float(value) for value in self.curve[:, column]]
                for column, name in enumerate(("fpr", "tpr", "low", "high"))
            },
        }


def _plain(band: Interval | None) -> list[float] | None:
    return None if band is None else [band.low, band.high]


def name_fpr(fpr: float) -> str:
    """`1e-3` for 0.001, `0.05` for 0.05."""
    power = round(np.log10(fpr))
    return f"1e{power}" if np.isclose(fpr, 10.0**power, rtol=1e-9) else f"{fpr:g}"


def score_pairs(
    embeddings: Embeddings,
    ends: npt.ArrayLike,
    same: npt.ArrayLike,
    *,
    identities: npt.ArrayLike | None = None,
    folds: npt.ArrayLike | None = None,
    threads: int = 0,
) -> ScoredPairs:
    """The cosine similarity of every pair.

    Args:
        embeddings: of images or templates.
        ends: row numbers, (m, 2).
        same: whether a pair shows one identity, (m,).
        identities: who every row shows (negative = unknown); without them same pairs tell who is one.
        folds: the fold of every pair.
        threads: 0 = all cores.
    """
    rows, is_same = np.asarray(ends, np.int64), np.asarray(same, bool)
    if rows.ndim != 2 or rows.shape != (len(is_same), 2) or not len(rows):
        raise InputError(f"Verification: ends have shape {rows.shape} for {len(is_same):,} pairs.")
    outside = np.flatnonzero(((rows < 0) | (rows >= embeddings.n_images)).any(axis=1))
    if outside.size:
        raise InputError(
            f"Verification: pair {outside[0]} (counted from 0) names images {rows[outside[0]].tolist()}, but the "
            f"embeddings have rows 0 to {embeddings.n_images - 1}."
        )
    if identities is None:
        people = joined_identities(rows, is_same, embeddings.n_images)
    else:
        people = _known_identities(np.asarray(identities), rows, is_same, embeddings.n_images)
    parts = map_blocks(
        lambda span: similarities(embeddings, rows[span[0] : span[1]]), spans(len(rows), _PAIR_ROWS), threads
    )
    return ScoredPairs(
        np.concatenate(list(parts)), is_same, people[rows], None if folds is None else np.asarray(folds)
    )


def _known_identities(given: AnyArray, rows: LongArray, same: BoolArray, n_images: int) -> LongArray:
    if given.shape != (n_images,):
        raise InputError(f"Verification: {given.size:,} identities for {n_images:,} images.")
    people: LongArray = given.astype(np.int64)
    one, other = people[rows[:, 0]], people[rows[:, 1]]
    wrong = np.flatnonzero((one >= 0) & (other >= 0) & ((one == other) != same))
    if wrong.size:
        first = int(wrong[0])
        said = "same" if same[first] else "different"
        raise InputError(
            f"Verification: pair {first} (counted from 0; {wrong.size:,} such) is said to be {said}, but the "
            f"identities of its images are {one[first]} and {other[first]}; one of the two files is wrong."
        )
    unknown = people < 0
    people = people.copy()
    people[unknown] = people.max(initial=0) + 1 + np.arange(int(unknown.sum()))
    return people


def measure_verification(
    splits: ScoredPairs | Sequence[ScoredPairs],
    *,
    fprs: Sequence[float] = FPRS,
    replicates: int = 1000,
    seed: int = 0,
    threads: int = 0,
    progress: Progress = no_progress,
) -> Verification:
    """Every figure of scored pairs; several splits are measured one by one and averaged.

    TPR at FPR: the threshold is the lowest that accepts at most a share FPR of the different pairs, and a pair is
    accepted if its similarity is greater; so ties never let in more than allowed.

    Args:
        splits: the scored pairs, or one of them per split.
        fprs: where to read the ROC.
        replicates: resamplings of identities for the intervals; 0 = none.
        seed: of the resamplings.
        threads: 0 = all cores.
        progress: told how many resamplings are done.
    """
    check_replicates(replicates)
    parts = [splits] if isinstance(splits, ScoredPairs) else list(splits)
    if not parts or not fprs or not all(0 < fpr <= 1 for fpr in fprs):
        raise InputError(f"fprs={list(fprs)}: shares in (0, 1] are needed, and at least one split.")
    wanted = sorted(fprs, reverse=True)
    # All points of the curve in one walk: the wanted ones first.
    points = np.array([*wanted, *_CURVE])
    person, n_people = number_by_appearance(np.concatenate([part.identities.ravel() for part in parts]))
    offsets = np.cumsum([0, *(part.identities.size for part in parts)])
    folds = [
        None if part.folds is None else fold_accuracies(part.similarity, part.same, part.folds)
        for part in parts
    ]
    ordered = [
        order_pairs(
            part.similarity,
            part.same,
            person[start:stop].reshape(-1, 2),
            None if fold is None else fold.correct,
        )
        for part, fold, start, stop in zip(parts, folds, offsets[:-1], offsets[1:], strict=True)
    ]
    once = np.ones(n_people)
    walks = [walk(pairs, once, points) for pairs in ordered]

    def resample(replicate: int) -> DoubleArray:
        drawn = draw_identities(n_people, seed, replicate)
        again = [walk(pairs, drawn, points) for pairs in ordered]
        row: DoubleArray = np.mean([[one.accuracy, one.eer, *one.tpr] for one in again], axis=0)
        return row

    values = np.empty((replicates, 2 + len(points)))
    for done, row in enumerate(map_blocks(resample, range(replicates), threads)):
        values[done] = row
        progress("resampling identities", done + 1, replicates)
    bests = [best_accuracy(pairs) for pairs in ordered]
    impostors = [int((~part.same).sum()) for part in parts]
    return Verification(
        pairs=sum(len(part.same) for part in parts),
        impostors=sum(impostors),
        identities=n_people,
        splits=len(parts),
        accuracy=_accuracy(folds, values[:, 0]) if len(parts) == 1 else None,
        best_accuracy=float(np.mean([best for best, _ in bests])),
        best_threshold=bests[0][1] if len(parts) == 1 else None,
        eer=float(np.mean([one.eer for one in walks])),
        eer_interval=interval(values[:, 1]),
        tpr=tuple(_tpr(fpr, at, walks, min(impostors), values[:, 2 + at]) for at, fpr in enumerate(wanted)),
        curve=read_only(_curve(walks, values[:, 2 + len(wanted) :], len(wanted))),
        replicates=read_only(values[:, : 2 + len(wanted)]),
    )


def _accuracy(folds: Sequence[Any], values: DoubleArray) -> FoldAccuracy | None:
    fold = folds[0]
    if fold is None:
        return None
    return FoldAccuracy(
        float(fold.accuracies.mean()),
        float(fold.accuracies.std()),
        tuple(fold.accuracies.tolist()),
        tuple(fold.thresholds.tolist()),
        interval(values),
    )


def _tpr(fpr: float, at: int, walks: Sequence[Walk], fewest: int, values: DoubleArray) -> TprAtFpr:
    accepts = min(int(one.false_accepts[at]) for one in walks)
    if accepts == 0:
        reason = f"no false accept: {fewest:,} impostor pairs allow {fpr * fewest:.2g}"
        if fpr * fewest >= 1:
            reason = "no false accept: the most similar impostor pairs tie"
        return TprAtFpr(fpr, None, None, 0, None, None, reason)
    rates = np.array([one.tpr[at] for one in walks])
    several = len(walks) > 1
    return TprAtFpr(
        fpr,
        float(rates.mean()),
        float(rates.std()) if several else None,
        accepts,
        None if several else float(walks[0].thresholds[at]),
        interval(values),
    )


def _curve(walks: Sequence[Walk], values: DoubleArray, first: int) -> DoubleArray:
    table = np.full((len(_CURVE), 4), np.nan)
    table[:, 0] = _CURVE
    for at in range(len(_CURVE)):
        if min(one.false_accepts[first + at] for one in walks) > 0:
            table[at, 1] = np.mean([one.tpr[first + at] for one in walks])
            band = interval(values[:, at])
            if band is not None:
                table[at, 2:] = band.low, band.high
    return table


def compare_verification(one: Verification, other: Verification) -> list[Comparison]:
    """Figure by figure, is one network better than the other on the same pairs and resamplings?"""
    if (one.pairs, one.impostors, one.identities) != (other.pairs, other.impostors, other.identities):
        raise InputError("Verification: only figures on the same pairs can be compared.")
    if one.replicates.shape != other.replicates.shape:
        raise InputError("Verification: both must be resampled alike to be compared.")
    found = []
    if one.accuracy is not None and other.accuracy is not None:
        found.append(
            compare(
                "accuracy",
                one.accuracy.mean,
                other.accuracy.mean,
                one.replicates[:, 0],
                other.replicates[:, 0],
            )
        )
    found.append(
        compare("eer", one.eer, other.eer, one.replicates[:, 1], other.replicates[:, 1], lower_is_better=True)
    )
    for column, (mine, theirs) in enumerate(zip(one.tpr, other.tpr, strict=True), start=2):
        if mine.tpr is not None and theirs.tpr is not None:
            name = f"tpr at fpr {name_fpr(mine.fpr)}"
            found.append(
                compare(name, mine.tpr, theirs.tpr, one.replicates[:, column], other.replicates[:, column])
            )
    return found

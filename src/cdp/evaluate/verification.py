"""Verification: do two images show one person? TPR at FPR, ROC, equal error rate, accuracy over folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
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
from cdp.evaluate.roc_kernels import (
    Folds,
    OrderedPairs,
    Walk,
    best_accuracy,
    fold_accuracies,
    order_pairs,
    walk,
)
from cdp.knn.pair_similarity import similarities
from cdp.runtime.parallel import map_blocks
from cdp.runtime.progress import Progress, no_progress
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
            raise InputError(
                "Verification: pairs of one identity and pairs of two are both needed.",
                code="verification-one-sided",
            )


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
    interval: Interval | None
    folds: tuple[float, ...]
    thresholds: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Verification:
    """All figures of one network on one protocol; with several splits, means over them.

    Attributes:
        pairs: number of pairs, all splits together.
        impostors: how many of them are different identities.
        identities: how many people were resampled.
        accuracy: over folds; None where the protocol has none.
        best_accuracy: at the one threshold that is best on all pairs: an upper bound, not a result.
        best_threshold: that threshold (accept if greater); None with several splits.
        eer: where as many same pairs are refused as different ones accepted.
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
        """Plain values, ready for JSON; what is undefined is null."""
        tpr = {name_fpr(figure.fpr): asdict(figure) for figure in self.tpr}
        for figure in tpr.values():
            del figure["fpr"]
        return {
            "protocol": "verification",
            "pairs": self.pairs,
            "impostors": self.impostors,
            "identities": self.identities,
            "splits": self.splits,
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            "best_accuracy": {"accuracy": self.best_accuracy, "threshold": self.best_threshold},
            "eer": {"eer": self.eer, "interval": self.eer_interval},
            "tpr": tpr,
            "roc": {
                name: [None if np.isnan(value) else float(value) for value in self.curve[:, column]]
                for column, name in enumerate(("fpr", "tpr", "low", "high"))
            },
        }


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
    """Return the cosine similarity of every pair.

    Args:
        embeddings: of images or templates.
        ends: row numbers, (m, 2).
        same: whether a pair shows one identity, (m,).
        identities: who every row shows (negative = unknown); without them, images joined by same pairs are
            one.
        folds: the fold of every pair.
    """
    rows, is_same = np.asarray(ends, np.int64), np.asarray(same, bool)
    if rows.ndim != 2 or rows.shape != (len(is_same), 2) or not len(rows):
        raise InputError(
            f"Verification: ends have shape {rows.shape} for {len(is_same):,} pairs.",
            code="verification-ends-shape-wrong",
            pairs=len(is_same),
            found=rows.shape,
        )
    outside = np.flatnonzero(((rows < 0) | (rows >= embeddings.n_images)).any(axis=1))
    if outside.size:
        raise InputError(
            f"Verification: pair {outside[0]} (counted from 0) names images {rows[outside[0]].tolist()}, but "
            f"the embeddings have rows 0 to {embeddings.n_images - 1}.",
            code="verification-row-unknown",
            pair=outside[0],
            images=rows[outside[0]].tolist(),
            n_images=embeddings.n_images,
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
        raise InputError(
            f"Verification: {given.size:,} identities for {n_images:,} images.",
            code="verification-identities-differ",
            expected=n_images,
            found=given.size,
        )
    people: LongArray = given.astype(np.int64)
    one, other = people[rows[:, 0]], people[rows[:, 1]]
    wrong = np.flatnonzero((one >= 0) & (other >= 0) & ((one == other) != same))
    if wrong.size:
        first = int(wrong[0])
        listed = "same" if same[first] else "different"
        raise InputError(
            f"Verification: pair {first} (counted from 0) is listed as {listed}, but its identities "
            f"are {one[first]} and {other[first]} ({wrong.size:,} in all); correct one of the two "
            "files.",
            code="verification-identities-contradict",
            pair=first,
            count=wrong.size,
            identities=(int(one[first]), int(other[first])),
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
    """Return every figure of scored pairs; several splits are measured one by one and averaged.

    TPR at FPR: the threshold is the lowest that accepts at most a share FPR of the different pairs, and a
    pair is accepted if its similarity is greater; so ties never let in more than allowed.

    Args:
        splits: the scored pairs, or one of them per split.
        fprs: where to read the ROC.
        replicates: resamplings of identities for the intervals; 0 = none.
    """
    check_replicates(replicates)
    parts = [splits] if isinstance(splits, ScoredPairs) else list(splits)
    if not parts or not fprs or not all(0 < fpr <= 1 for fpr in fprs):
        raise InputError(
            f"fprs={list(fprs)}: shares in (0, 1] are needed, and at least one split.",
            code="fprs-out-of-range",
            value=list(fprs),
        )
    wanted = sorted(fprs, reverse=True)
    # All points of the curve in one walk: the wanted ones first.
    points = np.array([*wanted, *_CURVE])
    person = number_by_appearance(np.concatenate([part.identities for part in parts])).reshape(-1, 2)
    n_people = int(person.max()) + 1
    people = np.split(person, np.cumsum([len(part.same) for part in parts])[:-1])
    folds = [
        None if part.folds is None else fold_accuracies(part.similarity, part.same, part.folds)
        for part in parts
    ]
    ordered = [
        order_pairs(part.similarity, part.same, ends, None if fold is None else fold.correct)
        for part, ends, fold in zip(parts, people, folds, strict=True)
    ]
    walks = [walk(pairs, np.ones(n_people), points) for pairs in ordered]

    def resample(replicate: int) -> DoubleArray:
        drawn = draw_identities(n_people, seed, replicate)
        again = [walk(pairs, drawn, points) for pairs in ordered]
        row: DoubleArray = np.mean([[one.accuracy, one.eer, *one.tpr] for one in again], axis=0)
        return row

    values = np.empty((replicates, 2 + len(points)))
    for done, row in enumerate(map_blocks(resample, range(replicates), threads)):
        values[done] = row
        progress("resampling identities", done + 1, replicates)
    return _figures(wanted, parts, n_people, folds, ordered, walks, values)


def _figures(
    wanted: Sequence[float],
    parts: Sequence[ScoredPairs],
    n_people: int,
    folds: Sequence[Folds | None],
    ordered: Sequence[OrderedPairs],
    walks: Sequence[Walk],
    values: DoubleArray,
) -> Verification:
    """Compute the figures of all splits: accuracy, EER and TPR per point, with resampled values."""
    bests = [best_accuracy(pairs) for pairs in ordered]
    impostors = [int((~part.same).sum()) for part in parts]
    single = len(parts) == 1
    return Verification(
        pairs=sum(len(part.same) for part in parts),
        impostors=sum(impostors),
        identities=n_people,
        splits=len(parts),
        accuracy=_accuracy(folds[0], values[:, 0]) if single else None,
        best_accuracy=float(np.mean([best for best, _ in bests])),
        best_threshold=bests[0][1] if single else None,
        eer=float(np.mean([one.eer for one in walks])),
        eer_interval=interval(values[:, 1]),
        tpr=tuple(_tpr(fpr, at, walks, min(impostors), values[:, 2 + at]) for at, fpr in enumerate(wanted)),
        curve=read_only(_curve(walks, values[:, 2 + len(wanted) :], len(wanted))),
        replicates=read_only(values[:, : 2 + len(wanted)]),
    )


def _accuracy(fold: Folds | None, values: DoubleArray) -> FoldAccuracy | None:
    if fold is None:
        return None
    rates, thresholds = fold.accuracies, fold.thresholds
    mean, sd = float(rates.mean()), float(rates.std())
    return FoldAccuracy(mean, sd, interval(values), tuple(rates.tolist()), tuple(thresholds.tolist()))


def _tpr(fpr: float, at: int, walks: Sequence[Walk], fewest: int, values: DoubleArray) -> TprAtFpr:
    accepts = min(int(one.false_accepts[at]) for one in walks)
    if accepts == 0:
        reason = f"no false accept: {fewest:,} impostor pairs allow {fpr * fewest:.2g}"
        if fpr * fewest >= 1:
            reason = "no false accept: the most similar impostor pairs tie"
        return TprAtFpr(fpr, None, None, 0, None, None, reason)
    rates = np.array([one.tpr[at] for one in walks])
    sd, threshold = (float(rates.std()), None) if len(walks) > 1 else (None, float(walks[0].thresholds[at]))
    return TprAtFpr(fpr, float(rates.mean()), sd, accepts, threshold, interval(values))


def _curve(walks: Sequence[Walk], values: DoubleArray, first: int) -> DoubleArray:
    table = np.full((len(_CURVE), 4), np.nan)
    table[:, 0] = _CURVE
    for at in range(len(_CURVE)):
        if min(one.false_accepts[first + at] for one in walks) > 0:
            table[at, 1] = np.mean([one.tpr[first + at] for one in walks])
            table[at, 2:] = interval(values[:, at]) or np.nan
    return table


def compare_verification(one: Verification, other: Verification) -> list[Comparison]:
    """Figure by figure, is one network better than the other on the same pairs and resamplings?"""
    if (one.pairs, one.impostors, one.identities) != (other.pairs, other.impostors, other.identities):
        raise InputError(
            "Verification: only figures on the same pairs can be compared.",
            code="verification-not-comparable",
        )
    if one.replicates.shape != other.replicates.shape:
        raise InputError(
            "Verification: both must be resampled alike to be compared.",
            code="verification-resampled-differently",
        )
    names = ["accuracy", "eer", *(f"tpr at fpr {name_fpr(figure.fpr)}" for figure in one.tpr)]
    mine, theirs = (
        [
            None if each.accuracy is None else each.accuracy.mean,
            each.eer,
            *(figure.tpr for figure in each.tpr),
        ]
        for each in (one, other)
    )
    return [
        compare(name, figure, against, again, against_again, lower_is_better=name == "eer")
        for name, figure, against, again, against_again in zip(
            names, mine, theirs, one.replicates.T, other.replicates.T, strict=True
        )
        if figure is not None and against is not None
    ]

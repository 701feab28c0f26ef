"""Identification by MegaFace's protocol: rank of the mate among the distractors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
from cdp.errors import InputError, name_rows
from cdp.evaluate.bootstrap import (
    LEVEL,
    Comparison,
    Interval,
    check_replicates,
    compare,
    draw_identities,
    interval,
    number_by_appearance,
)
from cdp.evaluate.rank_kernels import MatePairs, count_better
from cdp.runtime.progress import Progress, no_progress
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, LongArray, read_only

RANKS = (1, 5, 10, 20, 50, 100, 1000)


@dataclass(frozen=True)
class RankRate:
    """Share of pairs whose mate is among the `rank` best of `distractors` distractors and the mate."""

    distractors: int
    rank: int
    rate: float
    interval: Interval | None


@dataclass(frozen=True, eq=False)
class Identification:
    """Everything counted: for each ordered pair (probe, mate), how many distractors come before the mate.

    A distractor comes before the mate if it is at least as similar to the probe: ties count against the
    network.

    Attributes:
        pairs: probe, mate and identity of every pair.
        sizes: numbers of distractors, growing.
        n_better: int64 (len(sizes), m), distractors before the mate.
        left_out: why how many probes and distractors were left out.
        replicates: float64 (r, f), resampled figures in the order of `figures`.
    """

    pairs: MatePairs
    sizes: tuple[int, ...]
    n_better: LongArray
    left_out: dict[str, int]
    ranks: tuple[int, ...]
    replicates: DoubleArray = field(repr=False)

    @property
    def figures(self) -> list[RankRate]:
        """The rate at every size for rank 1, then at the largest size for the other ranks."""
        return [
            RankRate(self.sizes[size], rank, self.rate(rank, size), interval(self.replicates[:, column]))
            for column, (size, rank) in enumerate(_columns(self.sizes, self.ranks))
        ]

    def rate(self, rank: int = 1, size: int = -1) -> float:
        """Share of pairs whose mate has at most this rank, at the size with this position."""
        return float((self.n_better[size] < rank).mean())

    def cmc(self, size: int = -1) -> tuple[LongArray, DoubleArray]:
        """Return the whole curve: ranks at which it rises, and the rates it rises to."""
        ranks, counts = np.unique(self.n_better[size] + 1, return_counts=True)
        return ranks, np.cumsum(counts) / self.n_better.shape[1]

    def cmc_band(self, ranks: LongArray, n_replicates: int, seed: int) -> tuple[AnyArray, AnyArray]:
        """Lower and upper end of the interval at some ranks, at the largest size."""
        values = _resample((self.n_better[-1] < rank for rank in ranks), self.pairs, n_replicates, seed)
        low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return low, high

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        ranks, rates = self.cmc()
        figures, growth = [asdict(figure) for figure in self.figures], len(self.sizes)
        return {
            "protocol": "identification",
            "probes": self.pairs.n_probes,
            "identities": self.pairs.n_identities,
            "pairs": len(self.pairs),
            "distractors": self.sizes[-1],
            "rank1": self.rate(),
            "left_out": dict(self.left_out),
            "growth": figures[:growth],
            "ranks": figures[growth - 1 :],
            "cmc": {"rank": ranks.tolist(), "rate": rates.tolist()},
        }


def _columns(sizes: Sequence[int], ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Position of the size, and rank, of every figure."""
    last = len(sizes) - 1
    return [(at, 1) for at in range(len(sizes))] + [(last, rank) for rank in ranks if 1 < rank <= sizes[last]]


def growing_sizes(n_distractors: int) -> tuple[int, ...]:
    """10, 100, ... and all."""
    powers = [10**power for power in range(1, 10) if 10**power < n_distractors]
    return (*powers, n_distractors)


def mate_pairs(identities: npt.ArrayLike) -> MatePairs:
    """Return every ordered pair of probes of one identity; probes without a mate are an error."""
    numbers = np.asarray(identities)
    if numbers.ndim != 1 or not len(numbers):
        raise InputError(
            "Identification: one identity per probe is needed.", code="probe-identities-not-a-row"
        )
    if numbers.dtype.kind in "iu" and (numbers < 0).any():
        unknown = np.flatnonzero(numbers < 0)
        raise InputError(
            f"Identification: the identity of {name_rows(unknown)} of the probes is unknown; leave them out.",
            code="probe-identities-missing",
            row=unknown[0],
            count=unknown.size,
        )
    names, person, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    alone = np.flatnonzero(counts[person] == 1)
    if alone.size:
        shown = ", ".join(str(name) for name in names[counts == 1][:5])
        raise InputError(
            f"Identification: probes {name_rows(alone)} have no second image of their identity "
            f"({shown}{', ...' if alone.size > 5 else ''}); remove them, or add images.",
            code="probes-without-mate",
            row=alone[0],
            count=alone.size,
        )
    people = np.split(np.argsort(person, kind="stable"), np.cumsum(counts)[:-1])
    probes = np.repeat(np.arange(len(numbers)), counts[person] - 1)
    mates = np.concatenate([people[own][people[own] != row] for row, own in enumerate(person)])
    return MatePairs(probes, mates, number_by_appearance(numbers)[probes], len(numbers))


def check_distractors(identities: npt.ArrayLike, distractor_identities: npt.ArrayLike) -> None:
    """Refuse distractors that show a probe's identity: each would count as an error when it is found."""
    theirs = np.asarray(distractor_identities)
    shared = np.isin(theirs, np.asarray(identities))
    if theirs.dtype.kind in "iu":
        shared &= theirs >= 0
    rows = np.flatnonzero(shared)
    if rows.size:
        people = np.unique(theirs[rows])
        shown = ", ".join(str(person) for person in people[:5])
        raise InputError(
            f"Identification: distractors {name_rows(rows)} have identities of the probes "
            f"({shown}{', ...' if len(people) > 5 else ''}); remove them, or give distractors without "
            "identities.",
            code="distractors-show-probes",
            row=rows[0],
            count=len(rows),
        )


def measure_identification(
    probes: Embeddings,
    identities: npt.ArrayLike,
    distractors: Embeddings | Sequence[Embeddings],
    *,
    distractor_identities: npt.ArrayLike | None = None,
    sizes: Sequence[int] | None = None,
    ranks: Sequence[int] = RANKS,
    left_out: dict[str, int] | None = None,
    replicates: int = 0,
    seed: int = 0,
    threads: int = 0,
    progress: Progress = no_progress,
) -> Identification:
    """Rank of every mate among distractors, by MegaFace's protocol.

    For every identity and every ordered pair (probe p, mate g): rank = 1 + #{d: s(p, d) >= s(p, g)}. Other
    mates are not in the gallery. Rank-r rate = share of pairs with rank <= r.

    Args:
        probes: embeddings of the probes; all other probes of its identity are a probe's mates.
        identities: who every probe shows, numbers or names.
        distractors: embeddings of other people; a sequence of them measures every one as a list of its own,
            as the devkit's lists of 10 ... 1,000,000 are.
        distractor_identities: where known, so that no identity is both.
        sizes: also measure with these numbers of distractors, drawn at random, the larger draws holding the
            smaller [10, 100, ..., all]; not with a sequence.
        left_out: what was left out before, only carried along.
        replicates: resamplings of identities for intervals; 0 = none.
    """
    check_replicates(replicates)
    people = np.asarray(identities)
    _check_asked(people, probes, ranks)
    pairs = mate_pairs(people)
    count = partial(count_better, pairs, probes, threads=threads, progress=progress)
    if isinstance(distractors, Embeddings):
        if distractor_identities is not None:
            check_distractors(people, distractor_identities)
        measured = _check_sizes(sizes, distractors.n_images)
        n_better = count(distractors, _draw_stages(measured, seed))
    elif sizes is not None or distractor_identities is not None or not distractors:
        raise InputError(
            "Identification: sizes and identities do not go with several lists of distractors.",
            code="distractor-lists-with-sizes",
        )
    else:
        lists = sorted(distractors, key=len)
        measured = tuple(map(len, lists))
        n_better = np.concatenate([count(part, [np.arange(len(part))]) for part in lists])
    reported = tuple(sorted(set(ranks)))
    hits = (n_better[size] < rank for size, rank in _columns(measured, reported))
    values = _resample(hits, pairs, replicates, seed)
    return Identification(
        pairs, measured, read_only(n_better), dict(left_out or {}), reported, read_only(values)
    )


def _check_asked(people: AnyArray, probes: Embeddings, ranks: Sequence[int]) -> None:
    if people.shape != (probes.n_images,):
        raise InputError(
            f"Identification: {people.size:,} identities for {probes.n_images:,} probes.",
            code="probe-identities-differ",
            expected=probes.n_images,
            found=people.size,
        )
    if not ranks or min(ranks) < 1:
        raise InputError(
            f"ranks={list(ranks)}: ranks count from 1.", code="ranks-too-small", value=list(ranks)
        )


def _check_sizes(sizes: Sequence[int] | None, n_distractors: int) -> tuple[int, ...]:
    if sizes is None:
        return growing_sizes(n_distractors)
    stages = sorted({*sizes, n_distractors})
    if stages[0] < 1 or stages[-1] > n_distractors:
        raise InputError(
            f"sizes={list(sizes)}: there are {n_distractors:,} distractors; choose sizes from 1 to that.",
            code="sizes-out-of-range",
            value=list(sizes),
            most=n_distractors,
        )
    return tuple(stages)


def _draw_stages(sizes: tuple[int, ...], seed: int) -> list[LongArray]:
    """Draw the distractors of every size at random, because the first ten may be one person."""
    if len(sizes) == 1:
        return [np.arange(sizes[0])]
    order = np.random.default_rng(seed).permutation(sizes[-1])
    # Sorted within a stage, so that a file larger than memory is read from front to back.
    return [np.sort(order[start:stop]) for start, stop in zip((0, *sizes[:-1]), sizes, strict=True)]


def _resample(hits: Iterable[BoolArray], pairs: MatePairs, replicates: int, seed: int) -> DoubleArray:
    """Rates under resampled identities, (replicates, figures); the distractors stay as they are."""
    n_identities = pairs.n_identities
    per_identity = np.stack([np.bincount(pairs.identities, hit, n_identities) for hit in hits], axis=1)
    totals = np.bincount(pairs.identities, minlength=n_identities).astype(np.float64)
    values = np.empty((replicates, per_identity.shape[1]))
    for start, stop in spans(replicates, 64):
        drawn = np.stack([draw_identities(n_identities, seed, at) for at in range(start, stop)])
        values[start:stop] = (drawn @ per_identity) / (drawn @ totals)[:, None]
    return values


def compare_identification(one: Identification, other: Identification) -> list[Comparison]:
    """Rate by rate, is one network better than the other on the same probes and distractors?"""
    alike = all(
        np.array_equal(getattr(one.pairs, name), getattr(other.pairs, name))
        for name in ("probes", "mates", "identities")
    )
    if not alike or one.sizes != other.sizes or one.ranks != other.ranks:
        raise InputError(
            "Identification: only figures on the same probes and distractors can be compared.",
            code="identification-not-comparable",
        )
    if one.replicates.shape != other.replicates.shape:
        raise InputError(
            "Identification: both must be resampled alike to be compared.",
            code="identification-resampled-differently",
        )
    return [
        compare(
            f"rank-{mine.rank} rate, {mine.distractors:,} distractors",
            mine.rate,
            theirs.rate,
            one.replicates[:, column],
            other.replicates[:, column],
        )
        for column, (mine, theirs) in enumerate(zip(one.figures, other.figures, strict=True))
    ]

"""Numbers that last: which old identity each new group is, and what became of the others.

An old identity's number goes to the group that has the most of its images; where several claim one group, to
the one with the most images there, then to the older one. A group that no number is left for gets a new one,
and no number is ever used twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from cdp.grouping.cohesion import tie_groups
from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import IntArray, LongArray
from cdp.types.constraints import Constraints


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to identities.

    Attributes:
        kind: `created`, `extended`, `regrouped`, `retrained`, `embedded`, `removed` (a whole step; `images`
            counts what changed); `merged` (`identity` merged into `other`), `split` (images of `identity` are
            now `other`, a new one), `moved` (images of `identity` went to `other`, which was there),
            `dissolved` (no image of `identity` is in a group any more), `named`.
        identity: its number; -1 for a whole step.
        other: another one's; -1 = none.
        images: how many images it concerns.
        probability: mean over the pairs between the two parts that a graph can hold; -1 = there is none.
        why: in words.
        name: the name that was given.
        step: number of the step; when: UTC, ISO 8601.
    """

    kind: Literal[
        "created",
        "extended",
        "regrouped",
        "retrained",
        "embedded",
        "removed",
        "merged",
        "split",
        "moved",
        "dissolved",
        "named",
        "renamed",
    ]
    identity: int = -1
    other: int = -1
    images: int = 0
    probability: float = -1.0
    why: str = ""
    name: str = ""
    step: int = 0
    when: str = ""


@dataclass(frozen=True)
class Changes:
    """What a step did.

    Attributes:
        events: in the order of the log.
        joined: images that came into an identity that was there.
        founded: identities that are new and no part of an old one.
        left: images that are in no group any more.
        kept: share of the identities before that kept their number: at least half of their images are still
            under it.
    """

    events: tuple[Event, ...]
    joined: int
    founded: int
    left: int
    kept: float


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of images by old and new identity.

    `old`, `new` and `images` per cell, and the cell of every image, -1 = none.
    """

    old: LongArray
    new: LongArray
    images: LongArray
    cell_of: LongArray


def carry_numbers(
    before: IntArray, labels: IntArray, next_identity: int, preferred: Mapping[int, int] | None = None
) -> tuple[IntArray, int]:
    """Return the identity number of every image, int32 (n,), and the next free number.

    Args:
        before: int32 (n,), the identity of every image before; -1 = none, or new.
        labels: int32 (n,), new groups 0, 1, …; -1 = none.
        next_identity: the first number that was never used.
        preferred: label -> number that it gets before all others are considered, such as that of its name.
    """
    number: dict[int, int] = dict(preferred or {})
    taken = set(number.values())
    cells = count_cells(before, labels)
    in_both = np.flatnonzero((cells.old >= 0) & (cells.new >= 0))
    order = in_both[np.lexsort((cells.new[in_both], cells.old[in_both], -cells.images[in_both]))]
    for old, new in zip(cells.old[order].tolist(), cells.new[order].tolist(), strict=True):
        if new not in number and old not in taken:
            number[new] = old
            taken.add(old)
    table = np.full(int(labels.max(initial=-1)) + 2, -1, np.int32)
    for label, identity in number.items():
        if label >= 0:
            table[label] = identity
    new_labels = np.flatnonzero(table[:-1] < 0)
    table[new_labels] = next_identity + np.arange(len(new_labels))
    return table[labels], next_identity + len(new_labels)


def count_cells(before: IntArray, after: IntArray) -> Cells:
    """Images by identity before and after; images that are in no group before and after are in no cell."""
    is_in = (before >= 0) | (after >= 0)
    width = int(after.max(initial=-1)) + 2
    keys = (before[is_in].astype(np.int64) + 1) * width + after[is_in] + 1
    cells, at, images = np.unique(keys, return_inverse=True, return_counts=True)
    cell_of = np.full(len(before), -1, np.int64)
    cell_of[is_in] = at
    old, new = np.divmod(cells, width)
    return Cells(old - 1, new - 1, images, cell_of)


def find_broken(before: IntArray, after: IntArray) -> LongArray:
    """Find identities that lost their number: they keep less than half of their images."""
    numbers, images = np.unique(before[before >= 0], return_counts=True)
    stayed = np.bincount(
        before[(before >= 0) & (before == after)], minlength=int(numbers.max(initial=-1)) + 1
    )
    broken: LongArray = numbers[2 * stayed[numbers] < images].astype(np.int64)
    return broken


def describe_changes(
    before: IntArray,
    after: IntArray,
    scored: ConsensusGraph,
    k: int,
    threshold: float,
    constraints: Constraints | None = None,
) -> Changes:
    """Return what became of the identities, with the evidence; `before` is -1 for new images."""
    cells = count_cells(before, after)
    was, now = set(cells.old[cells.old >= 0].tolist()), set(cells.new[cells.new >= 0].tolist())
    largest: dict[int, int] = {}
    in_both = np.flatnonzero((cells.old >= 0) & (cells.new >= 0))
    for at in in_both[np.lexsort((cells.new[in_both], cells.images[in_both]))].tolist():
        largest[int(cells.old[at])] = at
    moves = in_both[cells.old[in_both] != cells.new[in_both]].tolist()
    evidence = _Evidence(cells, scored, k, constraints) if moves else None
    home = {(int(cells.old[at]), int(cells.new[at])): at for at in in_both.tolist()}
    events = []
    for at in moves:
        old, new, images = int(cells.old[at]), int(cells.new[at]), int(cells.images[at])
        assert evidence is not None
        if old not in now and largest[old] == at:
            kind, against, joined = "merged", home.get((new, new)), True
        elif new in was:
            kind, against, joined = "moved", home.get((new, new)), True
        else:
            kind, against, joined = "split", home.get((old, old), largest[old]), False
        mean, why = evidence.between(at, against, threshold, joined=joined)
        events.append(Event(kind=kind, identity=old, other=new, images=images, probability=mean, why=why))  # type: ignore[arg-type]
    for old in sorted(was - now - set(largest)):
        images = int(cells.images[(cells.old == old)].sum())
        events.append(
            Event(kind="dissolved", identity=old, images=images, why="none of its images is in a group")
        )
    split_off = {event.other for event in events if event.kind == "split"}
    is_old = np.isin(after, list(was)) & (after >= 0)
    return Changes(
        events=tuple(events),
        joined=int((is_old & (before < 0)).sum()),
        founded=len(now - was - split_off),
        left=int(((before >= 0) & (after < 0)).sum()),
        kept=1 - len(find_broken(before, after)) / len(was) if was else 1.0,
    )


class _Evidence:
    """Mean probabilities and corrections between cells of images."""

    def __init__(self, cells: Cells, scored: ConsensusGraph, k: int, constraints: Constraints | None) -> None:
        labels = Labels.from_array(cells.cell_of)
        number = np.full(len(cells.old), -1, np.int64)
        number[cells.cell_of[cells.cell_of >= 0]] = labels.labels[cells.cell_of >= 0]
        self._number = number
        ties = tie_groups(scored, labels, k)
        self._mean = dict(zip(map(tuple, ties.ids.tolist()), ties.probability.tolist(), strict=True))
        self._linked: set[tuple[int, ...]] = set()
        self._apart: set[tuple[int, ...]] = set()
        self._names: dict[int, str] = {}
        if constraints is not None and len(constraints):
            for pairs, into in ((constraints.links, self._linked), (constraints.cannot, self._apart)):
                into.update(map(tuple, np.sort(cells.cell_of[pairs], axis=1).tolist()))
            self._names = {int(cells.cell_of[row]): name for row, name in constraints.named.items()}

    def between(self, cell: int, other: int | None, threshold: float, *, joined: bool) -> tuple[float, str]:
        """Return the mean probability between two cells (-1 without pairs) and the reason in words."""
        if other is None:
            return -1.0, "together with images that were in no group"
        pair = (min(cell, other), max(cell, other))
        low, high = sorted((int(self._number[cell]), int(self._number[other])))
        mean = self._mean.get((low, high), 0.0)
        if joined and pair in self._linked:
            return mean, "corrections say that they are one identity"
        named = self._names.get(cell), self._names.get(other)
        if not joined and (pair in self._apart or (None not in named and named[0] != named[1])):
            return mean, "corrections say that they are different"
        relation = "above" if mean > threshold else "not above"
        return mean, f"mean probability {mean:.3f} between the two, {relation} {threshold:g}"

"""Identities that have numbers are held: what would merge or dissolve them without strong evidence is taken back.

Groups are made freely first. An identity is gone if it went up in another one, or if none of its images is in a group any more.
Where the evidence for that is not strong, groups are made once more with the identity held together, and apart from the other
one. It is left to a person then, who is asked about it among the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cdp.collection.numbering import Cells, count_cells
from cdp.consensus.constraints import Constraints, find_contradiction
from cdp.consensus.group_ties import tie_groups, tie_to_group
from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import IntArray, LongArray

_DISSOLVED_BELOW = 0.1
_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class Held:
    """Groups, the identity of every image, the number that the next identity gets, and the constraints they were made under."""

    labels: Labels
    identity: IntArray
    next_identity: int
    constraints: Constraints


def hold_identities(
    make: Callable[[Constraints], Held],
    before: IntArray,
    scored: ConsensusGraph,
    constraints: Constraints,
    k: int,
    bar: float,
    merge_above: float,
) -> Held:
    """Groups in which identities with numbers last.

    Args:
        make: groups and numbers under constraints.
        before: int32 (n,), the identity of every image before; -1 = none, or new.
        scored: pairs of these images.
        constraints: corrections, which come first.
        k: neighbors per image.
        bar: groups are joined above this mean probability; an identity whose images are tied by less than a tenth of it may dissolve.
        merge_above: two identities are merged above this mean probability.
    """
    found = make(constraints)
    if merge_above <= bar:
        return found
    for _ in range(_ROUNDS):
        more = _hold(found, before, scored, k, bar, merge_above)
        tried = _together(found.constraints, more)
        if more is None or find_contradiction(tried) is not None:
            break
        found = make(tried)
    return found


def _together(one: Constraints, more: Constraints | None) -> Constraints:
    if more is None:
        return one
    must, cannot = np.concatenate([one.must, more.must]), np.concatenate([one.cannot, more.cannot])
    return Constraints(one.n_images, must, cannot, one.named, one.rejected)


def _hold(
    found: Held, before: IntArray, scored: ConsensusGraph, k: int, bar: float, merge_above: float
) -> Constraints | None:
    """What holds the identities that are gone without strong evidence; None if there are none."""
    gone = np.setdiff1d(before[before >= 0], found.identity[found.identity >= 0])
    if not len(gone):
        return None
    cells = count_cells(before, found.labels.labels)
    must, cannot = _merged(found, cells, gone, scored, k, merge_above)
    must += _dissolved(found, before, gone, scored, k, _DISSOLVED_BELOW * bar)
    if not must:
        return None
    return Constraints(
        len(before), np.concatenate([_chain(rows) for rows in must]), np.array(cannot).reshape(-1, 2)
    )


def _merged(
    found: Held, cells: Cells, gone: IntArray, scored: ConsensusGraph, k: int, merge_above: float
) -> tuple[list[LongArray], list[tuple[int, int]]]:
    """Images to hold together, and pairs to hold apart, of identities that went up in another one."""
    order = np.argsort(cells.cell_of, kind="stable")
    bounds = np.searchsorted(cells.cell_of[order], np.arange(len(cells.old) + 1))

    def rows_of(cell: int) -> LongArray:
        return order[bounds[cell] : bounds[cell + 1]]

    largest: dict[int, int] = {}
    home: dict[int, int] = {}
    for cell in np.lexsort((cells.new, cells.images)).tolist():
        old, new = int(cells.old[cell]), int(cells.new[cell])
        if old >= 0 and new >= 0:
            largest[old] = cell
            if int(found.identity[rows_of(cell)[0]]) == old:
                home[new] = cell
    merged: dict[int, list[int]] = {}
    for cell in (largest[old] for old in gone.tolist() if old in largest):
        if int(cells.new[cell]) in home:
            merged.setdefault(int(cells.new[cell]), []).append(cell)
    if not merged:
        return [], []
    tie = _ties(cells, scored, k)
    must: list[LongArray] = []
    cannot: list[tuple[int, int]] = []
    for new, parts in merged.items():
        held = [cell for cell in parts if tie(cell, home[new]) <= merge_above]
        if held:
            must += [rows_of(cell) for cell in (home[new], *held)]
            first = [int(rows_of(cell)[0]) for cell in (home[new], *held)]
            cannot += combinations(first, 2)
    return must, cannot


def _ties(cells: Cells, scored: ConsensusGraph, k: int) -> Callable[[int, int], float]:
    """The mean probability between two cells."""
    labels = Labels.from_array(cells.cell_of)
    number = np.full(len(cells.old), -1, np.int64)
    number[cells.cell_of[cells.cell_of >= 0]] = labels.labels[cells.cell_of >= 0]
    ties = tie_groups(scored, labels, k)
    mean = dict(zip(map(tuple, ties.ids.tolist()), ties.probability.tolist(), strict=True))

    def between(one: int, other: int) -> float:
        low, high = sorted((int(number[one]), int(number[other])))
        return float(mean.get((low, high), 0.0))

    return between


def _dissolved(
    found: Held, before: IntArray, gone: IntArray, scored: ConsensusGraph, k: int, weak: float
) -> list[LongArray]:
    """Images to hold together, of identities that have no image in a group any more."""
    rejected = np.zeros(len(before), np.bool_)
    rejected[found.constraints.rejected] = True
    rows = np.flatnonzero(np.isin(before, gone) & (found.labels.labels < 0) & ~rejected)
    whole = np.isin(before[rows], before[np.isin(before, gone) & (found.labels.labels >= 0)], invert=True)
    rows = rows[whole]
    if not len(rows):
        return []
    cell = np.full(len(before), -1, np.int64)
    cell[rows] = before[rows]
    tie = tie_to_group(scored, Labels.from_array(cell), k)
    parts = np.split(
        rows[np.argsort(before[rows], kind="stable")],
        np.cumsum(np.unique(before[rows], return_counts=True)[1])[:-1],
    )
    return [part for part in parts if len(part) > 1 and tie[part].mean() > weak]


def _chain(rows: LongArray) -> LongArray:
    """Every image with the next, so that all of them are one."""
    return np.stack([rows[:-1], rows[1:]], axis=1)

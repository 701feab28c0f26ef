"""ID stability: at most a given share of the identities lose their ID in a step, the best cases first.

Groups are made freely. An identity is broken if less than half of its images keep its ID: it merged into
another one, was split, or its images are in no group any more. Where more are broken than allowed, those that
are expected to correct the most pairs are broken. Of each of the others the largest parts, at least half of
its images, get their ID back as a group of their own; everything else stays as it was grouped. An identity
that is kept against the probabilities gets no new images: they stay with the one it would have merged into.
It is left to a later step, or to a reviewer, who is asked about it among the first.

Most broken identities are pieces of others: small groups of images that were not recognized at first. So in a
collection with IDs, a new group that is small compared with the others is deferred until it is sure or
larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cdp.collection.numbering import Cells, count_cells, find_broken
from cdp.grouping.cohesion import as_probability, tie_groups, tie_to_group
from cdp.types import ConsensusGraph, Labels, Status
from cdp.types.arrays import BoolArray, IntArray, LongArray
from cdp.types.constraints import Constraints, what_is_said
from cdp.types.labels import number_by_first_appearance

_ROUNDS = 4
_LARGE = 2 / 3
_SURE = 0.7


@dataclass(frozen=True, eq=False)
class Evidence:
    """What groups were made from: pairs, corrections, neighbors per image, threshold, largest size."""

    scored: ConsensusGraph
    constraints: Constraints
    k: int
    threshold: float
    max_cluster_size: int


def stabilize_ids(before: IntArray, after: IntArray, evidence: Evidence, id_stability: float) -> IntArray:
    """Give broken identities their IDs back until enough are stable; int32 (n,), the identity of images.

    Identities that corrections break stay broken.

    Args:
        before: int32 (n,), the identity of every image before; -1 = none, or new.
        after: int32 (n,), the same after groups were made freely.
        evidence: what they were made from.
        id_stability: minimum share of identities that keep their ID; 0 = all may lose them.
    """
    allowed = int((1 - id_stability) * len(np.unique(before[before >= 0])) + 1e-9)
    let_go: set[int] = set()
    held = np.array(after)
    for _ in range(_ROUNDS if id_stability else 0):
        breaks = [one for one in _find_breaks(before, held, evidence) if one.identity not in let_go]
        breaks.sort(key=lambda one: (-one.value, one.identity))
        n_free = max(0, allowed - len(let_go))
        let_go |= {one.identity for one in breaks[:n_free]}
        if len(breaks) <= n_free:
            break
        for one in breaks[n_free:]:
            held[one.rows] = one.identity
        held = _without_lone_images(held, evidence.constraints)
    return held


def defer_small_groups(is_new: BoolArray, labels: Labels, evidence: Evidence) -> Labels:
    """Return the labels without new groups that are neither large nor sure; their images have no group.

    What splits off an identity is new, too. A group is large enough with two thirds of the images that half
    of all groups have at least, three or more, and sure if its images' mean tie is 0.7 of the way from the
    threshold to 1. Groups with corrections do not wait.

    Args:
        is_new: bool (n,), which images are in groups that would get new numbers.
        labels: groups that were made freely.
        evidence: what they were made from.
    """
    found, constraints = labels.labels, evidence.constraints
    if not is_new.any():
        return labels
    grouped = found >= 0
    sizes = np.bincount(found[grouped], minlength=labels.n_identities)
    tie = tie_to_group(evidence.scored, labels, evidence.k)
    mean = np.bincount(found[grouped], tie[grouped], labels.n_identities) / np.maximum(sizes, 1)
    waits = (sizes < max(3.0, _LARGE * float(np.median(sizes)))) & (
        mean <= evidence.threshold + _SURE * (1 - evidence.threshold)
    )
    pairs = (constraints.links.ravel(), constraints.cannot.ravel())
    spoken = np.concatenate([*pairs, [*constraints.named]]).astype(np.int64)
    waits[found[spoken][found[spoken] >= 0]] = False
    alone = grouped & is_new & waits[np.maximum(found, 0)]
    if not alone.any():
        return labels
    number, status, confidence = np.array(found), np.array(labels.status), np.array(labels.confidence)
    number[alone], status[alone], confidence[alone] = -1, Status.ISOLATED, 0
    return Labels(number_by_first_appearance(number), status, confidence)


@dataclass(frozen=True, eq=False)
class _Break:
    """A broken identity, the pairs that splitting it is expected to correct, and the images it would lock."""

    identity: int
    value: float
    rows: LongArray


def _find_breaks(before: IntArray, after: IntArray, evidence: Evidence) -> list[_Break]:
    """Return the broken identities, except those that corrections break."""
    gone = find_broken(before, after)
    if not len(gone):
        return []
    cells = count_cells(before, after)
    rows_of, tie, contradicts = (
        _rows_of(cells),
        _ties(cells, evidence),
        _contradicted_by(evidence.constraints),
    )
    by_old: dict[int, list[int]] = {}
    for cell in np.flatnonzero(np.isin(cells.old, gone)).tolist():
        by_old.setdefault(int(cells.old[cell]), []).append(cell)
    home = {int(cells.new[cell]): cell for cell in np.flatnonzero(cells.old == cells.new).tolist()}
    breaks = []
    for old, parts in by_old.items():
        own, whole = home.get(old), int(cells.images[parts].sum())
        parts.sort(key=lambda cell: (cell != own, -int(cells.images[cell]), cell))
        held: list[int] = []
        value, n_held = 0.0, 0
        for cell in parts:
            images, other = int(cells.images[cell]), home.get(int(cells.new[cell]))
            value += sum((1 - tie(cell, one)) * images * cells.images[one] for one in held)
            if other is not None and other != cell:
                value += tie(cell, other) * images * cells.images[other]
            held, n_held = [*held, cell], n_held + images
            if n_held >= max(2, whole / 2):
                break
        rows = np.concatenate([rows_of(cell) for cell in held])
        there = np.flatnonzero(after == old)
        if len(there) + len(rows) <= evidence.max_cluster_size and not contradicts(rows, there):
            breaks.append(_Break(old, float(value), rows))
    return breaks


def _rows_of(cells: Cells) -> Callable[[int], LongArray]:
    order = np.argsort(cells.cell_of, kind="stable")
    bounds = np.searchsorted(cells.cell_of[order], np.arange(len(cells.old) + 1))
    return lambda cell: order[bounds[cell] : bounds[cell + 1]]


def _ties(cells: Cells, evidence: Evidence) -> Callable[[int, int], float]:
    """Return how probable it is that two cells are one identity."""
    labels = Labels.from_array(cells.cell_of)
    number = np.full(len(cells.old), -1, np.int64)
    number[cells.cell_of[cells.cell_of >= 0]] = labels.labels[cells.cell_of >= 0]
    ties = tie_groups(evidence.scored, labels, evidence.k)
    probability = as_probability(ties.probability, evidence.threshold)
    mean = dict(zip(map(tuple, ties.ids.tolist()), probability.tolist(), strict=True))

    def between(one: int, other: int) -> float:
        low, high = sorted((int(number[one]), int(number[other])))
        return float(mean.get((low, high), 0.0))

    return between


def _contradicted_by(constraints: Constraints) -> Callable[[LongArray, LongArray], bool]:
    """Test whether corrections split these images, or tie them to others."""
    if not len(constraints):
        return lambda rows, others: False
    say = what_is_said(constraints)
    spoken, rejected = (np.zeros(constraints.n_images, np.bool_) for _ in range(2))
    spoken[[*constraints.links.ravel(), *constraints.cannot.ravel(), *constraints.named]] = True
    rejected[constraints.rejected] = True
    links = constraints.links

    def is_contradicted(rows: LongArray, others: LongArray) -> bool:
        together = np.union1d(rows, others)
        some = together[spoken[together]]
        if rejected[rows].any() or not len(some):
            return bool(rejected[rows].any())
        first, second = np.triu_indices(len(some), 1)
        if (say(np.stack([some[first], some[second]], axis=1).astype(np.int32)) < 0).any():
            return True
        return bool((np.isin(links, rows).any(axis=1) & ~np.isin(links, together).all(axis=1)).any())

    return is_contradicted


def _without_lone_images(after: IntArray, constraints: Constraints) -> IntArray:
    """Identities of one image that is not named are none."""
    sizes = np.bincount(after[after >= 0], minlength=1)
    alone = (after >= 0) & (sizes[np.maximum(after, 0)] < 2)
    alone[list(constraints.named)] = False
    return np.where(alone, np.int32(-1), after)

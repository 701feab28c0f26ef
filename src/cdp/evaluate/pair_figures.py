"""Figures of accepted pairs, before propagation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from cdp.errors import InputError
from cdp.evaluate.label_figures import whole_numbers
from cdp.types import ConsensusGraph, Pairs
from cdp.types.arrays import BoolArray, IntArray, LongArray


@dataclass(frozen=True)
class PairFigures:
    """How well pairs were selected among the candidates; pairs with an unknown identity do not count.

    Attributes:
        candidates: number of candidate pairs.
        true_candidates: how many of them are one identity.
        accepted: number of accepted pairs.
        precision: true accepted / accepted; None if nothing was accepted.
        recall: true accepted / true candidates; None if no candidate is true.
    """

    candidates: int
    true_candidates: int
    accepted: int
    precision: float | None
    recall: float | None


def measure_pairs(graph: ConsensusGraph, candidates: Pairs, identities: npt.ArrayLike) -> PairFigures:
    """Number, precision, and recall among the candidates, of the accepted pairs."""
    known = whole_numbers(identities, "measure_pairs")
    if known.shape != (graph.n_images,) or candidates.n_images != graph.n_images:
        raise InputError(
            f"measure_pairs: the graph has {graph.n_images:,} images, the candidates {candidates.n_images:,}, "
            f"and there are {known.size:,} identities."
        )
    n_accepted, n_true_accepted = _count(graph.ids, known)
    n_candidates, n_true = _count(candidates.ids, known)
    return PairFigures(
        candidates=n_candidates,
        true_candidates=n_true,
        accepted=n_accepted,
        precision=n_true_accepted / n_accepted if n_accepted else None,
        recall=n_true_accepted / n_true if n_true else None,
    )


def _count(ids: IntArray, identities: LongArray) -> tuple[int, int]:
    first, second = identities[ids[:, 0]], identities[ids[:, 1]]
    known: BoolArray = (first >= 0) & (second >= 0)
    return int(known.sum()), int(((first == second) & known).sum())

"""Group scored pairs by the method that the settings name; which pairs count as accepted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.grouping.average_linkage import build_dendrogram
from cdp.grouping.dendrogram import Dendrogram
from cdp.grouping.propagation import propagate
from cdp.runtime.runtime import Runtime
from cdp.scoring.mediator import is_more_probable
from cdp.scoring.pairs import keep_pairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.vote import is_more_similar
from cdp.types import ConsensusGraph, Fate, Labels
from cdp.types.arrays import AnyArray, BoolArray, IntArray
from cdp.types.constraints import Constraints, check_constraints
from cdp.types.labels import number_by_first_appearance


def group(
    scored: ConsensusGraph,
    settings: ConsensusSettings,
    constraints: Constraints | None = None,
    *,
    dendrogram: Dendrogram | None = None,
    runtime: Runtime | None = None,
) -> Labels:
    """Assign pseudo-identities to images, from scored pairs.

    Under constraints a named image without a group becomes a group of its own, and rejected images are marked
    so.

    Args:
        scored: pairs and their doubts; for connected components the accepted ones (`at_threshold`).
        settings: of section 3.1.
        constraints: what groups must keep.
        dendrogram: average linkage of these pairs without constraints, if built already. Constraints decide
            which groups may merge, so with them linkage runs again.
        runtime: how it runs.
    """
    if constraints is not None:
        check_constraints(constraints, settings.max_size)
    if settings.grouping == "average":
        if dendrogram is None or constraints is not None:
            dendrogram = build_dendrogram(
                scored, settings.k, settings.join_above, settings.max_size, constraints, runtime=runtime
            )
        labels = dendrogram.cut(settings.join_above)
    else:
        labels = propagate(scored, settings.max_size, settings.step, constraints, runtime=runtime)
    return labels if constraints is None else _with_lone_images(labels, constraints)


def _with_lone_images(labels: Labels, constraints: Constraints) -> Labels:
    """Give named images without a group one of their own, and mark rejected images."""
    number, fate, confidence = np.array(labels.labels), np.array(labels.fate), np.array(labels.confidence)
    named = np.fromiter(constraints.named, np.int64, len(constraints.named))
    alone = named[number[named] < 0]
    number[alone] = labels.n_identities + np.arange(len(alone))
    fate[alone], confidence[alone] = Fate.LABELED, 1
    fate[constraints.rejected] = Fate.REJECTED
    return replace(labels, labels=number_by_first_appearance(number), fate=fate, confidence=confidence)


def accepted_pairs(
    scored: ConsensusGraph, labels: Labels, settings: ConsensusSettings, runtime: Runtime | None = None
) -> ConsensusGraph:
    """Select the accepted pairs.

    With connected components these are all pairs above the threshold, also between the parts of a component
    that was split, as in the paper. Average linkage has no threshold for a single pair: there a pair is
    accepted if its two images are in one group.
    """
    if settings.grouping == "components":
        return scored

    def is_inside(ids: IntArray, _: AnyArray) -> BoolArray:
        ends = labels.labels[ids]
        inside: BoolArray = (ends[:, 0] == ends[:, 1]) & (ends[:, 0] >= 0)
        return inside

    return keep_pairs(scored, is_inside, (runtime or Runtime()).spill)


def at_threshold(
    scored: ConsensusGraph, settings: ConsensusSettings, runtime: Runtime | None = None
) -> ConsensusGraph:
    """Select the pairs above the settings' threshold, from pairs that were kept at a lower one.

    Average linkage needs the same pairs at every threshold.
    """
    if settings.grouping == "average":
        return scored

    def is_kept(_: IntArray, doubt: AnyArray) -> BoolArray:
        if settings.mediator == "vote":
            return is_more_similar(doubt, settings.vote_threshold)
        return is_more_probable(doubt, settings.kept_above)

    return keep_pairs(scored, is_kept, (runtime or Runtime()).spill)

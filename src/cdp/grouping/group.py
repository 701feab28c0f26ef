"""From scored pairs to groups, by Algorithm 1 or average linkage; defines an accepted pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.grouping.average_linkage import build_dendrogram
from cdp.grouping.dendrogram import Dendrogram
from cdp.grouping.propagation import propagate
from cdp.runtime.runtime import Runtime
from cdp.scoring.mediator import is_more_probable
from cdp.scoring.pairs import keep_pairs
from cdp.scoring.settings import ConsensusSettings, kept_above, linkage_threshold
from cdp.scoring.vote import is_more_similar
from cdp.scoring.zscore import ZScoredPairs
from cdp.types import ConsensusGraph, Labels, Status
from cdp.types.arrays import AnyArray, BoolArray, IntArray
from cdp.types.constraints import Constraints, check_constraints
from cdp.types.labels import number_by_first_appearance


def group(
    scored: ConsensusGraph,
    settings: ConsensusSettings,
    threshold: float,
    constraints: Constraints | None = None,
    *,
    dendrogram: Dendrogram | None = None,
    runtime: Runtime | None = None,
) -> Labels:
    """Group images by their scored pairs: connected components (Algorithm 1) or average linkage.

    Under constraints a named image that nobody joins is a group of its own, and a rejected one has that
    status.

    Args:
        scored: the pairs that count at the threshold (`pairs_at`).
        settings: how groups are made.
        threshold: how much is joined.
        constraints: what groups must keep.
        dendrogram: average linkage of these pairs without constraints, if it was built already; under
            constraints linkage runs again.
        runtime: how it runs.
    """
    most = settings.most_images
    if constraints is not None:
        check_constraints(constraints, most)
    if settings.grouping == "average":
        lowest = linkage_threshold(settings, threshold)
        if dendrogram is None or constraints is not None:
            dendrogram = build_dendrogram(scored, settings.k, lowest, most, constraints, runtime=runtime)
        labels = dendrogram.cut(lowest)
    else:
        labels = propagate(scored, most, settings.step, constraints, runtime=runtime)
    return labels if constraints is None else _with_lone_images(labels, constraints)


def _with_lone_images(labels: Labels, constraints: Constraints) -> Labels:
    number, status, confidence = np.array(labels.labels), np.array(labels.status), np.array(labels.confidence)
    named = np.fromiter(constraints.named, np.int64, len(constraints.named))
    alone = named[number[named] < 0]
    number[alone] = labels.n_identities + np.arange(len(alone))
    status[alone], confidence[alone] = Status.LABELED, 1
    status[constraints.rejected] = Status.REJECTED
    return replace(labels, labels=number_by_first_appearance(number), status=status, confidence=confidence)


def accepted_pairs(
    scored: ConsensusGraph, labels: Labels, settings: ConsensusSettings, runtime: Runtime | None = None
) -> ConsensusGraph:
    """Return the accepted pairs.

    Connected components join whatever has a pair above the threshold, so there all of them are accepted, also
    inside a component that was split later, as in the paper. Average linkage has no threshold for a single
    pair: there a pair is accepted if its two images were joined.
    """
    if settings.grouping == "components":
        return scored

    def is_inside(ids: IntArray, _: AnyArray) -> BoolArray:
        ends = labels.labels[ids]
        inside: BoolArray = (ends[:, 0] == ends[:, 1]) & (ends[:, 0] >= 0)
        return inside

    return keep_pairs(scored, is_inside, runtime)


def pairs_at(
    scored: ConsensusGraph | ZScoredPairs,
    settings: ConsensusSettings,
    threshold: float,
    runtime: Runtime | None = None,
) -> ConsensusGraph:
    """Return the pairs that count at a threshold, of pairs that were scored for a lower one.

    Average linkage keeps the same pairs at every threshold; z-scores become probabilities, one half at the
    threshold.
    """
    if isinstance(scored, ZScoredPairs):
        return scored.at(threshold, kept_above(settings, threshold))
    if settings.grouping == "average":
        return scored

    def is_kept(_: IntArray, doubt: AnyArray) -> BoolArray:
        if settings.mediator == "vote":
            return is_more_similar(doubt, threshold)
        return is_more_probable(doubt, threshold)

    return keep_pairs(scored, is_kept, runtime)

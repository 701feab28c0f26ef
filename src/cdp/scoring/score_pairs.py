"""Scores of candidate pairs: the mediator's probability, or the vote, block by block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.runtime.memory import rows_within
from cdp.runtime.parallel import map_shared
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.spill import SpillFiles
from cdp.scoring.mediator import Mediator, is_more_probable
from cdp.scoring.paper_features import FeatureSource, extract_features
from cdp.scoring.settings import GroupingSettings
from cdp.scoring.vote import vote
from cdp.types import ConsensusGraph, Pairs, Views
from cdp.types.arrays import BoolArray, FloatArray, IntArray


def score_pairs(
    pairs: Pairs,
    source: FeatureSource,
    mediator: Mediator | None,
    settings: GroupingSettings,
    *,
    engine: RuntimeSettings | None = None,
    progress: Progress = no_progress,
    scratch: SpillFiles | None = None,
) -> ConsensusGraph:
    """The pairs that groups are made from, with the doubt about each.

    With grouping "components" these are the accepted ones; with "average" all that are not negligible.

    Args:
        pairs: candidates.
        source: what opinions are drawn from.
        mediator: None for the vote.
        settings: bars, and how groups will be made.
        engine: threads and memory.
        progress: called as the work goes on.
        scratch: where the pairs lie.
    """
    engine, scratch = engine or RuntimeSettings(), scratch or SpillFiles()
    rows = min(PAIRS_PER_BLOCK, rows_within(engine.share, source.bytes_per_pair))
    workers = engine.workers_for(rows * source.bytes_per_pair)
    ids, doubts = scratch.empty((len(pairs), 2), np.int32), scratch.empty(len(pairs), np.float32)
    start, n_kept = 0, 0
    # Without the images' names, which nobody needs here and every worker would be sent.
    bare = replace(source, views=Views(source.views.base, source.views.committee))
    blocks = (pairs.ids[first:last] for first, last in spans(len(pairs), rows))
    for part, doubt in map_shared(_judge, (bare, mediator, settings), blocks, workers):
        stop, end = start + len(part), n_kept + len(doubt)
        ids[n_kept:end], doubts[n_kept:end] = pairs.ids[start:stop][part], doubt
        start, n_kept = stop, end
        progress("pairs", stop, len(pairs))
    return ConsensusGraph(scratch.copy(ids[:n_kept]), scratch.copy(doubts[:n_kept]), pairs.n_images)


def _judge(
    shared: tuple[FeatureSource, Mediator | None, GroupingSettings], ids: IntArray
) -> tuple[BoolArray, FloatArray]:
    """Which of some pairs are kept, and the doubt about those."""
    source, mediator, settings = shared
    opinions = extract_features(source, ids)
    if mediator is None:
        accepted, doubt = vote(opinions, settings.quorum, settings.vote_threshold)
    else:
        doubt = mediator.doubt(opinions.matrix(mediator.inputs))
        accepted = is_more_probable(doubt, settings.kept_above)
    return accepted, doubt[accepted]

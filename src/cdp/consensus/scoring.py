"""Scores of candidate pairs: the mediator's probability, or the vote, block by block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.consensus.mediator import Mediator, is_more_probable
from cdp.consensus.pair_features import FeatureSource, extract_features
from cdp.consensus.settings import GroupingSettings
from cdp.consensus.vote import vote
from cdp.engine import Engine
from cdp.memory import rows_within
from cdp.parallel import map_shared, spans
from cdp.progress import Progress, no_progress
from cdp.types import ConsensusGraph, Pairs, Views
from cdp.types.arrays import BoolArray, FloatArray, IntArray

_MOST_PAIRS_PER_BLOCK = 65_536


def score_pairs(
    pairs: Pairs,
    source: FeatureSource,
    mediator: Mediator | None,
    settings: GroupingSettings,
    *,
    engine: Engine | None = None,
    progress: Progress = no_progress,
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
    """
    engine = engine or Engine()

    # Several blocks are under way at once, so each gets a share of the budget.
    rows = min(_MOST_PAIRS_PER_BLOCK, rows_within(engine.memory_budget, 4 * source.bytes_per_pair))
    kept = np.zeros(len(pairs), np.bool_)
    doubts = [np.empty(0, np.float32)]
    start = 0
    # Without the images' names, which nobody needs here and every worker would be sent.
    bare = replace(source, views=Views(source.views.base, source.views.committee))
    blocks = (pairs.ids[first:last] for first, last in spans(len(pairs), rows))
    for part, doubt in map_shared(_judge, (bare, mediator, settings), blocks, engine.workers):
        stop = start + len(part)
        kept[start:stop] = part
        doubts.append(doubt)
        start = stop
        progress("pairs", stop, len(pairs))
    return ConsensusGraph(pairs.ids[kept], np.concatenate(doubts), pairs.n_images)


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

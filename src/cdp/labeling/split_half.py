"""The bar where nobody is known and images are few: two halves of the models agree on it.

Every model is cut into two: its even and its odd dimensions. Each half groups all images by itself, at every bar. Were the mistakes
of the halves independent, a pair that is right would be found by both with probability recall², and a wrong one by both hardly
ever; so the pairs that both found, relative to those that one found, would be precision · recall. The bar where the halves agree
best is then about the bar with the best F, and nobody had to be known.

The whole is sharper than its halves: pairs of one identity lie further above chance, so its best bar is a little higher. As many
pairs pass in the whole as in the halves at a bar which is an upper end for it; the bar in the middle of the two is taken.

Mistakes that both halves make (lookalikes, images that no model can tell) are not seen, so the agreement flatters: it is how stable
the groups are, not how right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_agreement
from cdp.grouping.components import BYTES_PER_PAIR
from cdp.grouping.group import group
from cdp.labeling.workspace import Graphs, Workspace, find_graphs
from cdp.runtime.parallel import map_blocks
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.tree_features import search_together
from cdp.scoring.zscore import (
    Background,
    measure_background,
    similarity_to_itself,
    soften,
    standard_similarities,
)
from cdp.types import ConsensusGraph, Embeddings, KnnGraph, Labels, Pairs, Views
from cdp.types.arrays import FloatArray
from cdp.types.run_record import BarPoint, UnsupervisedBar

BARS = tuple(round(1.5 + 0.25 * step, 2) for step in range(35))
"""What is tried for similar_above, from low to high, where the most that is possible is not low itself."""

_LOW_TOP = 4.0

_QUANTILE = 1.96


@dataclass(frozen=True, eq=False)
class StandardPairs:
    """Candidate pairs and their standard similarity; where they come from, and what they are measured against."""

    views: Views
    pairs: Pairs
    standard: FloatArray
    graphs: dict[str, KnnGraph]
    together: KnnGraph
    background: Background

    def at(self, settings: ConsensusSettings) -> ConsensusGraph:
        """The pairs that count at the settings' bar, with the doubt about each."""
        ids, doubts = [np.empty((0, 2), np.int32)], [np.empty(0, np.float32)]
        top = similarity_to_itself(self.background)
        for start, stop in spans(len(self.pairs), PAIRS_PER_BLOCK):
            doubt = soften(self.standard[start:stop], settings.similar_above, top)
            kept = doubt < 1 - settings.kept_above
            ids.append(self.pairs.ids[start:stop][kept])
            doubts.append(doubt[kept])
        return ConsensusGraph(np.concatenate(ids), np.concatenate(doubts), self.pairs.n_images)

    def share_above(self, bar: float) -> float:
        """Of the candidate pairs, those whose standard similarity is greater."""
        return float((self.standard > bar).mean()) if len(self.pairs) else 0.0


def compare_pairs(
    views: Views,
    settings: ConsensusSettings,
    given: Graphs | None = None,
    *,
    seed: int = 0,
    work: Workspace | None = None,
    part: str = "",
) -> StandardPairs:
    """Standard similarities of the pairs that are nearest neighbors in all models together."""
    work = work or Workspace()
    longer = replace(settings, k=min(2 * settings.k, views.n_images - 1))
    lists = () if given is None else given.values() if isinstance(given, Mapping) else given
    wanted = longer if all(graph.k >= longer.k for graph in lists) else settings
    graphs = find_graphs(views, wanted, given, seed=seed, work=work, part=part)
    with work.step(f"{part}all models"):
        together = search_together(
            views,
            list(graphs.values()),
            longer.k,
            threads=work.engine.threads,
            progress=work.progress,
            scratch=work.scratch,
        )
        pairs = candidate_pairs(together.nearest(settings.k), work.scratch)
        background = measure_background(views, seed)
        standard = standard_similarities(views, pairs, background, work.scratch)
    return StandardPairs(views, pairs, standard, graphs, together, background)


def compare_halves(
    views: Views, settings: ConsensusSettings, *, seed: int, work: Workspace
) -> list[StandardPairs]:
    """The standard similarities that each half of the models gives."""
    return [
        compare_pairs(half, settings, seed=seed, work=work, part=f"{name} half of ")
        for name, half in zip(("first", "second"), cut_in_two(views), strict=True)
    ]


def group_alone(compared: StandardPairs, settings: ConsensusSettings, work: Workspace) -> Labels:
    """The groups at the settings' bar, made on this thread only."""
    return group(compared.at(settings), settings, runtime=work.runtime.here(threads=1))


def bars_for(halves: Sequence[StandardPairs]) -> tuple[float, ...]:
    """What is tried for similar_above; lower where an image and itself are hardly more similar than random pairs.

    So it is where few people fill a collection, and random pairs are as unlike as these are.
    """
    top = min(similarity_to_itself(half.background) for half in halves)
    if top >= _LOW_TOP:
        return BARS
    return tuple(round(top * (0.2 + 0.02 * step), 3) for step in range(len(BARS)))


def agree_on_bar(
    views: Views,
    whole: StandardPairs,
    settings: ConsensusSettings,
    *,
    seed: int = 0,
    work: Workspace | None = None,
) -> UnsupervisedBar:
    """The bar for the whole, by the one at which the groups of two halves of every model agree best; and all that were tried.

    Judged by the lower end of Wilson's 95 % interval over the images in groups, because a handful of near copies always agrees; of
    equal ones the middle one is taken.
    """
    work = work or Workspace()
    halves = compare_halves(views, settings, seed=seed, work=work)
    bars = bars_for(halves)

    def measure(bar: float) -> BarPoint:
        tried = replace(settings, similar_above=bar)
        first, second = (group_alone(half, tried, work) for half in halves)
        return BarPoint(
            threshold=bar, agreement=measure_agreement(first, second), coverage=_coverage(first, second)
        )

    size = 2 * BYTES_PER_PAIR * max(len(half.pairs) for half in halves)
    workers = replace(work.engine, engine="threads").workers_for(size)
    assert isinstance(workers, int)
    curve = []
    with work.step("agreement"):
        for point in map_blocks(measure, bars, workers):
            curve.append(point)
            work.progress("agreement of two halves", len(curve), len(bars))
    ends = [lower_end(point.agreement or 0.0, point.coverage * views.n_images) for point in curve]
    equal = [point for point, end in zip(curve, ends, strict=True) if end == max(ends)]
    best = equal[len(equal) // 2]
    share = float(np.mean([half.share_above(best.threshold) for half in halves]))
    as_many = float(np.quantile(whole.standard, 1 - share)) if len(whole.pairs) else best.threshold
    chosen = round((best.threshold + max(as_many, best.threshold)) / 2, 2)
    return UnsupervisedBar(chosen=chosen, agreement=best.agreement, curve=curve)


def lower_end(share: float, count: float) -> float:
    """Of Wilson's 95 % interval for a share that was measured on so many; 0 for none."""
    if not count:
        return 0.0
    square = _QUANTILE**2
    spread = _QUANTILE * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return (share + square / (2 * count) - spread) / (1 + square / count)


def cut_in_two(views: Views) -> tuple[Views, Views]:
    """Even and odd dimensions of every model; nothing is copied."""

    def half(first: int) -> Views:
        models = {
            name: _every_other(name, model, first) for name, model in zip(views.names, views, strict=True)
        }
        return Views(models.pop("base"), models)

    return half(0), half(1)


def _every_other(name: str, model: Embeddings, first: int) -> Embeddings:
    way_out = "set similar_above yourself (about 5), or leave the model out"
    if model.dimensions < 2:
        raise InputError(
            f"{name}: one dimension cannot be cut in two to choose the bar; {way_out}.",
            code="halves-one-dimension",
            model=name,
        )
    try:
        return Embeddings(model.source[:, first::2])
    except InputError as error:
        raise InputError(
            f"{name}, every other dimension: {error} To choose no bar, {way_out}.",
            **error.details(model=name),
        ) from None


def _coverage(*groupings: Labels) -> float:
    return float(np.mean([(one.labels >= 0).mean() for one in groupings]))

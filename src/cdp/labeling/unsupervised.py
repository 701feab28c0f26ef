"""Labels where no identity is known: pairs by their standard similarity, and a bar on which two halves of the models agree.

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
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cdp.consensus.evidence import search_together
from cdp.consensus.grouping import group
from cdp.consensus.pairs import candidate_pairs
from cdp.consensus.settings import ConsensusSettings
from cdp.consensus.sharded_components import BYTES_PER_PAIR
from cdp.consensus.standard_similarity import measure_background, soften, standard_similarities
from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_agreement
from cdp.labeling.judged import Judged
from cdp.labeling.workspace import Graphs, Workspace, find_graphs
from cdp.parallel import map_blocks, spans
from cdp.types import ConsensusGraph, Embeddings, KnnGraph, Labels, Pairs, Views
from cdp.types.arrays import FloatArray
from cdp.types.run_record import AgreementPoint, HalvesAgreement

BARS = tuple(round(1.5 + 0.25 * step, 2) for step in range(35))
"""What is tried for similar_above, from low to high."""

_PAIRS_PER_BLOCK = 65_536
_QUANTILE = 1.96


@dataclass(frozen=True, eq=False)
class StandardPairs:
    """Candidate pairs and their standard similarity; the graphs that they come from."""

    pairs: Pairs
    standard: FloatArray
    graphs: dict[str, KnnGraph]
    together: KnnGraph

    def at(self, settings: ConsensusSettings) -> ConsensusGraph:
        """The pairs that count at the settings' bar, with the doubt about each."""
        ids, doubts = [np.empty((0, 2), np.int32)], [np.empty(0, np.float32)]
        for start, stop in spans(len(self.pairs), _PAIRS_PER_BLOCK):
            doubt = soften(self.standard[start:stop], settings.similar_above)
            kept = doubt < 1 - settings.kept_above
            ids.append(self.pairs.ids[start:stop][kept])
            doubts.append(doubt[kept])
        return ConsensusGraph(np.concatenate(ids), np.concatenate(doubts), self.pairs.n_images)

    def share_above(self, bar: float) -> float:
        """Of the candidate pairs, those whose standard similarity is greater."""
        return float((self.standard > bar).mean()) if len(self.pairs) else 0.0


def judge_by_similarity(
    views: Views,
    settings: ConsensusSettings,
    given: Graphs | None,
    *,
    seed: int,
    work: Workspace,
    notes: list[str],
) -> Judged:
    """Judged pairs, and how the bar was chosen if it was not given; then `notes` gets a sentence."""
    whole, found = compare_pairs(views, settings, given, seed=seed, work=work), None
    if not settings.similar_above:
        found = agree_on_bar(views, whole, settings, seed=seed, work=work)
        settings = with_chosen_bar(settings, found)
        notes.append(describe_agreement(found))
    nobody = np.full(views.n_images, -1, np.int64)
    return Judged(whole.at(settings), whole.graphs, whole.together, settings.k, nobody, unsupervised=found)


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
        standard = standard_similarities(views, pairs, measure_background(views, seed), work.scratch)
    return StandardPairs(pairs, standard, graphs, together)


def agree_on_bar(
    views: Views,
    whole: StandardPairs,
    settings: ConsensusSettings,
    *,
    seed: int = 0,
    work: Workspace | None = None,
) -> HalvesAgreement:
    """The bar for the whole, by the one at which the groups of two halves of every model agree best; and all that were tried.

    Judged by the lower end of Wilson's 95 % interval over the images in groups, because a handful of near copies always agrees; of
    equal ones the lowest is taken.
    """
    work = work or Workspace()
    halves = [
        compare_pairs(half, settings, seed=seed, work=work, part=f"{name} half of ")
        for name, half in zip(("first", "second"), cut_in_two(views), strict=True)
    ]

    in_turn = replace(work.engine, engine="threads", threads=1)

    def measure(bar: float) -> AgreementPoint:
        tried = replace(settings, similar_above=bar)
        first, second = (
            group(half.at(tried), tried, engine=in_turn, scratch=work.scratch) for half in halves
        )
        return AgreementPoint(
            threshold=bar, agreement=measure_agreement(first, second), coverage=_coverage(first, second)
        )

    size = 2 * BYTES_PER_PAIR * max(len(half.pairs) for half in halves)
    workers = replace(work.engine, engine="threads").workers_for(size)
    assert isinstance(workers, int)
    curve = []
    with work.step("agreement"):
        for point in map_blocks(measure, BARS, workers):
            curve.append(point)
            work.progress("agreement of two halves", len(curve), len(BARS))
    best = max(curve, key=lambda point: lower_end(point.agreement, point.coverage * views.n_images))
    share = float(np.mean([half.share_above(best.threshold) for half in halves]))
    as_many = float(np.quantile(whole.standard, 1 - share)) if len(whole.pairs) else best.threshold
    chosen = round((best.threshold + max(as_many, best.threshold)) / 2, 2)
    return HalvesAgreement(chosen=chosen, halves=best.threshold, agreement=best.agreement, curve=curve)


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
        raise InputError(f"{name}: one dimension cannot be cut in two to choose the bar; {way_out}.")
    try:
        return Embeddings(model.source[:, first::2])
    except InputError as error:
        raise InputError(f"{name}, every other dimension: {error} To choose no bar, {way_out}.") from None


def _coverage(*groupings: Labels) -> float:
    return float(np.mean([(one.labels >= 0).mean() for one in groupings]))


def with_chosen_bar(settings: ConsensusSettings, found: HalvesAgreement | None) -> ConsensusSettings:
    """The settings with the bar that was chosen, if one was."""
    return settings if found is None else replace(settings, similar_above=found.chosen)


def describe_agreement(found: HalvesAgreement) -> str:
    """The note: what was chosen, why, and how sure that is."""
    return (
        f"Nobody is known: similar_above = {found.chosen:g} was chosen, where the groups that two halves of the models make "
        f"agree best (pairwise F {found.agreement:.3f} between them). That is how stable the groups are, and more than "
        "how right they are: mistakes of both halves do not show."
    )

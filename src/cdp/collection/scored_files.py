"""What scored the pairs of a collection, on disk: candidate pairs, probabilities, trees or mediator, and what was measured then.

The k-NN graphs follow from the embeddings, so labeling does not store them: whoever adds images for the first time searches them again,
and stores them from then on. Graphs that were given are always stored.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from cdp.grouping.group import at_threshold
from cdp.labeling.fused_graph import search_fused
from cdp.labeling.result import Judged
from cdp.labeling.workspace import Workspace, find_graphs
from cdp.scoring.mediator import Mediator
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.trees import TreeAnswers
from cdp.storage.artifacts import fill, fill_arrays, load, read_array, read_card, read_json, read_settings
from cdp.storage.files import write_json, writing_folder
from cdp.types import ConsensusGraph, KnnGraph, Pairs, Views
from cdp.types.arrays import AnyArray, LongArray
from cdp.types.run_record import PartRecord, Results

KIND = "CollectionScored"
FUSED = ("trees", "similarity")
"""Mediators whose candidates are neighbors in all models together; those of the others are the base's."""


class ScoredFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the card says.

    Images (labeled ones among them), names of models, neighbors per list, passes of trees (0 = none), mediator or not, graphs or not, share of the
    labeled images that are used.
    """

    n_nodes: int
    k: int
    lists: int
    models: tuple[str, ...]
    passes: int
    has_mediator: bool
    has_graphs: bool
    share: float = 1.0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured when pairs were scored: all figures, seconds by step, and the parts that were given."""

    results: Results
    seconds: dict[str, float] = {}
    parts: dict[str, PartRecord] = {}


def write_scored(
    place: Path, judged: Judged, mediator: Mediator | None, measured: Measured, *, with_graphs: bool = True
) -> None:
    """Write all that scoring more pairs will need; the graphs only where they are asked for."""
    arrays: dict[str, AnyArray] = {"known": judged.known}
    answers, pairs = judged.answers, judged.pairs
    if answers is not None and pairs is not None:
        arrays["ids"] = pairs.ids
    else:
        arrays |= {"ids": judged.scored.ids, "doubt": judged.scored.doubt}
    base = next(iter(judged.graphs.values()))
    with writing_folder(place, force=True) as folder:
        fill(folder / "base_graph", base.nearest(judged.k))
        if with_graphs:
            graphs = {str(number): graph for number, graph in enumerate(judged.graphs.values())}
            for name, graph in (graphs | {"together": judged.together}).items():
                (folder / "graphs").mkdir(exist_ok=True)
                fill(folder / "graphs" / name, graph)
        if mediator is not None:
            fill(folder / "mediator", mediator)
        if answers is not None:
            fill(folder / "answers", answers)
        write_json(folder / "measured.json", msgspec.to_builtins(measured))
        facts = ScoredFacts(
            n_nodes=judged.together.n_images,
            k=judged.k,
            lists=base.k,
            models=tuple(judged.graphs),
            passes=0 if answers is None else len(answers.passes),
            has_mediator=mediator is not None,
            has_graphs=with_graphs,
            share=judged.share,
        )
        summary = f"{len(arrays['ids']):,} pairs of {facts.n_nodes:,} images"
        fill_arrays(folder, KIND, summary, msgspec.to_builtins(facts), arrays)


def read_judged(
    place: Path, settings: ConsensusSettings, views: Views, seed: int, work: Workspace
) -> tuple[Judged, Mediator | None]:
    """All that scoring more pairs needs; every array is compared with its hash, and graphs that are not stored are searched.

    Args:
        place: where they are stored.
        settings: of the collection.
        views: of all its images, labeled ones that are used after the others.
        seed: of the collection.
        work: engine and progress of the search.
    """
    card = read_card(place, KIND)
    facts = read_settings(place, card, ScoredFacts)
    known = read_known(place)
    if facts.has_graphs:
        graphs = {
            name: load(place / "graphs" / str(number), KnnGraph) for number, name in enumerate(facts.models)
        }
        together = load(place / "graphs" / "together", KnnGraph)
    else:
        graphs, together = _search_again(views, settings, facts, known, seed, work)
    pairs = Pairs(read_array(place, "ids", card), facts.n_nodes) if facts.passes else None
    judged = Judged(
        scored=read_scored(place, settings),
        graphs=graphs,
        together=together,
        k=facts.k,
        known=known,
        pairs=pairs,
        answers=load(place / "answers", TreeAnswers) if facts.passes else None,
        share=facts.share,
    )
    return judged, load(place / "mediator", Mediator) if facts.has_mediator else None


def _search_again(
    views: Views,
    settings: ConsensusSettings,
    facts: ScoredFacts,
    known: LongArray,
    seed: int,
    work: Workspace,
) -> tuple[dict[str, KnnGraph], KnnGraph]:
    """The graphs as labeling searched them, from the same embeddings with the same seed."""
    graphs = find_graphs(views, replace(settings, k=facts.lists), seed=seed, work=work, known=known)
    if settings.mediator not in FUSED:
        return graphs, next(iter(graphs.values()))
    return graphs, search_fused(views, list(graphs.values()), facts.lists, {}, work)


def read_share(place: Path) -> float:
    """Share of the labeled images that are used."""
    return read_settings(place, read_card(place, KIND), ScoredFacts).share


def read_measured(place: Path) -> Measured:
    """What was measured when the pairs were scored."""
    measured: Measured = read_json(place / "measured.json", Measured)
    return measured


def read_scored(place: Path, settings: ConsensusSettings) -> ConsensusGraph:
    """The pairs that count when groups are made at the settings' bar, labeled images among them."""
    card = read_card(place, KIND)
    facts = read_settings(place, card, ScoredFacts)
    ids = read_array(place, "ids", card, check=False)
    if facts.passes:
        answers = place / "answers"
        doubt = 1 - read_array(answers, f"pass{facts.passes}", read_card(answers), check=False)
    else:
        doubt = read_array(place, "doubt", card, check=False)
    return at_threshold(ConsensusGraph(ids, doubt, facts.n_nodes), settings)


def read_known(place: Path) -> LongArray:
    """Known identities of all images, -1 where unknown."""
    return read_array(place, "known", read_card(place, KIND), check=False)

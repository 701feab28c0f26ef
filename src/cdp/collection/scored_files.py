"""Scoring results on disk: candidate pairs, probabilities, trees or mediator, and figures.

The k-NN graphs follow from the embeddings, so labeling does not store them: whoever adds images for the first
time searches them again, and stores them from then on. Graphs that were given are always stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from cdp.grouping.group import pairs_at
from cdp.knn.model_graphs import find_graphs
from cdp.runtime.runtime import Runtime
from cdp.scoring.fused_graph import search_fused
from cdp.scoring.mediator import Mediator
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.trees import TreeScores
from cdp.scoring.zscore import NullStatistics, ZScoredPairs
from cdp.storage.array_files import naming
from cdp.storage.artifacts import (
    fill,
    fill_arrays,
    load,
    read_array,
    read_card,
    read_json,
    read_settings,
    write_array,
)
from cdp.storage.files import write_json, writing_folder
from cdp.types import ConsensusGraph, KnnGraph, Pairs, Softness, Views
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.run_record import PartRecord, Results

KIND = "CollectionScored"
FUSED = ("trees", "similarity")
"""Scorers whose candidates are neighbors in the fused graph of all models; those of the others are the
base's."""


class SimilarityFacts(msgspec.Struct, frozen=True):
    """Statistics of random pairs, and how z-scores follow from vectors and become probabilities."""

    null: NullStatistics
    offset: float
    softness: Softness | None = None


class ScoredFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the card says.

    Images (labeled ones among them), candidates per image, neighbors per list, names of models, passes of
    trees (0 = none), mediator or not, graphs or not, share of the labeled images that are used, statistics of
    random pairs where pairs have z-scores.
    """

    n_nodes: int
    k: int
    lists: int
    models: tuple[str, ...]
    passes: int
    has_mediator: bool
    has_graphs: bool
    share: float = 1.0
    similarity: SimilarityFacts | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a scoring run: all metrics, seconds per step, and the given parts."""

    results: Results
    seconds: dict[str, float] = {}
    parts: dict[str, PartRecord] = {}


def write_scored(
    place: Path,
    scored: ScoredPairs,
    mediator: Mediator | None,
    measured: Measured,
    *,
    share: float = 1.0,
    with_graphs: bool = True,
    runtime: Runtime | None = None,
) -> None:
    """Write everything that scoring more pairs needs; every array is a task.

    `share` of the labeled images is used; graphs are stored on request.
    """
    write = partial(_write_arrays, runtime or Runtime())
    arrays: dict[str, AnyArray] = {"identities": scored.identities}
    trees, candidates, similarity = scored.tree_scores, scored.candidates, None
    if trees is not None and candidates is not None:
        arrays["ids"] = candidates.ids
    elif isinstance(scored.scored, ZScoredPairs):
        arrays |= {"ids": scored.scored.pairs.ids, "z": scored.scored.z, "vectors": scored.scored.vectors}
        similarity = SimilarityFacts(scored.scored.null, scored.scored.offset, scored.scored.softness)
    else:
        arrays |= {"ids": scored.scored.ids, "doubt": scored.scored.doubt}
    base = next(iter(scored.graphs.values()))
    with writing_folder(place, force=True) as folder:
        fill(folder / "base_graph", base.nearest(scored.k), write=write)
        if with_graphs:
            graphs = {str(number): graph for number, graph in enumerate(scored.graphs.values())}
            for name, graph in (graphs | {"fused": scored.fused}).items():
                (folder / "graphs").mkdir(exist_ok=True)
                fill(folder / "graphs" / name, graph, write=write)
        if mediator is not None:
            fill(folder / "mediator", mediator)
        if trees is not None:
            fill(folder / "trees", trees, write=write)
        write_json(folder / "measured.json", msgspec.to_builtins(measured))
        facts = ScoredFacts(
            n_nodes=scored.fused.n_images,
            k=scored.k,
            lists=base.k,
            models=tuple(scored.graphs),
            passes=0 if trees is None else len(trees.passes),
            has_mediator=mediator is not None,
            has_graphs=with_graphs,
            share=share,
            similarity=similarity,
        )
        summary = f"{len(arrays['ids']):,} pairs of {facts.n_nodes:,} images"
        fill_arrays(folder, KIND, summary, msgspec.to_builtins(facts), arrays, write=write)


def _write_arrays(runtime: Runtime, files: Iterable[tuple[Path, AnyArray]]) -> Iterator[str]:
    """Write arrays and return their hashes; files by absolute path, because machines differ in folder."""
    return runtime.map(_write_array, None, [(file.absolute(), array) for file, array in files])


def _write_array(_: None, file_and_array: tuple[Path, AnyArray]) -> str:
    return write_array(file_and_array)


def read_scored_pairs(
    place: Path, settings: ConsensusSettings, threshold: float, views: Views, seed: int, runtime: Runtime
) -> tuple[ScoredPairs, Mediator | None]:
    """Read everything that scoring more pairs needs.

    Arrays are checked against their hashes; graphs that are not stored are searched.

    Args:
        place: where they are stored.
        settings: of the collection.
        threshold: of the collection.
        views: of all its images, labeled ones that are used after the others.
        seed: of the collection.
        runtime: how the search runs.
    """
    card = read_card(place, KIND)
    facts = read_settings(place, card, ScoredFacts)
    identities = read_identities(place)
    if facts.has_graphs:
        graphs = {
            name: load(place / "graphs" / str(number), KnnGraph) for number, name in enumerate(facts.models)
        }
        fused = load(place / "graphs" / "fused", KnnGraph)
    else:
        graphs, fused = _search_again(views, settings, facts, identities, seed, runtime)
    with naming(place, folder=place):
        candidates = Pairs(read_array(place, "ids", card), facts.n_nodes) if facts.passes else None
    scored = ScoredPairs(
        scored=_read_z_scores(place) or read_scored(place, settings, threshold),
        graphs=graphs,
        fused=fused,
        k=facts.k,
        identities=identities,
        candidates=candidates,
        tree_scores=load(place / "trees", TreeScores) if facts.passes else None,
    )
    return scored, load(place / "mediator", Mediator) if facts.has_mediator else None


def _search_again(
    views: Views,
    settings: ConsensusSettings,
    facts: ScoredFacts,
    identities: LongArray,
    seed: int,
    runtime: Runtime,
) -> tuple[dict[str, KnnGraph], KnnGraph]:
    """Search the graphs as labeling did, from the same embeddings with the same seed."""
    longer = replace(settings, k=facts.lists)
    found = find_graphs(views, longer, seed=seed, runtime=runtime, identities=identities)
    if settings.mediator not in FUSED:
        return found.graphs, found.base
    with runtime.step("all models"):
        return found.graphs, search_fused(views, list(found), facts.lists, runtime=runtime)


def keep_scored_rows(source: Path, target: Path, kept: BoolArray) -> None:
    """Rewrite the scoring results without some images; labeled images, which follow the others, stay.

    Args:
        source: where it is stored.
        target: where it is written.
        kept: bool (n,), the images that stay; without the labeled ones.
    """
    card = read_card(source, KIND)
    facts = read_settings(source, card, ScoredFacts)
    stays = np.concatenate([kept, np.ones(facts.n_nodes - len(kept), np.bool_)])
    number: IntArray = np.where(stays, np.cumsum(stays) - 1, -1).astype(np.int32)
    ids = read_array(source, "ids", card)
    pairs = stays[ids].all(axis=1)
    arrays = {"identities": read_array(source, "identities", card)[stays], "ids": number[ids[pairs]]}
    if "vectors" in card.arrays:
        arrays["vectors"] = read_array(source, "vectors", card)[stays]
    arrays |= {name: read_array(source, name, card)[pairs] for name in ("z", "doubt") if name in card.arrays}
    with writing_folder(target, force=True) as folder:
        for graph in ("base_graph", *(f"graphs/{one.name}" for one in sorted(source.glob("graphs/*")))):
            (folder / graph).parent.mkdir(exist_ok=True)
            fill(folder / graph, load(source / graph, KnnGraph).keep_rows(stays, number))
        if facts.has_mediator:
            fill(folder / "mediator", load(source / "mediator", Mediator))
        if facts.passes:
            trees = load(source / "trees", TreeScores)
            fill(folder / "trees", replace(trees, passes=tuple(one[pairs] for one in trees.passes)))
        write_json(folder / "measured.json", msgspec.to_builtins(read_measured(source)))
        n_nodes = int(stays.sum())
        most = n_nodes - 1  # neighbors that there are
        facts = msgspec.structs.replace(
            facts, n_nodes=n_nodes, k=min(facts.k, most), lists=min(facts.lists, most)
        )
        summary = f"{len(arrays['ids']):,} pairs of {facts.n_nodes:,} images"
        fill_arrays(folder, KIND, summary, msgspec.to_builtins(facts), arrays)


def read_share(place: Path) -> float:
    """Share of the labeled images that are used."""
    return read_settings(place, read_card(place, KIND), ScoredFacts).share


def read_measured(place: Path) -> Measured:
    """Return what was measured when the pairs were scored."""
    way_out = "restore it from a copy, or label the images again"
    measured: Measured = read_json(place / "measured.json", Measured, way_out)
    return measured


def read_scored(place: Path, settings: ConsensusSettings, threshold: float) -> ConsensusGraph:
    """Return the pairs that count when groups are made at the threshold, labeled images among them."""
    z_scored = _read_z_scores(place)
    if z_scored is not None:
        return pairs_at(z_scored, settings, threshold)
    card = read_card(place, KIND)
    facts = read_settings(place, card, ScoredFacts)
    ids = read_array(place, "ids", card, check=False)
    if facts.passes:
        trees = place / "trees"
        doubt = 1 - read_array(trees, f"pass{facts.passes}", read_card(trees), check=False)
    else:
        doubt = read_array(place, "doubt", card, check=False)
    with naming(place, folder=place):
        pairs = ConsensusGraph(ids, doubt, facts.n_nodes)
    return pairs_at(pairs, settings, threshold)


def _read_z_scores(place: Path) -> ZScoredPairs | None:
    """Candidate pairs with their z-scores; None where pairs have probabilities."""
    card = read_card(place, KIND)
    facts = read_settings(place, card, ScoredFacts)
    if facts.similarity is None:
        return None
    null, offset, softness = facts.similarity.null, facts.similarity.offset, facts.similarity.softness
    ids, z, vectors = (read_array(place, name, card, check=False) for name in ("ids", "z", "vectors"))
    with naming(place, folder=place):
        return ZScoredPairs(Pairs(ids, facts.n_nodes), z, null, vectors, offset, softness)


def read_identities(place: Path) -> LongArray:
    """Labeled identities of all images, -1 where unlabeled."""
    return read_array(place, "identities", read_card(place, KIND), check=False)

"""Pairs judged by trees: candidates and evidence from all models together, trained on the known images among the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.consensus.evidence import prepare_evidence, search_together
from cdp.consensus.pairs import candidate_pairs
from cdp.consensus.settings import ConsensusSettings
from cdp.consensus.trees import estimate_probabilities, known_pairs
from cdp.labeling.workspace import Graphs, Workspace, find_graphs
from cdp.types import ConsensusGraph, KnnGraph, Views
from cdp.types.arrays import BoolArray


def score_by_trees(
    views: Views,
    settings: ConsensusSettings,
    mask: BoolArray | None,
    given: Graphs | None,
    *,
    seed: int,
    work: Workspace,
) -> tuple[ConsensusGraph, dict[str, KnnGraph], KnnGraph]:
    """Scored pairs, the models' graphs, and the graph whose edges are the candidates.

    Lists of 2k neighbors are searched, because ranks beyond k are evidence too; candidates are the k nearest in all models
    together.

    Args:
        views: of all images, known ones among them.
        settings: with the lowest bar that will be tried.
        mask: bool (n,), the known images.
        given: graphs that are there already; their lists are used as they are.
        seed: of folds, samples and trees.
        work: engine, cache and progress.
    """
    known = np.full(views.n_images, -1, np.int64)
    if mask is not None and views.identities is not None:
        known[mask] = views.identities[mask]
    longer = replace(settings, k=min(2 * settings.k, views.n_images - 1))
    graphs = find_graphs(views, longer if given is None else settings, given, seed=seed, work=work)
    with work.step("all models"):
        together = search_together(
            views, list(graphs.values()), longer.k, threads=work.engine.threads, progress=work.progress
        )
    candidates = together.nearest(settings.k)
    pairs = candidate_pairs(candidates)
    with work.step("consensus"):
        probability = estimate_probabilities(
            prepare_evidence(views, list(graphs.values()), together),
            pairs,
            known_pairs(pairs, known, complete=settings.disjoint, seed=seed),
            passes=settings.passes,
            seed=seed,
            engine=work.engine,
            progress=work.progress,
        )
    kept = probability > settings.kept_above
    scored = ConsensusGraph(pairs.ids[kept], 1 - probability[kept], views.n_images)
    return scored, {name: graph.nearest(settings.k) for name, graph in graphs.items()}, candidates

"""Retraining of a collection's trees on labeled images and corrections, with a new threshold."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np

from cdp.collection.collection import Collection, open_collection
from cdp.collection.collection_folder import State, numbered
from cdp.collection.combined_views import read_all_views, read_labeled_views
from cdp.collection.incremental_knn import changed_rows, insert_images, search_new
from cdp.collection.numbering import Changes
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.scored_files import read_measured, read_scored_pairs, read_share, write_scored
from cdp.errors import InputError
from cdp.labeling.density_matching import matching_share, order_of_use
from cdp.labeling.tuning import count_shared, tune
from cdp.runtime.runtime import Runtime
from cdp.scoring.fused_graph import search_fused
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.tree_scorer import TreeScorer
from cdp.storage.files import locked
from cdp.types import ConsensusGraph, Views
from cdp.types.arrays import LongArray


def retrain(collection: Collection, *, runtime: Runtime | None = None) -> tuple[Collection, Changes]:
    """Train trees again with the corrections so far, score all pairs and group the images.

    Old images are not searched again; labeled ones that were left out may be added.

    Args:
        collection: whose folder gets new trees and groups.
        runtime: how it runs.

    Raises:
        InputError: pairs of this collection are not scored by trees.
    """
    runtime = runtime or Runtime()
    folder = collection.folder
    with locked(folder):
        now = open_collection(folder)
        settings, threshold = now.settings, now.state.threshold
        place = now.scored_place
        measured, share = read_measured(place), read_share(place)
        with read_all_views(now, None, runtime, share) as views:
            before, mediator = read_scored_pairs(place, settings, threshold, views, now.state.seed, runtime)
        if before.tree_scores is None:
            raise InputError(
                f"{folder}: only trees can be retrained, but its mediator is {settings.mediator!r}; "
                "run cdp label again with --labeled.",
                code="retrain-needs-trees",
                folder=folder,
                mediator=settings.mediator,
            )
        scored, share = train_again(before, share, now, None, settings, runtime)
        number = now.state.newest + 1
        write_scored(numbered(folder, "scored", number), scored, mediator, measured, share=share)
        state = msgspec.structs.replace(now.state, scored=number)
        state = with_new_threshold(state, scored, now.n_images, runtime)
        changes = write_groups(folder, state, now.identity, now.named, "retrained", now.describe)
        retrained = open_collection(folder)
        write_outputs(retrained)
    return retrained, changes


def train_again(
    scored: ScoredPairs,
    share: float,
    collection: Collection,
    new: Views | None,
    settings: ConsensusSettings,
    runtime: Runtime,
) -> tuple[ScoredPairs, float]:
    """Score all pairs with newly trained trees, on labeled images matched in density to the others.

    Labeled images are only added: their lists are searched, and they enter those of the others.

    Args:
        scored: pairs of all images, new ones among them.
        share: of the labeled images that are used.
        collection: whose embeddings, labeled images and corrections count.
        new: images that follow the collection's own.
        settings: with which trees are trained.
        runtime: how it runs.

    Returns:
        The scored pairs, and the share of the labeled images that are used now.
    """
    seed, before = collection.state.seed, share
    identities = scored.identities
    if share < 1:
        for labeled in read_labeled_views(collection):
            assert labeled.identities is not None
            assert isinstance(scored.scored, ConsensusGraph)
            growth = int((identities < 0).sum()) / collection.state.n_trained
            wanted = matching_share(scored.scored, identities, share, labeled.identities, seed, growth)
            # With all of them, too, they stay in the order of use.
            share = max(share, min(wanted, math.nextafter(1, 0)))
            use = order_of_use(labeled.identities, seed)
            added = labeled.identities[use.rows[use.share <= share]]
    with read_all_views(collection, new, runtime, share) as views:
        if share > before:
            start = int((identities < 0).sum())
            scored = _with_more_labeled(scored, views, np.concatenate([identities[:start], added]), runtime)
        scorer = TreeScorer(settings, collection.state.threshold, seed, collection.constraints)
        return scorer.retrain(scored, views, runtime), share


def _with_more_labeled(
    scored: ScoredPairs, views: Views, identities: LongArray, runtime: Runtime
) -> ScoredPairs:
    """Graphs and candidate pairs with more labeled images, which follow the others."""
    start, count = len(scored.identities), len(identities) - len(scored.identities)
    old, inserted = insert_images(scored, start, count)
    graphs = {}
    with runtime.step("graphs"):
        for name, model in zip(views.names, views, strict=True):
            graphs[name] = search_new(old[name], model, (start, start + count), name, runtime)
    with runtime.step("all models"):
        changed = np.flatnonzero(changed_rows(old, graphs.values()))
        fused = search_fused(
            views,
            list(graphs.values()),
            scored.fused.k,
            before=inserted.fused,
            changed=changed,
            runtime=runtime,
        )
    pairs = candidate_pairs(fused.nearest(scored.k), runtime)
    return replace(scored, graphs=graphs, fused=fused, identities=identities, candidates=pairs)


def with_new_threshold(state: State, scored: ScoredPairs, n_images: int, runtime: Runtime) -> State:
    """Return the state after trees were trained: the number of images, and the threshold chosen for them."""
    settings, threshold = state.consensus_settings, state.threshold
    if settings.threshold is None and settings.grouping == "average" and count_shared(scored.identities):
        assert isinstance(scored.scored, ConsensusGraph)
        with runtime.step("tuning"):
            tuning, _ = tune(scored.scored, scored.identities, settings, runtime)
        threshold = tuning.chosen
    return msgspec.structs.replace(state, n_trained=n_images, threshold=threshold)

"""Add images to a collection: they join existing identities or found new ones.

Every new image is compared with all; old images are not compared again, but get new neighbors where those are
nearer. A pair is scored again where a list of one of its images changed, and in later passes where a score of
one of them did; by the trees or the mediator that are stored. What trees learned wears out as a collection
grows and people have more images each, so they are trained again when it has half as many images again as
when they were trained, on more of the labeled images if some were left out; over many batches that costs a
constant share per image. They learn from corrections then. A threshold that was estimated without labels is
estimated again at the same times.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from cdp.collection.collection import Collection, ViewsSource, open_collection
from cdp.collection.collection_folder import State, numbered, write_batch
from cdp.collection.collection_settings import GrowthSettings
from cdp.collection.combined_views import read_all_views
from cdp.collection.corrections import Correction, append_unsaid
from cdp.collection.incremental_knn import changed_rows, insert_identities, insert_images, search_new
from cdp.collection.numbering import Changes
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.retraining import train_again, with_new_threshold
from cdp.collection.scored_files import (
    read_identities,
    read_measured,
    read_scored_pairs,
    read_share,
    write_scored,
)
from cdp.data.views import read_views
from cdp.knn.model_graphs import ModelGraphs
from cdp.labeling.fitting import make_scorer
from cdp.labeling.unsupervised_threshold import describe_estimate, estimate_threshold
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.mediator import Mediator
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.similarity import SimilarityScorer
from cdp.settings import plain
from cdp.storage.artifacts import hash_array
from cdp.storage.files import locked
from cdp.types import KnnGraph, Views
from cdp.types.arrays import BoolArray

_STEPS = ".steps"


def extend(
    collection: Collection,
    views: ViewsSource,
    *,
    growth: GrowthSettings | None = None,
    corrections: Iterable[Correction] = (),
    images: Path | None = None,
    k: int = 0,
    reliable: BoolArray | None = None,
    runtime: Runtime | None = None,
) -> tuple[Collection, Changes]:
    """Return the collection with new images, after the old ones; its folder changes at once or not at all.

    Args:
        collection: whose folder is extended.
        views: new images, by the same models; a path is stored as a reference, views in memory are copied.
        growth: when identities are merged and trees trained again.
        corrections: corrections of the new images, by row among all images; applied at once.
        images: root of the new images' relative paths, if it moves with the collection.
        k: neighbors per image when the threshold is estimated again; a small collection began with fewer.
        reliable: bool, old and new images on which the threshold is estimated again; all unless given.
        runtime: how it runs.

    Raises:
        InputError: the models are others, or embeddings of the collection are gone or changed.
    """
    runtime = runtime or Runtime()
    folder = collection.folder
    with locked(folder):
        now = open_collection(folder)
        new = views if isinstance(views, Views) else read_views(views)
        state, number = now.state, now.state.newest + 1
        if growth is not None:
            state = msgspec.structs.replace(state, growth=plain(growth))
        place = now.scored_place
        measured, share = read_measured(place), read_share(place)
        n_images = now.n_images + new.n_images
        retrain = n_images / state.n_trained >= state.growth_settings.retrain_after
        steps = replace(runtime, cache=StepCache(folder / _STEPS))
        estimates = retrain and now.settings.mediator == "similarity" and now.settings.threshold is None
        mediator = None
        with read_all_views(now, new, runtime, share) as whole:
            write_batch(folder, number, new, None if isinstance(views, Views) else Path(views), images)
            if estimates:
                scored, state = _estimate_again(whole, now, state, k, reliable, runtime)
        if not estimates:
            scored, mediator = _score_with_new(now, new, share, steps)
        if retrain and scored.tree_scores is not None:
            scored, share = train_again(scored, share, now, new, now.settings, runtime)
        write_scored(numbered(folder, "scored", number), scored, mediator, measured, share=share)
        state = msgspec.structs.replace(state, batches=(*state.batches, number), scored=number)
        if retrain:
            state = _trained(state, scored, n_images, runtime)
        identity = np.append(now.identity, np.full(new.n_images, -1, np.int32))
        append_unsaid(folder, corrections)
        changes = write_groups(folder, state, identity, now.named, "extended", now.describe)
        shutil.rmtree(folder / _STEPS, ignore_errors=True)
        write_outputs(open_collection(folder))
    return open_collection(folder), changes


def _trained(state: State, scored: ScoredPairs, n_images: int, runtime: Runtime) -> State:
    """Return the state after trees were trained or the threshold was estimated among all images."""
    state = msgspec.structs.replace(state, n_trained=n_images)
    return state if scored.tree_scores is None else with_new_threshold(state, scored, n_images, runtime)


def _estimate_again(
    views: Views, collection: Collection, state: State, k: int, reliable: BoolArray | None, runtime: Runtime
) -> tuple[ScoredPairs, State]:
    """Score all pairs again, at a threshold estimated for the present number of images.

    More images have more impostors, and the threshold of few images does not hold for many.
    """
    most = min(max(k, collection.settings.k), views.n_images - 1)
    settings = replace(collection.settings, k=most)
    before, n_before = read_identities(collection.scored_place), collection.n_images
    identities = insert_identities(before, n_before, views.n_images - len(before))
    scored = SimilarityScorer(settings, state.seed).score(views, identities, runtime)
    found = estimate_threshold(scored, reliable=reliable, seed=state.seed, runtime=runtime)
    notes = (describe_estimate(found),)
    return scored.with_softness(found.softness), msgspec.structs.replace(
        state, consensus=plain(settings), threshold=found.chosen, notes=notes
    )


def _score_with_new(
    now: Collection, new: Views, share: float, runtime: Runtime
) -> tuple[ScoredPairs, Mediator | None]:
    """Score the pairs of new images.

    Rows of new images follow the collection's; labeled images follow them.
    """
    settings, seed, start = now.settings, now.state.seed, now.n_images
    threshold = now.state.threshold
    with read_all_views(now, None, runtime, share) as views:
        before, mediator = read_scored_pairs(now.scored_place, settings, threshold, views, seed, runtime)
    with read_all_views(now, new, runtime, share) as whole:
        old, inserted = insert_images(before, start, new.n_images)
        identities = insert_identities(before.identities, start, new.n_images)
        graphs = _extend_graphs(whole, old, (start, start + new.n_images), new, now, runtime)
        inserted = replace(inserted, changed=changed_rows(old, graphs.values()))
        scorer = make_scorer(settings, threshold, seed, mediator)
        return scorer.update(before, whole, identities, ModelGraphs(graphs), inserted, runtime), mediator


def _extend_graphs(
    views: Views,
    old: Mapping[str, KnnGraph],
    new: tuple[int, int],
    added: Views,
    collection: Collection,
    runtime: Runtime,
) -> dict[str, KnnGraph]:
    """Extend the graphs of all models by the new images.

    Finished graphs are kept until all are done, so an interrupted command loses at most one.
    """
    graphs = {}
    for (name, model), part in zip(zip(views.names, views, strict=True), added, strict=True):
        inputs = [name, list(collection.state.batches), collection.state.scored, hash_array(part.source)]
        key = step_key("extended graph", 1, None, inputs)
        graph = runtime.cache.get("graph", key, KnnGraph)
        if graph is None:
            with runtime.step("graphs"):
                graph = search_new(old[name], model, new, name, runtime)
            runtime.cache.put("graph", key, graph)
        graphs[name] = graph
    return graphs

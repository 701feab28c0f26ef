"""New images for a collection: they join identities that are there or found new ones.

Every new image is compared with all; old images are not compared again, but get new neighbors where those are nearer. A pair is
judged anew where a list of one of its images changed, and in later passes where an answer about one of them did; by the trees or
the mediator that are kept. What trees learned wears out as a collection grows and people have more images each, so they are trained anew when it has
half as many images again as when they were trained, on more of the known images if some were left out; over many batches that costs a
constant share per image. They learn from corrections then.
So is a bar that was chosen without labels chosen anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from cdp.collection.collection import Collection, ViewsSource, open_collection
from cdp.collection.collection_folder import Parts, numbered, write_batch
from cdp.collection.collection_settings import GrowthSettings
from cdp.collection.combined_views import read_all_views
from cdp.collection.corrections import Correction, append_unsaid
from cdp.collection.incremental_knn import changed_rows, search_new, search_together_again
from cdp.collection.numbering import Changes
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.retraining import as_judged, train_anew, with_new_bar
from cdp.collection.scored_files import read_judged, read_measured, read_share, write_scored
from cdp.data.views import read_views
from cdp.labeling.result import Judged
from cdp.labeling.tree_scoring import ask_trees
from cdp.labeling.unsupervised_threshold import judge_by_similarity, with_chosen_bar
from cdp.labeling.workspace import Workspace
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.mediator import Mediator
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import prepare_features
from cdp.scoring.score_pairs import score_pairs
from cdp.scoring.settings import ConsensusSettings, GroupingSettings
from cdp.scoring.trees import TreeAnswers
from cdp.settings import plain, slice_of
from cdp.storage.artifacts import hash_array
from cdp.storage.files import locked
from cdp.types import ConsensusGraph, KnnGraph, Pairs, Views
from cdp.types.arrays import BoolArray, FloatArray, IntArray, LongArray

_STEPS = ".steps"


def extend(
    collection: Collection,
    views: ViewsSource,
    *,
    growth: GrowthSettings | None = None,
    corrections: Iterable[Correction] = (),
    images: Path | None = None,
    k: int = 0,
    workspace: Workspace | None = None,
) -> tuple[Collection, Changes]:
    """The collection with new images, after the old ones; its folder changes at once or not at all.

    Args:
        collection: whose folder is extended.
        views: new images, by the same models; a path is referred to, views in memory are written into the collection.
        growth: when identities are merged and trees trained anew; unless given, as before.
        corrections: what is known of the images, by their rows among all; they count for this grouping already.
        images: the folder that the new images' relative paths start from, if it is to move with the collection.
        k: neighbors per image when the bar is chosen anew, if that is more than before: a collection that began with few images
            compared each with fewer.
        workspace: engine and progress.

    Raises:
        InputError: the models are others, or embeddings of the collection are gone or changed.
    """
    work = workspace or Workspace()
    folder = collection.folder
    with locked(folder):
        now = open_collection(folder)
        new = views if isinstance(views, Views) else read_views(views)
        number = now.parts.newest + 1
        parts = now.parts
        if growth is not None:
            parts = msgspec.structs.replace(parts, growth=plain(growth))
        place = now.scored_place
        measured, share = read_measured(place), read_share(place)
        n_images = now.n_images + new.n_images
        retrain = n_images / parts.n_trained >= parts.growth_settings.retrain_after
        steps = replace(work, cache=StepCache(folder / _STEPS))
        chooses = retrain and parts.bar_is_chosen
        with read_all_views(now, new, work, share) as whole:
            write_batch(folder, number, new, None if isinstance(views, Views) else Path(views), images)
            if chooses:
                judged, parts = _choose_bar_anew(whole, now, parts, k, work)
                mediator = None
        if not chooses:
            judged, mediator = _judge_with_new(now, new, share, steps)
        if retrain and judged.answers is not None:
            judged = train_anew(judged, now, new, now.settings, work)
        write_scored(numbered(folder, "scored", number), judged, mediator, measured)
        parts = msgspec.structs.replace(parts, batches=(*parts.batches, number), judged=number)
        if retrain:
            parts = msgspec.structs.replace(parts, n_trained=n_images)
            parts = with_new_bar(parts, judged, n_images, work) if judged.answers is not None else parts
        identity = np.append(now.identity, np.full(new.n_images, -1, np.int32))
        append_unsaid(folder, corrections)
        changes = write_groups(folder, parts, identity, now.named, "extended", now.describe)
        shutil.rmtree(folder / _STEPS, ignore_errors=True)
        write_outputs(open_collection(folder))
    return open_collection(folder), changes


def _judge_with_new(
    now: Collection, new: Views, share: float, work: Workspace
) -> tuple[Judged, Mediator | None]:
    """What is known of all pairs, those of new images included."""
    settings, seed = now.settings, now.parts.seed
    with read_all_views(now, None, work, share) as views:
        before, mediator = read_judged(now.scored_place, settings, views, seed, work)
    with read_all_views(now, new, work, share) as whole:
        return _judge_new(whole, before, mediator, now, new, work), mediator


def _choose_bar_anew(
    views: Views, collection: Collection, parts: Parts, k: int, work: Workspace
) -> tuple[Judged, Parts]:
    """All pairs judged anew by a bar that suits as many images as there are now; the bar and the note go into the parts.

    More images have more pairs of two identities, and the bar of few images does not hold for many.
    """
    notes: list[str] = []
    most = min(max(k, collection.settings.k), views.n_images - 1)
    settings = replace(collection.settings, similar_above=0.0, k=most)
    judged = judge_by_similarity(views, settings, None, seed=parts.seed, work=work, notes=notes)
    settings = with_chosen_bar(settings, judged.unsupervised)
    return judged, msgspec.structs.replace(parts, consensus=plain(settings), notes=tuple(notes))


def _judge_new(
    views: Views,
    before: Judged,
    mediator: Mediator | None,
    collection: Collection,
    added: Views,
    work: Workspace,
) -> Judged:
    """What is known of all pairs now; rows of new images follow the collection's, and known images follow them."""
    start, settings, seed = collection.n_images, collection.settings, collection.parts.seed
    n_new = added.n_images
    new = (start, start + n_new)
    known = np.concatenate([before.known[:start], np.full(n_new, -1), before.known[start:]])
    old = {name: graph.make_room(start, n_new) for name, graph in before.graphs.items()}
    graphs = _extend_graphs(views, old, new, added, collection, work)
    changed = changed_rows(old.values(), graphs.values())
    if settings.mediator == "similarity":
        # As cheap as finding out which pairs changed; the bar stays.
        return judge_by_similarity(views, settings, graphs, seed=seed, work=work, notes=[])
    if before.answers is None or before.pairs is None:
        together = next(iter(graphs.values()))
        scored = _score_again(
            views, before, together, graphs, changed, mediator, settings, (start, n_new), work
        )
        return Judged(scored, graphs, together, before.k, known)
    together = search_together_again(views, before.together.make_room(start, n_new), old, graphs, work)
    pairs = candidate_pairs(together.nearest(before.k))
    earlier = _kept_answers(pairs, move_up(before.pairs.ids, start, n_new), before.answers, changed)
    answers = ask_trees(
        views,
        graphs,
        together,
        pairs,
        known,
        settings,
        seed=seed,
        work=work,
        earlier=earlier,
    )
    return as_judged(replace(before, graphs=graphs, together=together, known=known), pairs, answers, settings)


def _extend_graphs(
    views: Views,
    old: Mapping[str, KnnGraph],
    new: tuple[int, int],
    added: Views,
    collection: Collection,
    work: Workspace,
) -> dict[str, KnnGraph]:
    """The graphs of all models with the new images; each is kept until all is done, so that a killed command loses one at most."""
    graphs = {}
    for (name, model), part in zip(zip(views.names, views, strict=True), added, strict=True):
        inputs = [name, list(collection.parts.batches), collection.parts.judged, hash_array(part.source)]
        key = step_key("extended graph", 1, None, inputs)
        graph = work.cache.get("graph", key, KnnGraph)
        if graph is None:
            with work.step("graphs"):
                graph = search_new(old[name], model, new, name, work)
            work.cache.put("graph", key, graph)
        graphs[name] = graph
    return graphs


def move_up(ids: IntArray, start: int, count: int) -> IntArray:
    """Rows of images where `count` more were put in at row `start`."""
    return ids + np.where(ids >= start, np.int32(count), np.int32(0))


def _kept_answers(pairs: Pairs, old_ids: IntArray, answers: TreeAnswers, changed: BoolArray) -> TreeAnswers:
    """The earlier answers where they still hold, NaN elsewhere.

    Evidence is drawn from the lists of both images; what a later pass adds, from the answers about all pairs of both.
    """
    at, is_old = _look_up(pairs.ids, old_ids)
    passes: list[FloatArray] = []
    for earlier in answers.passes:
        holds = is_old & ~changed[pairs.ids].any(axis=1)
        passes.append(np.where(holds, earlier[at], np.float32(np.nan)).astype(np.float32))
        changed = changed.copy()
        changed[pairs.ids[~holds].ravel()] = True
    return TreeAnswers(tuple(passes), answers.judges)


def _look_up(ids: IntArray, among: IntArray) -> tuple[LongArray, BoolArray]:
    """Where each pair is among sorted others, and whether it is."""
    keys, others = (one[:, 0].astype(np.int64) << 32 | one[:, 1] for one in (ids, among))
    at = np.minimum(np.searchsorted(others, keys), max(0, len(others) - 1))
    return at, (others[at] == keys) if len(others) else np.zeros(len(keys), np.bool_)


def _score_again(
    views: Views,
    before: Judged,
    candidates: KnnGraph,
    graphs: dict[str, KnnGraph],
    changed: BoolArray,
    mediator: Mediator | None,
    settings: ConsensusSettings,
    room: tuple[int, int],
    work: Workspace,
) -> ConsensusGraph:
    """Pairs scored by the mediator or the vote: earlier scores where neither image has another list, new ones elsewhere."""
    pairs = candidate_pairs(candidates)
    touched = changed[pairs.ids].any(axis=1)
    with work.step("consensus"):
        fresh = score_pairs(
            Pairs(pairs.ids[touched], pairs.n_images),
            prepare_features(views, list(graphs.values()), settings.inputs),
            mediator,
            slice_of(settings, GroupingSettings),
            engine=work.engine,
            progress=work.progress,
        )
    ids = move_up(before.scored.ids, *room)
    kept = ~changed[ids].any(axis=1)
    all_ids = np.concatenate([ids[kept], fresh.ids])
    doubt = np.concatenate([before.scored.doubt[kept], fresh.doubt])
    order = np.lexsort((all_ids[:, 1], all_ids[:, 0]))
    return ConsensusGraph(all_ids[order], doubt[order], views.n_images)

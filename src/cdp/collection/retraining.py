"""Trees of a collection trained anew, on the known images and on what people said, and the bar chosen anew."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np

from cdp.collection.collection import Collection, as_settings, open_collection
from cdp.collection.collection_folder import Parts, numbered
from cdp.collection.combined_views import read_all_views, read_known_views
from cdp.collection.incremental_knn import search_new, search_together_again
from cdp.collection.numbering import Changes
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.scored_files import read_judged, read_measured, read_share, write_scored
from cdp.errors import InputError
from cdp.labeling.density_matching import matching_share, order_of_use
from cdp.labeling.result import Judged
from cdp.labeling.tree_scoring import ask_trees
from cdp.labeling.tuning import count_shared, tune, with_bar
from cdp.labeling.workspace import Workspace
from cdp.scoring.mediator import is_more_probable
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.trees import TreeAnswers
from cdp.settings import plain
from cdp.storage.files import locked
from cdp.types import ConsensusGraph, Pairs, Views
from cdp.types.arrays import LongArray


def retrain(
    collection: Collection, *, settings: ConsensusSettings | None = None, workspace: Workspace | None = None
) -> tuple[Collection, Changes]:
    """The collection with all pairs judged again by trees that learned from the corrections so far, and groups made of them.

    Old images are not searched again; known ones that were left out may come to them.

    Args:
        collection: whose folder gets new trees and groups.
        settings: with another `correction_weight`, or another number of passes; unless given, as before.
        workspace: engine and progress.

    Raises:
        InputError: pairs of this collection are not judged by trees.
    """
    work = workspace or Workspace()
    folder = collection.folder
    with locked(folder):
        now = open_collection(folder)
        used = settings or now.settings
        place = now.scored_place
        measured = read_measured(place)
        with read_all_views(now, None, work, read_share(place)) as views:
            before, mediator = read_judged(place, now.settings, views, now.parts.seed, work)
        if before.answers is None or before.pairs is None:
            raise InputError(
                f"{folder}: its pairs are judged by mediator = {now.settings.mediator!r}, and only trees learn from corrections; "
                "label the images with a labeled part to have them.",
                code="retrain-needs-trees",
                folder=folder,
                mediator=now.settings.mediator,
            )
        judged = train_anew(before, now, None, used, work)
        number = now.parts.newest + 1
        write_scored(numbered(folder, "scored", number), judged, mediator, measured)
        parts = msgspec.structs.replace(now.parts, judged=number, consensus=plain(used))
        parts = with_new_bar(parts, judged, now.n_images, work)
        changes = write_groups(folder, parts, now.identity, now.named, "retrained", now.describe)
        retrained = open_collection(folder)
        write_outputs(retrained)
    return retrained, changes


def as_judged(before: Judged, pairs: Pairs, answers: TreeAnswers, settings: ConsensusSettings) -> Judged:
    """What is known of all pairs after trees answered, with the graphs that are there."""
    doubt = 1 - answers.probability
    kept = is_more_probable(doubt, settings.kept_above)
    scored = ConsensusGraph(pairs.ids[kept], doubt[kept], pairs.n_images)
    return replace(before, scored=scored, pairs=pairs, answers=answers)


def train_anew(
    judged: Judged, collection: Collection, new: Views | None, settings: ConsensusSettings, work: Workspace
) -> Judged:
    """All pairs judged again by trees that are trained now, on as many known images as make them as dense as the others.

    Known images are only added: their lists are searched, and they enter those of the others.

    Args:
        judged: pairs of all images, new ones among them.
        collection: whose embeddings, known images and corrections count.
        new: images that follow the collection's own.
        settings: with which trees are trained.
        work: engine and progress.
    """
    seed, share = collection.parts.seed, judged.share
    if share < 1:
        for known in read_known_views(collection):
            assert known.identities is not None
            growth = int((judged.known < 0).sum()) / collection.parts.n_trained
            wanted = matching_share(judged.scored, judged.known, share, known.identities, seed, growth)
            # With all of them, too, they stay in the order of use.
            share = max(share, min(wanted, math.nextafter(1, 0)))
            use = order_of_use(known.identities, seed)
            identities = known.identities[use.rows[use.share <= share]]
    with read_all_views(collection, new, work, share) as views:
        if share > judged.share:
            start = int((judged.known < 0).sum())
            judged = _with_more_known(judged, views, np.concatenate([judged.known[:start], identities]), work)
        assert judged.pairs is not None
        answers = ask_trees(
            views,
            judged.graphs,
            judged.together,
            judged.pairs,
            judged.known,
            settings,
            seed=seed,
            work=work,
            constraints=collection.constraints,
        )
    return replace(as_judged(judged, judged.pairs, answers, settings), share=share)


def _with_more_known(judged: Judged, views: Views, known: LongArray, work: Workspace) -> Judged:
    """Graphs and candidate pairs with more known images, which follow the others."""
    start, added = len(judged.known), len(known) - len(judged.known)
    old = {name: graph.make_room(start, added) for name, graph in judged.graphs.items()}
    graphs = {}
    with work.step("graphs"):
        for name, model in zip(views.names, views, strict=True):
            graphs[name] = search_new(old[name], model, (start, start + added), name, work)
    together = search_together_again(views, judged.together.make_room(start, added), old, graphs, work)
    pairs = candidate_pairs(together.nearest(judged.k))
    return replace(judged, graphs=graphs, together=together, known=known, pairs=pairs)


def with_new_bar(parts: Parts, judged: Judged, n_images: int, work: Workspace) -> Parts:
    """The parts after trees were trained: among how many images, and with the bar that is right for them."""
    settings = as_settings(parts.consensus)
    if settings.tune and settings.grouping == "average" and count_shared(judged.known):
        with work.step("tuning"):
            chosen = tune(judged.scored, judged.known, settings, runtime=work.runtime).chosen
        settings = with_bar(settings, chosen)
    return msgspec.structs.replace(parts, n_trained=n_images, consensus=plain(settings))

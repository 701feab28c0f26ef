"""Trees of a collection trained anew, on the known images and on what people said, and the bar chosen anew."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cdp.collection.all_views import read_all_views
from cdp.collection.collection import Collection, as_settings, open_collection
from cdp.collection.collection_folder import Parts, changing, numbered
from cdp.collection.judged_files import read_judged, write_judged
from cdp.collection.numbering import Changes
from cdp.collection.regrouping import write_groups
from cdp.consensus.mediator import is_more_probable
from cdp.consensus.settings import ConsensusSettings, plain
from cdp.consensus.trees import TreeAnswers
from cdp.errors import InputError
from cdp.labeling.judged import Judged
from cdp.labeling.tree_scoring import ask_trees
from cdp.labeling.tuning import count_shared, tune, with_bar
from cdp.labeling.workspace import Workspace
from cdp.types import ConsensusGraph, Pairs


def retrain(
    collection: Collection, *, settings: ConsensusSettings | None = None, workspace: Workspace | None = None
) -> tuple[Collection, Changes]:
    """The collection with all pairs judged again by trees that learned from the corrections so far, and groups made of them.

    Nothing is searched again: graphs and candidate pairs stay as they are.

    Args:
        collection: whose folder gets new trees and groups.
        settings: with another `correction_weight`, or another number of passes; unless given, as before.
        workspace: engine and progress.

    Raises:
        InputError: pairs of this collection are not judged by trees.
    """
    work = workspace or Workspace()
    folder = collection.folder
    with changing(folder):
        now = open_collection(folder)
        used = settings or now.settings
        before, mediator = read_judged(numbered(folder, "judged", now.parts.judged), now.settings)
        if before.answers is None or before.pairs is None:
            raise InputError(
                f"{folder}: its pairs are judged by mediator = {now.settings.mediator!r}, and only trees learn from corrections; "
                "collect the images with a labeled part to have them."
            )
        with read_all_views(now, None, work) as whole:
            answers = ask_trees(
                whole,
                before.graphs,
                before.together,
                before.pairs,
                before.known,
                used,
                seed=now.parts.seed,
                work=work,
                constraints=now.constraints,
            )
        number = now.parts.newest + 1
        judged = as_judged(before, before.pairs, answers, used)
        write_judged(numbered(folder, "judged", number), judged, mediator)
        parts = msgspec.structs.replace(now.parts, judged=number, consensus=plain(used))
        parts = trained_anew(parts, judged, work)
        changes = write_groups(folder, parts, now.identity, now.named, "retrained", now.describe)
    return open_collection(folder), changes


def as_judged(before: Judged, pairs: Pairs, answers: TreeAnswers, settings: ConsensusSettings) -> Judged:
    """What is known of all pairs after trees answered, with the graphs that are there."""
    doubt = 1 - answers.probability
    kept = is_more_probable(doubt, settings.kept_above)
    scored = ConsensusGraph(pairs.ids[kept], doubt[kept], pairs.n_images)
    return replace(before, scored=scored, pairs=pairs, answers=answers)


def trained_anew(parts: Parts, judged: Judged, work: Workspace) -> Parts:
    """The parts after trees were trained: among how many images, and with the bar that is right for them."""
    settings = as_settings(parts.consensus)
    if settings.tune and settings.grouping == "average" and count_shared(judged.known):
        with work.step("tuning"):
            chosen = tune(judged.scored, judged.known, settings, work.progress, work.engine).chosen
        settings = with_bar(settings, chosen)
    return msgspec.structs.replace(parts, n_trained=judged.together.n_images, consensus=plain(settings))

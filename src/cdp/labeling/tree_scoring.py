"""Pairs judged by trees: candidates and evidence from all models together, trained on the known images among the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from cdp.blocks import spans
from cdp.labeling.fused_graph import search_fused
from cdp.labeling.result import Judged
from cdp.labeling.workspace import Graphs, Workspace, find_graphs, graph_keys
from cdp.runtime.checkpoint import Checkpoint
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.mediator import is_more_probable
from cdp.scoring.pairs import candidate_pairs, keep_pairs
from cdp.scoring.settings import ConsensusSettings, MediatorSettings
from cdp.scoring.tree_features import prepare_evidence
from cdp.scoring.trees import TreeAnswers, UnfinishedAnswers, estimate_probabilities, known_pairs
from cdp.settings import slice_of
from cdp.types import ConsensusGraph, KnnGraph, Pairs, Views
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.constraints import Constraints

_FEWEST_STRANGERS = 200
_FEWEST_KNOWN = 20
_UNLIKE_ABOVE = 2.0
_ROWS_PER_BLOCK = 8192
_OVERLAP = (
    "Known and unlabeled images seem to show some of the same people, and it was taken that they do not: what is expected of the "
    "labels is too low. If they do, set disjoint = false."
)

_UNLIKE = (
    "The unlabeled images look unlike the known ones: of the strangers nearest to known images {:.0%} are known, and {:.0%} would be by "
    "chance. The bar and all that is expected of the labels were learned on the known images and may not hold for the others; it would "
    "help to know some of those."
)


def score_by_trees(
    views: Views,
    settings: ConsensusSettings,
    mask: BoolArray | None,
    given: Graphs | None,
    *,
    seed: int,
    work: Workspace,
    notes: list[str],
    keep: bool = False,
    constraints: Constraints | None = None,
) -> Judged:
    """Judged pairs, the models' graphs, and the graph whose edges are the candidates.

    Lists of 2k neighbors are searched, because ranks beyond k are evidence too; candidates are the k nearest in all models
    together.

    Args:
        views: of all images, known ones among them.
        settings: with the lowest bar that will be tried.
        mask: bool (n,), the known images.
        given: graphs that are there already; their lists are used as they are.
        seed: of folds, samples and trees.
        work: engine, cache and progress.
        notes: gets a sentence if known and unknown images seem to show the same people, or look unlike each other.
        keep: also return the trees and all their answers.
        constraints: corrections, which trees learn from.
    """
    known = _known_identities(views, mask)
    longer = replace(settings, k=min(2 * settings.k, views.n_images - 1))
    wanted = longer if given is None else settings
    keys = graph_keys(views, wanted, known, seed=seed, cache=work.cache) if given is None else {}
    graphs = find_graphs(views, wanted, given, seed=seed, work=work, known=known, keys=keys)
    together = search_fused(views, list(graphs.values()), longer.k, keys, work)
    candidates = together.nearest(settings.k)
    pairs = candidate_pairs(candidates, work.scratch)
    notes += _compare_parts(candidates, known, disjoint=settings.disjoint)
    answers, key = None, ""
    if keys:
        inputs = [list(keys.items()), work.cache.hash(known), *_what_is_learned(constraints, settings, work)]
        key = step_key("trees", 4, slice_of(settings, MediatorSettings), inputs, settings.k, seed)
        answers = work.cache.get("trees", key, TreeAnswers)
    if answers is None:
        about = (views, graphs, together, pairs, known, settings)
        answers = ask_trees(*about, seed=seed, work=work, constraints=constraints, key=key)
        if key:
            work.cache.put("trees", key, answers)
            work.cache.drop("answers", key)
    doubt = work.scratch.copy(answers.probability)
    np.subtract(1, doubt, out=doubt)
    judged = ConsensusGraph(pairs.ids, work.scratch.done(doubt), views.n_images)
    scored = keep_pairs(judged, partial(_is_above, settings.kept_above), work.scratch)
    kept = (pairs, answers) if keep else (None, None)
    return Judged(scored, graphs, together, settings.k, known, *kept)


def _known_identities(views: Views, mask: BoolArray | None) -> LongArray:
    """Identities of the masked images, -1 elsewhere."""
    known = np.full(views.n_images, -1, np.int64)
    if mask is not None and views.identities is not None:
        known[mask] = views.identities[mask]
    return known


def _what_is_learned(
    constraints: Constraints | None, settings: ConsensusSettings, work: Workspace
) -> list[object]:
    """The corrections that trees learn from, for the key of what they say."""
    if constraints is None or not len(constraints) or not settings.correction_weight:
        return []
    names = [[row, name] for row, name in constraints.named.items()]
    return [work.cache.hash(constraints.must), work.cache.hash(constraints.cannot), names]


def ask_trees(
    views: Views,
    graphs: Mapping[str, KnnGraph],
    together: KnnGraph,
    pairs: Pairs,
    known: LongArray,
    settings: ConsensusSettings,
    *,
    seed: int,
    work: Workspace,
    earlier: TreeAnswers | None = None,
    constraints: Constraints | None = None,
    key: str = "",
) -> TreeAnswers:
    """What trees say about the candidate pairs: trained now, also on corrections, or `earlier`, and then asked where no answer is kept.

    With a `key` of all that they depend on, answers are kept in the cache as they come.
    """
    cache = work.cache if key else StepCache()
    with work.step("consensus"):
        return estimate_probabilities(
            prepare_evidence(views, list(graphs.values()), together, settings.evidence),
            pairs,
            known_pairs(
                pairs,
                known,
                complete=settings.disjoint,
                seed=seed,
                constraints=constraints,
                weight=settings.correction_weight,
                scratch=work.scratch,
            ),
            passes=settings.passes,
            earlier=earlier,
            seed=seed,
            engine=work.engine,
            progress=work.progress,
            scratch=work.scratch,
            checkpoint=Checkpoint(*cache.keeping("answers", key, UnfinishedAnswers)),
        )


def _is_above(bar: float, _: IntArray, doubt: AnyArray) -> BoolArray:
    return is_more_probable(doubt, bar)


def _compare_parts(candidates: KnnGraph, known: LongArray, *, disjoint: bool) -> list[str]:
    """Sentences where known and unlabeled images do not go together as they should."""
    notes = [_OVERLAP] if disjoint and seem_to_overlap(candidates, known) else []
    shares = known_among_strangers(candidates, known)
    return [*notes, _UNLIKE.format(*shares)] if shares is not None and seem_unlike(*shares) else notes


def seem_to_overlap(candidates: KnnGraph, known: LongArray) -> bool:
    """Whether unknown neighbors of known images are much more similar to them than known strangers are.

    If no unknown image shows a known person, all of them are strangers, and who of the strangers is known is chance: a tenth of the
    unknown ones are more similar than nine tenths of the known ones (0.07 to 0.10 on LFW, Omniglot and drawn faces), give or take
    what a few lookalikes among few known people do. With known people among the unknown images it was 0.15 to 0.40.
    """
    of_known, of_unknown = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    rows = np.flatnonzero(known >= 0)
    for start, stop in spans(len(rows), _ROWS_PER_BLOCK):
        block = rows[start:stop]
        near, similarity = candidates.neighbors[block], candidates.similarity[block]
        theirs = np.where(near >= 0, known[np.maximum(near, 0)], -2)
        of_known.append(similarity[(theirs >= 0) & (theirs != known[block][:, None])])
        of_unknown.append(similarity[theirs == -1])
    strangers, unknown = np.concatenate(of_known), np.concatenate(of_unknown)
    if min(len(strangers), len(unknown)) < _FEWEST_STRANGERS:
        return False
    share = float((unknown > np.quantile(strangers, 0.9)).mean())
    n_people = len(np.unique(known[known >= 0]))
    return bool(share > 0.12 + 0.6 / math.sqrt(n_people))


def known_among_strangers(candidates: KnnGraph, known: LongArray) -> tuple[float, float] | None:
    """Which share of the strangers near known images is known, and which share would be by chance; None if too little is known to say.

    A neighbor that is not known to be of the same identity is a stranger. If known and unlabeled images look alike, chance decides which
    strangers are known; fewer are where unlabeled images show known people.
    """
    images = np.flatnonzero(known >= 0)
    _, person, count = np.unique(known[images], return_inverse=True, return_counts=True)
    # Of the images that are not of an image's identity, the share that is known.
    share = (len(images) - count[person]) / np.maximum(len(known) - count[person], 1)
    n_strangers, n_known, by_chance = 0, 0, 0.0
    for start, stop in spans(len(images), _ROWS_PER_BLOCK):
        block = images[start:stop]
        near = candidates.neighbors[block]
        theirs = np.where(near >= 0, known[np.maximum(near, 0)], -2)
        strangers = ((theirs != known[block][:, None]) & (theirs > -2)).sum(axis=1)
        n_strangers += int(strangers.sum())
        n_known += int(((theirs != known[block][:, None]) & (theirs >= 0)).sum())
        by_chance += float(strangers @ share[start:stop])
    if n_strangers < _FEWEST_STRANGERS or by_chance < _FEWEST_KNOWN:
        return None
    return n_known / n_strangers, by_chance / n_strangers


def seem_unlike(found: float, chance: float) -> bool:
    """Whether shares of known strangers differ too much for known and unlabeled images to be of one kind.

    Their odds were 0.9 to 1.3 times those of chance on LFW, Omniglot, drawn faces and made-up crowds.
    """
    return found * (1 - chance) > _UNLIKE_ABOVE * chance * (1 - found)

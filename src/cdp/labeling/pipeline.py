"""From views and known identities to labels, step by step: `label`, behind everything that labels images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cdp.errors import InputError
from cdp.grouping.group import accepted_pairs, at_threshold, group
from cdp.grouping.soft_labels import diffuse, likely_pairs
from cdp.labeling.density_matching import MOST_ROUNDS, is_as_dense, matching_share, use_share
from cdp.labeling.expectation import calibrate, expect, measure_calibration
from cdp.labeling.fitting import (
    Fitted,
    fit_parts,
    is_trained_on_labeled,
    judges_by_trees,
    without_labels,
)
from cdp.labeling.joined_views import keep_first, put_among
from cdp.labeling.result import Judged, Labeling
from cdp.labeling.tree_scoring import score_by_trees
from cdp.labeling.tuning import (
    FEWEST_IDENTITIES,
    count_shared,
    linkage_for_tuning,
    lowest_bar,
    not_tuned,
    tune,
    with_bar,
)
from cdp.labeling.unsupervised_threshold import judge_by_similarity, with_chosen_bar
from cdp.labeling.view_checks import (
    check_mask,
    check_mediator,
    check_same_committee,
    check_views,
)
from cdp.labeling.workspace import Graphs, Workspace, find_graphs
from cdp.scoring.mediator import Mediator
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import prepare_features
from cdp.scoring.score_pairs import score_pairs
from cdp.scoring.settings import ConsensusSettings, GroupingSettings
from cdp.settings import slice_of
from cdp.types import Views
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.constraints import Constraints, check_constraints
from cdp.types.run_record import Expectation

_GRAPHS_NOT_USED = "The given k-NN graphs were not used: they do not have the known images, which are put among the unlabeled ones."
_THINNED = (
    "The known identities have more images each than the unlabeled ones seem to have: {:,} of {:,} known images were used, so that what is "
    "learned on them holds for the others."
)
_NOT_IN_GRAPHS = "given k-NN graphs do not have the images to choose it on"


@dataclass(frozen=True, eq=False)
class _Job:
    """What all steps of a labeling share.

    Attributes:
        fitted: what was learned before.
        constraints: what groups must keep.
        keeps_judged: whether judged pairs are kept whole.
        seed: of everything random.
        work: engine, cache and progress.
        notes: for the user; steps add to them.
    """

    fitted: Fitted
    constraints: Constraints | None
    keeps_judged: bool
    seed: int
    work: Workspace
    notes: list[str]


def label(
    unlabeled: Views,
    settings: ConsensusSettings,
    *,
    labeled: Sequence[Views] = (),
    fitted: Fitted | None = None,
    validation: Views | BoolArray | None = None,
    networks_saw_labeled: bool = False,
    graphs: Graphs | None = None,
    constraints: Constraints | None = None,
    keep_judged: bool = False,
    seed: int = 0,
    workspace: Workspace | None = None,
) -> Labeling:
    """Pseudo-identities of the unlabeled images.

    The identities of unlabeled images are looked at where `validation` says so, and nowhere else.

    Args:
        unlabeled: views of the images to label.
        settings: of section 3.1.
        labeled: views with identities that the mediator is trained on; several if each was seen by networks of its own.
        fitted: what `fit` learned from the labeled part before, instead of `labeled`.
        validation: images with identities to choose the bar on: rows of `unlabeled`, as a mask, which stay in the
            result; or views of their own, which are put among the unlabeled images and left out of the result.
        networks_saw_labeled: whether the networks were trained on the labeled part.
        graphs: k-NN graphs of the unlabeled images that are there already, by name or base first.
        constraints: what is known of the unlabeled images, which groups must keep.
        keep_judged: whether the result has all judged pairs with all that judging them again would need.
        seed: of everything random.
        workspace: engine, cache and progress.
    """
    work = workspace or Workspace()
    check_views(settings, unlabeled, (*labeled, validation), work.engine)
    if constraints is not None:
        check_constraints(constraints, settings.max_size)
    validation = validation if isinstance(validation, Views) else check_mask(validation, unlabeled)
    if fitted is None:
        if not is_trained_on_labeled(settings, validation is not None, networks_saw_labeled):
            labeled = ()
        settings, fitted = fit_parts(unlabeled, settings, labeled, validation, graphs, seed, work)
    settings, notes = without_labels(settings, fitted, validation), list(fitted.notes)
    # Before graphs are searched: that the mediator does not fit must not be found out after an hour of work.
    check_mediator(fitted.mediator, unlabeled, settings)
    has_trees = judges_by_trees(settings, fitted)
    mask = None if isinstance(validation, Views) else validation
    others = validation if isinstance(validation, Views) and not has_trees else fitted.validation
    if graphs is not None and others is not None and has_trees:
        notes.append(_GRAPHS_NOT_USED)
        graphs = None
    elif graphs is not None and mask is None and settings.tune:
        settings = replace(settings, tune=False)
        notes.append(not_tuned(settings, _NOT_IN_GRAPHS))
    elif isinstance(validation, Views) and not settings.tune:
        notes.append(f"{settings.bar_key} was not chosen on the validation part: tune = false.")
    job = _Job(fitted, constraints, keep_judged, seed, work, notes)
    if others is None or not (has_trees or (settings.tune and mask is None)):
        return _label_views(unlabeled, settings, graphs, mask, job)
    check_same_committee(others, unlabeled)
    return _label_among(unlabeled, others, settings, mask, job)


def _label_among(
    unlabeled: Views,
    others: Views,
    settings: ConsensusSettings,
    mask: BoolArray | None,
    job: _Job,
) -> Labeling:
    """Labels of the unlabeled images with known ones among them, which are left out of the result."""
    settings = _with_inputs_of(settings, job.fitted.mediator)
    views, among, judged = _judge_among(unlabeled, others, settings, mask, job)
    known = _validation_identities(views, among, settings, job.notes)
    labeling = _label_judged(judged, settings, (among, known), job)
    return keep_first(labeling, unlabeled.n_images, job.work.scratch)


def _judge_among(
    unlabeled: Views,
    others: Views,
    settings: ConsensusSettings,
    mask: BoolArray | None,
    job: _Job,
) -> tuple[Views, BoolArray, Judged]:
    """All images, which of them are known, and the judged pairs, with as many known images as make them as dense as the others."""
    matches = judges_by_trees(settings, job.fitted) and settings.disjoint and mask is None
    share = 1.0
    for left in reversed(range(MOST_ROUNDS if matches else 1)):
        views = put_among(unlabeled, use_share(others, share, job.seed), mask, job.work)
        known = np.ones(views.n_images, np.bool_)
        known[: unlabeled.n_images] = False if mask is None else mask
        said: list[str] = []
        is_tuned = _validation_identities(views, known, settings, []) is not None
        scoring = lowest_bar(settings) if is_tuned else settings
        judged = _judge(views, scoring, None, known, replace(job, notes=said))
        if not left or others.identities is None:
            break
        wanted = matching_share(judged.scored, judged.known, share, others.identities, job.seed)
        if is_as_dense(share, wanted):
            break
        share = wanted
    job.notes.extend(said)
    if share < 1:
        job.notes.append(_THINNED.format(views.n_images - unlabeled.n_images, others.n_images))
    return views, known, replace(judged, others=others, share=share)


def _label_views(
    views: Views,
    settings: ConsensusSettings,
    given: Graphs | None,
    mask: BoolArray | None,
    job: _Job,
) -> Labeling:
    """Labels of all images of the views; the bar is chosen on the masked ones."""
    settings = _with_inputs_of(settings, job.fitted.mediator)
    known = _validation_identities(views, mask, settings, job.notes)
    scoring = settings if known is None else lowest_bar(settings)
    judged = _judge(views, scoring, given, mask, job)
    return _label_judged(judged, settings, (mask, known), job)


def _label_judged(
    judged: Judged,
    settings: ConsensusSettings,
    validation: tuple[BoolArray | None, LongArray | None],
    job: _Job,
) -> Labeling:
    """Labels of all images of judged pairs; the bar is chosen on the validation images, given as a mask and by identity."""
    (mask, known), work = validation, job.work
    scored, settings = judged.scored, with_chosen_bar(settings, judged.unsupervised)
    tuning, expected, calibration, dendrogram = None, None, [], None
    if known is not None:
        with work.step("tuning"):
            dendrogram = linkage_for_tuning(scored, settings, work.runtime)
            tuning = tune(scored, known, settings, dendrogram, runtime=work.runtime)
        if settings.mediator != "vote":
            calibration = measure_calibration(scored, known, disjoint=settings.disjoint)
        settings = with_bar(settings, tuning.chosen)
        scored = at_threshold(scored, settings, work.runtime)
    with work.step("groups"):
        labels = group(scored, settings, job.constraints, dendrogram=dendrogram, runtime=work.runtime)
    if known is not None:
        expected = expect(labels, known, job.seed, disjoint=settings.disjoint)
        job.notes.extend(_broken_promise(settings, expected))
        if settings.grouping == "average":
            labels = calibrate(scored, labels, known, settings.k, disjoint=settings.disjoint)
    soft = None
    if settings.soft_depth:
        with work.step("soft labels"):
            walked = likely_pairs(scored) if settings.grouping == "average" else scored
            soft = diffuse(walked, labels, settings.soft_depth, settings.soft_decay)
    return Labeling(
        labels=labels,
        accepted=accepted_pairs(scored, labels, settings, work.runtime),
        scored=scored,
        soft_labels=soft,
        graphs={name: graph.nearest(settings.k) for name, graph in judged.graphs.items()},
        mediator=job.fitted.mediator,
        tuning=tuning,
        expected=expected,
        unsupervised=judged.unsupervised,
        calibration=calibration,
        settings=settings,
        candidates=judged.candidates,
        validation=np.zeros(scored.n_images, np.bool_) if mask is None else mask,
        seconds=dict(work.seconds),
        same_identity_recall=dict(work.same_identity_recall),
        notes=tuple(job.notes),
        judged=judged if job.keeps_judged else None,
    )


def _judge(
    views: Views,
    settings: ConsensusSettings,
    given: Graphs | None,
    mask: BoolArray | None,
    job: _Job,
) -> Judged:
    """Judged pairs, the models' graphs, and the graph whose edges are the candidates."""
    work = job.work
    if judges_by_trees(settings, job.fitted):
        return score_by_trees(
            views,
            settings,
            mask,
            given,
            seed=job.seed,
            work=work,
            notes=job.notes,
            keep=job.keeps_judged,
            constraints=job.constraints,
        )
    if settings.mediator == "similarity":
        return judge_by_similarity(views, settings, given, seed=job.seed, work=work, notes=job.notes)
    known = (
        np.full(views.n_images, -1)
        if mask is None or views.identities is None
        else np.where(mask, views.identities, -1)
    )
    graphs = find_graphs(views, settings, given, seed=job.seed, work=work, known=known)
    candidates = next(iter(graphs.values()))
    with work.step("consensus"):
        scored = score_pairs(
            candidate_pairs(candidates, work.scratch),
            prepare_features(views, list(graphs.values()), settings.inputs),
            job.fitted.mediator,
            slice_of(settings, GroupingSettings),
            engine=work.engine,
            progress=work.progress,
            scratch=work.scratch,
        )
    return Judged(scored, graphs, candidates, settings.k, known)


def _with_inputs_of(settings: ConsensusSettings, mediator: Mediator | None) -> ConsensusSettings:
    """The settings; a trained mediator has inputs of its own."""
    return settings if mediator is None else replace(settings, inputs=mediator.inputs)


def _broken_promise(settings: ConsensusSettings, expected: Expectation) -> list[str]:
    reached = expected.precision.value
    if not settings.precision or reached is None or reached >= settings.precision:
        return []
    return [
        f"precision = {settings.precision:g} is not to be had: on known identities {reached:.3f} was the most, at "
        f"{settings.bar_key} = {settings.bar:g}. Better models or more of them would help."
    ]


def _validation_identities(
    views: Views, mask: BoolArray | None, settings: ConsensusSettings, notes: list[str]
) -> LongArray | None:
    """The identities to choose the bar by, -1 elsewhere; None if it is not to be chosen or cannot be."""
    if not settings.tune:
        return None
    if mask is None:
        if not notes:
            notes.append(not_tuned(settings, "there are no validation images with known identities"))
        return None
    if views.identities is None or not (views.identities[mask] >= 0).any():
        raise InputError(
            f"The validation images have no identities, so {settings.bar_key} cannot be chosen on them; give "
            "identities, or set tune = false.",
            code="validation-identities-missing",
            key=settings.bar_key,
        )
    identities: LongArray = np.where(mask, views.identities, -1)
    n_shared = count_shared(identities)
    if n_shared == 0:
        notes.append(not_tuned(settings, "no validation identity has two images"))
        return None
    if n_shared < FEWEST_IDENTITIES:
        notes.append(
            f"{settings.bar_key} was chosen on {n_shared} validation identities with two images or more, which is few."
        )
    return identities

"""From views and known identities to labels, step by step: `label`, behind everything that labels images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from cdp.consensus.constraints import Constraints, check_constraints
from cdp.consensus.grouping import accepted_pairs, at_bar, group
from cdp.consensus.mediator import Mediator, PairClassifier, select_training_pairs, train_mediator
from cdp.consensus.pair_features import prepare_features
from cdp.consensus.pairs import candidate_pairs, keep_pairs
from cdp.consensus.scoring import score_pairs
from cdp.consensus.settings import ConsensusSettings, GroupingSettings, MediatorSettings, slice_of
from cdp.consensus.soft_labels import diffuse, likely_pairs
from cdp.errors import InputError
from cdp.labeling.cache import Cache, step_key
from cdp.labeling.expectation import calibrate, expect, measure_calibration
from cdp.labeling.judged import Judged
from cdp.labeling.tree_scoring import score_by_trees
from cdp.labeling.tuning import (
    FEWEST_IDENTITIES,
    count_shared,
    hold_out,
    lowest_bar,
    not_tuned,
    tune,
    with_bar,
)
from cdp.labeling.unsupervised import judge_by_similarity, with_chosen_bar
from cdp.labeling.view_checks import (
    check_labeled,
    check_mask,
    check_mediator,
    check_same_committee,
    check_views,
)
from cdp.labeling.workspace import Graphs, Workspace, concatenate, find_graphs, search_inputs
from cdp.scratch import Scratch
from cdp.types import ConsensusGraph, KnnGraph, Labels, Views
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.labels import first_rows
from cdp.types.run_record import CalibrationBin, Expectation, HalvesAgreement, Tuning

_GRAPHS_NOT_USED = "The given k-NN graphs were not used: they do not have the known images, which are put among the unlabeled ones."
_NOT_IN_GRAPHS = "given k-NN graphs do not have the images to choose it on"


@dataclass(frozen=True, eq=False)
class Labeling:
    """Labels with everything that belongs to them.

    Attributes:
        labels: the pseudo-identities.
        accepted: the accepted pairs.
        scored: all pairs that count when groups are made, accepted or not.
        soft_labels: float32 (n, C) sparse, or None if not asked for.
        graphs: k-NN graphs by model, base first.
        mediator: None for a vote.
        tuning: None if the bar was given.
        expected: what known images among the others say of the labels; None if there are none.
        unsupervised: how the bar was chosen where nobody is known; else None.
        calibration: how often pairs of one probability are one identity, on the same images.
        settings: with the bar that was used.
        candidates: the graph whose edges are the candidate pairs: the base's, or with trees that of all models together.
        validation: bool (n,): images whose identities were used to choose the bar or to train the mediator; figures
            leave them out.
        judged: pairs of all images, known ones among them, if asked for.
        seconds: by step.
        notes: a sentence for each thing that was left out or is out of the ordinary.
    """

    labels: Labels
    accepted: ConsensusGraph
    scored: ConsensusGraph
    soft_labels: sparse.csr_array | None
    graphs: dict[str, KnnGraph]
    mediator: Mediator | None
    tuning: Tuning | None
    expected: Expectation | None
    unsupervised: HalvesAgreement | None
    calibration: list[CalibrationBin]
    settings: ConsensusSettings
    candidates: KnnGraph
    validation: BoolArray
    seconds: dict[str, float]
    notes: tuple[str, ...]
    judged: Judged | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was learned from the labeled part.

    Attributes:
        mediator: None for a vote, and for trees, which are trained in the midst of the unlabeled images.
        validation: labeled images that are put among the unlabeled ones: to choose the bar on, or to train trees; None
            if they are not needed.
        notes: sentences.
    """

    mediator: Mediator | None
    validation: Views | None = None
    notes: tuple[str, ...] = ()


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
    work, extras = workspace or Workspace(), (constraints, keep_judged)
    check_views(settings, unlabeled, (*labeled, validation), work.engine)
    if constraints is not None:
        check_constraints(constraints, settings.max_size)
    if not isinstance(validation, Views):
        validation = check_mask(validation, unlabeled)
    if fitted is None:
        is_learned = _is_trained_on_labeled(settings, validation is not None, networks_saw_labeled)
        labeled = labeled if is_learned else ()
        settings, fitted = _fit_parts(unlabeled, settings, labeled, validation, graphs, seed, work)
    settings, notes = _without_labels(settings, fitted, validation), list(fitted.notes)
    # Before graphs are searched: that the mediator does not fit must not be found out after an hour of work.
    check_mediator(fitted.mediator, unlabeled, settings)
    has_trees = _has_trees(settings, fitted)
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
    if others is None or not (has_trees or (settings.tune and mask is None)):
        return _label_views(unlabeled, settings, fitted, graphs, mask, notes, seed, work, extras)
    check_same_committee(others, unlabeled)
    return _label_among(unlabeled, others, settings, fitted, mask, notes, seed, work, extras)


def _label_among(
    unlabeled: Views,
    others: Views,
    settings: ConsensusSettings,
    fitted: Fitted,
    mask: BoolArray | None,
    notes: list[str],
    seed: int,
    work: Workspace,
    extras: tuple[Constraints | None, bool],
) -> Labeling:
    """Labels of the unlabeled images with known ones among them, which are left out of the result."""
    views = _put_among(unlabeled, others, mask, work)
    known = np.ones(views.n_images, np.bool_)
    known[: unlabeled.n_images] = False if mask is None else mask
    whole = _label_views(views, settings, fitted, None, known, notes, seed, work, extras)
    if whole.judged is not None:
        whole = replace(whole, judged=replace(whole.judged, others=others))
    return _first_rows(whole, unlabeled.n_images, work.scratch)


def _is_trained_on_labeled(settings: ConsensusSettings, has_validation: bool, saw_labeled: bool) -> bool:
    """Whether the mediator is trained on the labeled part, or on the validation part alone."""
    if settings.train_on == "validation" and not has_validation:
        raise InputError(
            'train_on = "validation" needs a validation part, and there is none; give one, or set train_on = "labeled".'
        )
    return settings.train_on == "labeled" or (
        settings.train_on == "auto" and not (saw_labeled and has_validation)
    )


def _fit_parts(
    unlabeled: Views,
    settings: ConsensusSettings,
    labeled: Sequence[Views],
    validation: Views | BoolArray | None,
    graphs: Graphs | None,
    seed: int,
    work: Workspace,
) -> tuple[ConsensusSettings, Fitted]:
    """What is learned before labeling, and the settings that go with it.

    Trees learn while labeling, from labeled and validation images among the unlabeled ones; where too little is known for
    them, the paper's mediator is trained instead; where nothing is known, pairs are judged by their similarity.
    """
    notes: tuple[str, ...] = ()
    if settings.mediator == "trees":
        if not labeled and validation is None:
            return settings, Fitted(None)
        others = [*labeled, validation] if isinstance(validation, Views) else list(labeled)
        known = [part.identities for part in others if part.identities is not None]
        if not isinstance(validation, Views | None) and unlabeled.identities is not None:
            known.append(unlabeled.identities[validation])
        n_shared = count_shared(np.concatenate([np.empty(0, np.int64), *known]))
        if n_shared >= FEWEST_IDENTITIES and (graphs is None or not others):
            return settings, Fitted(None, concatenate(others, work) if others else None)
        notes = (_no_trees(n_shared),)
        settings = replace(settings, mediator="mlp")
    if settings.tune and graphs is not None and isinstance(validation, Views | None):
        # No identity is held out to choose a bar on that cannot be chosen.
        notes += (not_tuned(settings, _NOT_IN_GRAPHS),)
        settings = replace(settings, tune=False)
    parts = labeled
    if not parts and validation is not None:
        parts = [validation if isinstance(validation, Views) else unlabeled.take(validation)]
    fitted = fit(parts, settings, hold_out_validation=validation is None, seed=seed, workspace=work)
    return settings, replace(fitted, notes=notes + fitted.notes)


def _without_labels(
    settings: ConsensusSettings, fitted: Fitted, validation: Views | BoolArray | None
) -> ConsensusSettings:
    """Trees become similarity where no identity is known; nothing is tuned for similarity."""
    if _has_trees(settings, fitted) and fitted.validation is None and validation is None:
        settings = replace(settings, mediator="similarity", grouping="average")
    return replace(settings, tune=False) if settings.mediator == "similarity" else settings


def _no_trees(n_shared: int) -> str:
    why = "given k-NN graphs do not have the known images"
    if n_shared < FEWEST_IDENTITIES:
        why = f"identities with two images or more that are known: {n_shared}, and {FEWEST_IDENTITIES} at least are needed"
    return f'mediator = "mlp" instead of "trees": {why}.'


def _has_trees(settings: ConsensusSettings, fitted: Fitted) -> bool:
    """Whether pairs are judged by trees; a mediator that was trained before is used instead."""
    return settings.mediator == "trees" and fitted.mediator is None


def fit(
    labeled: Sequence[Views],
    settings: ConsensusSettings,
    *,
    graphs: Graphs | None = None,
    classifier: PairClassifier | None = None,
    hold_out_validation: bool = True,
    seed: int = 0,
    workspace: Workspace | None = None,
) -> Fitted:
    """Train the mediator on the labeled part; where the bar is to be tuned, some identities are held out for that.

    Args:
        labeled: views with identities; several if each was seen by networks of its own.
        settings: of section 3.1.
        graphs: k-NN graphs of the labeled part, if it is one and they are there already; then no identity is held out.
        classifier: instead of the paper's MLP, anything with `fit` and `predict_proba`.
        hold_out_validation: whether identities may be held out; not where there is a validation part.
        seed: of everything random.
        workspace: engine, cache and progress.
    """
    parts = [views for views in labeled if settings.is_trained or views.identities is not None]
    check_labeled(parts, settings)
    validation: Views | None = None
    notes: tuple[str, ...] = ()
    if settings.mediator == "trees" and classifier is None:
        together = concatenate(parts, workspace or Workspace())
        assert together.identities is not None
        n_shared = count_shared(together.identities)
        if n_shared >= FEWEST_IDENTITIES:
            return Fitted(None, together)
        notes = (_no_trees(n_shared),)
    if settings.tune and settings.mediator != "similarity" and hold_out_validation and len(parts) == 1:
        parts[0], validation, why_not = _hold_out(parts[0], settings, graphs is not None, seed)
        notes += why_not
    if not settings.is_trained:
        return Fitted(None, validation, notes)
    mediator = _train(parts, settings, graphs, classifier, seed, workspace or Workspace())
    return Fitted(mediator, validation, notes)


def _hold_out(
    labeled: Views, settings: ConsensusSettings, has_graphs: bool, seed: int
) -> tuple[Views, Views | None, tuple[str, ...]]:
    """The images to train on, those to choose the bar on, and a note if there can be none."""
    assert labeled.identities is not None
    if settings.mediator == "vote":
        # It is not trained, so all labeled images can serve.
        validation = labeled if count_shared(labeled.identities) >= FEWEST_IDENTITIES else None
    elif has_graphs:
        why = "given k-NN graphs are of all labeled images, so that no identity can be held out"
        return labeled, None, (not_tuned(settings, why),)
    else:
        mask = hold_out(labeled.identities, seed)
        if mask is not None and (~mask).sum() > settings.k:
            return labeled.take(~mask), labeled.take(mask), ()
        validation = None
    too_few = not_tuned(settings, "too few labeled identities have two images or more")
    return labeled, validation, () if validation is not None else (too_few,)


def _train(
    parts: Sequence[Views],
    settings: ConsensusSettings,
    graphs: Graphs | None,
    classifier: PairClassifier | None,
    seed: int,
    work: Workspace,
) -> Mediator:
    # Given graphs and classifiers have no key.
    cache = work.cache if classifier is None and graphs is None else Cache()
    inputs = [
        [cache.hash_views(views), cache.hash(views.identities), search_inputs(settings, views.n_images, seed)]
        for views in parts
    ]
    key = step_key("mediator", 1, slice_of(settings, MediatorSettings), inputs, seed)
    known = cache.get("mediator", key, Mediator)
    if known is not None:
        return known
    pairs = []
    for views in parts:
        found = find_graphs(views, settings, graphs, seed=seed, work=work, part="labeled ")
        with work.step("mediator"):
            source = prepare_features(views, list(found.values()), settings.inputs)
            assert views.identities is not None
            candidates = candidate_pairs(source.graphs[0], work.scratch)
            pairs.append(select_training_pairs(source, candidates, views.identities))
    with work.step("mediator"):
        mediator = train_mediator(
            pairs, classifier, memory_budget=work.engine.memory_budget, seed=seed, progress=work.progress
        )
    cache.put("mediator", key, mediator)
    return mediator


def _label_views(
    views: Views,
    settings: ConsensusSettings,
    fitted: Fitted,
    given: Graphs | None,
    mask: BoolArray | None,
    notes: list[str],
    seed: int,
    work: Workspace,
    extras: tuple[Constraints | None, bool],
) -> Labeling:
    """Labels of all images of the views; the bar is chosen on the masked ones."""
    constraints, keep = extras
    mediator = fitted.mediator
    if mediator is not None:
        # A trained mediator has inputs of its own.
        settings = replace(settings, inputs=mediator.inputs)
    known = _validation_identities(views, mask, settings, notes)
    scoring = settings if known is None else lowest_bar(settings)
    judged = _judge(views, scoring, fitted, given, mask, notes, seed, work, extras)
    scored, settings = judged.scored, with_chosen_bar(settings, judged.unsupervised)
    tuning, expected, calibration = None, None, []
    if known is not None:
        with work.step("tuning"):
            tuning = tune(scored, known, settings, work.progress, work.engine, work.scratch)
        if settings.mediator != "vote":
            calibration = measure_calibration(scored, known, disjoint=settings.disjoint)
        settings = with_bar(settings, tuning.chosen)
        scored = at_bar(scored, settings, work.scratch)
    with work.step("groups"):
        labels = group(scored, settings, constraints, engine=work.engine, scratch=work.scratch)
    if known is not None:
        expected = expect(labels, known, seed, disjoint=settings.disjoint)
        notes += _broken_promise(settings, expected)
        if settings.grouping == "average":
            labels = calibrate(scored, labels, known, settings.k, disjoint=settings.disjoint)
    soft = None
    if settings.soft_depth:
        with work.step("soft labels"):
            walked = likely_pairs(scored) if settings.grouping == "average" else scored
            soft = diffuse(walked, labels, settings.soft_depth, settings.soft_decay)
    return Labeling(
        labels=labels,
        accepted=accepted_pairs(scored, labels, settings, work.scratch),
        scored=scored,
        soft_labels=soft,
        graphs={name: graph.nearest(settings.k) for name, graph in judged.graphs.items()},
        mediator=mediator,
        tuning=tuning,
        expected=expected,
        unsupervised=judged.unsupervised,
        calibration=calibration,
        settings=settings,
        candidates=judged.candidates,
        validation=np.zeros(views.n_images, np.bool_) if mask is None else mask,
        seconds=dict(work.seconds),
        notes=tuple(notes),
        judged=judged if keep else None,
    )


def _judge(
    views: Views,
    settings: ConsensusSettings,
    fitted: Fitted,
    given: Graphs | None,
    mask: BoolArray | None,
    notes: list[str],
    seed: int,
    work: Workspace,
    extras: tuple[Constraints | None, bool],
) -> Judged:
    """Judged pairs, the models' graphs, and the graph whose edges are the candidates."""
    if _has_trees(settings, fitted):
        said, keep = extras
        return score_by_trees(
            views, settings, mask, given, seed=seed, work=work, notes=notes, keep=keep, constraints=said
        )
    if settings.mediator == "similarity":
        return judge_by_similarity(views, settings, given, seed=seed, work=work, notes=notes)
    graphs = find_graphs(views, settings, given, seed=seed, work=work)
    candidates = next(iter(graphs.values()))
    with work.step("consensus"):
        scored = score_pairs(
            candidate_pairs(candidates, work.scratch),
            prepare_features(views, list(graphs.values()), settings.inputs),
            fitted.mediator,
            slice_of(settings, GroupingSettings),
            engine=work.engine,
            progress=work.progress,
            scratch=work.scratch,
        )
    known = (
        np.full(views.n_images, -1)
        if mask is None or views.identities is None
        else np.where(mask, views.identities, -1)
    )
    return Judged(scored, graphs, candidates, settings.k, known)


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
            "identities, or set tune = false."
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


def _put_among(unlabeled: Views, others: Views, mask: BoolArray | None, work: Workspace) -> Views:
    """Both parts as one, with the identities that may be looked at."""
    looked_at = None
    if mask is not None and unlabeled.identities is not None:
        looked_at = np.where(mask, unlabeled.identities, -1)
    return concatenate([replace_identities(unlabeled, looked_at), others], work)


def replace_identities(views: Views, identities: LongArray | None) -> Views:
    """The same views with other identities, or none."""
    return Views(views.base, views.committee, identities, views.paths)


def _first_rows(whole: Labeling, n_images: int, scratch: Scratch) -> Labeling:
    """The first images of a labeling; an image that is left alone in its group is discarded."""
    labels = first_rows(whole.labels, n_images)
    soft = whole.soft_labels
    return replace(
        whole,
        labels=labels,
        accepted=_first_pairs(whole.accepted, n_images, scratch),
        scored=_first_pairs(whole.scored, n_images, scratch),
        soft_labels=None if soft is None else _first_soft_rows(soft, whole.labels, labels),
        graphs={name: graph.first_rows(n_images, scratch.empty) for name, graph in whole.graphs.items()},
        candidates=whole.candidates.first_rows(n_images, scratch.empty),
        validation=whole.validation[:n_images],
    )


def _first_pairs(pairs: ConsensusGraph, n_images: int, scratch: Scratch) -> ConsensusGraph:
    def is_first(ids: IntArray, _: AnyArray) -> BoolArray:
        # The second id is the larger one.
        return np.asarray(ids[:, 1] < n_images)

    kept = keep_pairs(pairs, is_first, scratch)
    return ConsensusGraph(kept.ids, kept.doubt, n_images)


def _first_soft_rows(soft: sparse.csr_array, before: Labels, after: Labels) -> sparse.csr_array:
    """Columns follow the labels; what belonged to groups that are gone is shared out by normalizing again."""
    is_labeled = after.labels >= 0
    column = np.empty(after.n_identities, np.int64)
    column[after.labels[is_labeled]] = before.labels[: after.n_images][is_labeled]
    rows = soft[: after.n_images][:, column]
    total = np.asarray(rows.sum(axis=1)).ravel()
    scale = np.where(is_labeled, 1 / np.where(is_labeled, total, 1), 0)
    return sparse.csr_array(sparse.diags_array(scale) @ rows, dtype=np.float32)

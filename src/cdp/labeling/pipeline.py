"""From views and known identities to labels, step by step; whoever labels images calls `label`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import sparse

from cdp.consensus.grouping import accepted_pairs, at_bar, group
from cdp.consensus.mediator import Mediator, PairClassifier, select_training_pairs, train_mediator
from cdp.consensus.pair_features import prepare_features
from cdp.consensus.pairs import candidate_pairs
from cdp.consensus.scoring import score_pairs
from cdp.consensus.settings import (
    ConsensusSettings,
    GroupingSettings,
    MediatorSettings,
    slice_of,
)
from cdp.consensus.soft_labels import diffuse, likely_pairs
from cdp.errors import InputError
from cdp.labeling.cache import Cache, step_key
from cdp.labeling.tuning import FEWEST_IDENTITIES, count_shared, hold_out, lowest_bar, tune, with_bar
from cdp.labeling.view_checks import check_mediator, check_same_committee, check_views, require_identities
from cdp.labeling.workspace import Graphs, Workspace, find_graphs, search_inputs
from cdp.memory import parse_bytes
from cdp.types import ConsensusGraph, KnnGraph, Labels, Views
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.labels import first_rows
from cdp.types.run_record import Tuning


@dataclass(frozen=True, eq=False)
class Labeling:
    """Labels with everything that belongs to them.

    Attributes:
        labels: the pseudo-identities.
        accepted: the accepted pairs.
        soft_labels: float32 (n, C) sparse, or None if not asked for.
        graphs: k-NN graphs by model, base first.
        mediator: None for a vote.
        tuning: None if the bar was given.
        settings: with the bar that was used.
        validation: bool (n,): images whose identities were used to choose the bar or to train the mediator; figures
            leave them out.
        seconds: by step.
        notes: a sentence for each thing that was left out or is out of the ordinary.
    """

    labels: Labels
    accepted: ConsensusGraph
    soft_labels: sparse.csr_array | None
    graphs: dict[str, KnnGraph]
    mediator: Mediator | None
    tuning: Tuning | None
    settings: ConsensusSettings
    validation: BoolArray
    seconds: dict[str, float]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was learned from the labeled part.

    Attributes:
        mediator: None for a vote.
        validation: labeled images that were held out to choose the bar on; None if they are not needed.
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
        seed: of everything random.
        workspace: engine, cache and progress.
    """
    work = workspace or Workspace()
    check_views(settings, unlabeled)
    notes: list[str] = []
    if settings.tune and graphs is not None and not isinstance(validation, np.ndarray):
        settings = replace(settings, tune=False)
        notes.append(
            f"{settings.bar_key} = {settings.bar:g} was not tuned: given k-NN graphs do not have the images to choose it on."
        )
    with ExitStack() as stack:
        mask = validation if isinstance(validation, np.ndarray) else None
        trained_on = _training_part(settings, mask, networks_saw_labeled)
        if fitted is None:
            parts = labeled if trained_on == "labeled" or mask is None else [unlabeled.take(mask)]
            has_validation = validation is not None
            fitted = fit(parts, settings, seed=seed, workspace=work, hold_out_validation=not has_validation)
        notes += fitted.notes
        others = validation if isinstance(validation, Views) else fitted.validation
        views = unlabeled
        if settings.tune and mask is None and others is not None:
            views = _put_among(unlabeled, others, stack, work)
            mask = np.arange(views.n_images) >= unlabeled.n_images
        found = find_graphs(views, settings, graphs, seed=seed, work=work)
        whole = _label_views(views, settings, fitted.mediator, found, mask, notes, work)
        return whole if views is unlabeled else _first_rows(whole, unlabeled.n_images)


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
        graphs: k-NN graphs of the labeled part, if it is one, whole, and they are there already.
        classifier: instead of the paper's MLP, anything with `fit` and `predict_proba`.
        hold_out_validation: whether identities may be held out; not where there is a validation part.
        seed: of everything random.
        workspace: engine, cache and progress.
    """
    work = workspace or Workspace()
    is_vote = settings.mediator == "vote" and classifier is None
    if is_vote and not labeled:
        return Fitted(None, notes=("The bar was not tuned: no identity is known.",) if settings.tune else ())
    for views in labeled:
        check_views(settings, views)
        require_identities(views, two=not is_vote)
    if not labeled:
        raise InputError(
            "The mediator is trained on identities, and no labeled part is given; give one, give a trained mediator, "
            'or use mediator = "vote", which needs none.'
        )
    check_same_committee(labeled)
    validation, notes, parts = None, [], list(labeled)
    if settings.tune and hold_out_validation and len(parts) == 1:
        identities = parts[0].identities
        assert identities is not None
        # A vote needs no training, so that all labeled images can serve.
        mask = np.ones(len(identities), np.bool_) if is_vote else hold_out(identities, seed)
        if mask is None or count_shared(identities[mask]) < FEWEST_IDENTITIES:
            notes.append(
                f"{settings.bar_key} = {settings.bar:g} was not tuned: too few labeled identities have two images or more."
            )
        else:
            parts, validation, graphs = (
                [parts[0].take(~mask)] if not is_vote else [],
                parts[0].take(mask),
                None,
            )
    if is_vote:
        return Fitted(None, validation, tuple(notes))
    mediator = _train(parts, settings, graphs, classifier, seed, work)
    return Fitted(mediator, validation, tuple(notes))


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
            pairs.append(select_training_pairs(source, candidate_pairs(source.graphs[0]), views.identities))
    with work.step("mediator"):
        mediator = train_mediator(
            pairs, classifier, memory_budget=work.engine.memory_budget, seed=seed, progress=work.progress
        )
    cache.put("mediator", key, mediator)
    return mediator


def _label_views(
    views: Views,
    settings: ConsensusSettings,
    mediator: Mediator | None,
    graphs: dict[str, KnnGraph],
    mask: BoolArray | None,
    notes: list[str],
    work: Workspace,
) -> Labeling:
    """Labels of all images of the views; the bar is chosen on the masked ones."""
    if mediator is not None:
        check_mediator(mediator, views, settings)
    known = _validation_identities(views, mask, settings, notes)
    scoring = settings if known is None else lowest_bar(settings)
    with work.step("consensus"):
        inputs = settings.inputs if mediator is None else mediator.inputs
        source = prepare_features(views, list(graphs.values()), inputs)
        scored = score_pairs(
            candidate_pairs(source.graphs[0]),
            source,
            mediator,
            slice_of(scoring, GroupingSettings),
            engine=work.engine,
            progress=work.progress,
        )
    tuning = None
    if known is not None:
        with work.step("tuning"):
            tuning = tune(scored, known, settings, work.progress)
        settings = with_bar(settings, tuning.chosen)
        scored = at_bar(scored, settings)
    with work.step("groups"):
        labels = group(scored, settings)
    soft = None
    if settings.soft_depth:
        with work.step("soft labels"):
            walked = likely_pairs(scored) if settings.grouping == "average" else scored
            soft = diffuse(walked, labels, settings.soft_depth, settings.soft_decay)
    return Labeling(
        labels=labels,
        accepted=accepted_pairs(scored, labels, settings),
        soft_labels=soft,
        graphs=graphs,
        mediator=mediator,
        tuning=tuning,
        settings=settings,
        validation=np.zeros(views.n_images, np.bool_) if mask is None else mask,
        seconds=dict(work.seconds),
        notes=tuple(notes),
    )


def _validation_identities(
    views: Views, mask: BoolArray | None, settings: ConsensusSettings, notes: list[str]
) -> LongArray | None:
    """The identities to choose the bar by, -1 elsewhere; None if it is not to be chosen or cannot be."""
    if not settings.tune:
        return None
    if mask is None or not mask.any():
        if not any("not tuned" in note for note in notes):
            notes.append(
                f"{settings.bar_key} = {settings.bar:g} was not tuned: there are no known identities to choose it by."
            )
        return None
    identities: LongArray = (
        np.full(views.n_images, -1, np.int64)
        if views.identities is None
        else np.where(mask, views.identities, -1)
    )
    if not (identities >= 0).any():
        raise InputError(
            "The validation images have no identities, so the bar cannot be chosen on them; give identities, or set "
            "tune = false."
        )
    return identities


def _training_part(settings: ConsensusSettings, mask: BoolArray | None, networks_saw_labeled: bool) -> str:
    has_validation = mask is not None and bool(mask.any())
    if settings.train_on == "validation" and not has_validation:
        raise InputError(
            'train_on = "validation" needs validation images among the unlabeled ones; give a validation part, or set '
            'train_on = "labeled".'
        )
    if settings.train_on == "auto":
        return "validation" if networks_saw_labeled and has_validation else "labeled"
    return settings.train_on


def _put_among(unlabeled: Views, others: Views, stack: ExitStack, work: Workspace) -> Views:
    """Both parts as one; on disk if they are larger than the memory budget."""
    blind = replace_identities(unlabeled, None)
    size = sum(one.source.nbytes for views in (unlabeled, others) for one in views)
    if size <= parse_bytes(work.engine.memory_budget):
        return Views.concatenate([blind, others])
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cdp-views-", dir=work.cache.folder))
    return Views.concatenate([blind, others], Path(folder))


def replace_identities(views: Views, identities: LongArray | None) -> Views:
    """The same views with other identities, or none."""
    return Views(views.base, views.committee, identities, views.paths)


def _first_rows(whole: Labeling, n_images: int) -> Labeling:
    """The first images of a labeling; whoever is left alone in a group is discarded."""
    labels = first_rows(whole.labels, n_images)
    kept = (whole.accepted.ids < n_images).all(axis=1)
    accepted = ConsensusGraph(whole.accepted.ids[kept], whole.accepted.doubt[kept], n_images)
    soft = whole.soft_labels
    if soft is not None:
        # Columns follow the labels; what belonged to groups that are gone is shared out by normalizing again.
        column = np.full(whole.labels.n_identities, -1, np.int64)
        held = labels.labels >= 0
        column[whole.labels.labels[:n_images][held]] = labels.labels[held]
        rows = soft[:n_images][:, np.argsort(column)[(column < 0).sum() :]].tocsr()
        rows = sparse.diags_array(held.astype(np.float32)) @ rows
        total = np.asarray(rows.sum(axis=1)).ravel()
        soft = sparse.csr_array(
            sparse.diags_array(1 / np.where(total > 0, total, 1)) @ rows, dtype=np.float32
        )
    return replace(
        whole,
        labels=labels,
        accepted=accepted,
        soft_labels=soft,
        graphs={name: graph.first_rows(n_images) for name, graph in whole.graphs.items()},
        validation=whole.validation[:n_images],
    )

"""What is learned before labeling: the mediator, from the labeled part, and what of it is held out to choose the bar on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cdp.errors import InputError
from cdp.labeling.tuning import (
    FEWEST_IDENTITIES,
    count_shared,
    hold_out,
    not_tuned,
)
from cdp.labeling.view_checks import (
    check_labeled,
)
from cdp.labeling.workspace import Graphs, Workspace, concatenate, find_graphs, search_inputs
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.mediator import Mediator, PairClassifier, select_training_pairs, train_mediator
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import prepare_features
from cdp.scoring.settings import ConsensusSettings, MediatorSettings
from cdp.settings import slice_of
from cdp.types import Views
from cdp.types.arrays import BoolArray

_NOT_IN_GRAPHS = "given k-NN graphs do not have the images to choose it on"


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


def is_trained_on_labeled(settings: ConsensusSettings, has_validation: bool, saw_labeled: bool) -> bool:
    """Whether the mediator is trained on the labeled part, or on the validation part alone."""
    if settings.train_on == "validation" and not has_validation:
        raise InputError(
            'train_on = "validation" needs a validation part, and there is none; give one, or set train_on = "labeled".',
            code="train-on-validation-missing",
            key="train_on",
        )
    return settings.train_on == "labeled" or (
        settings.train_on == "auto" and not (saw_labeled and has_validation)
    )


def fit_parts(
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


def without_labels(
    settings: ConsensusSettings, fitted: Fitted, validation: Views | BoolArray | None
) -> ConsensusSettings:
    """Trees become similarity where no identity is known; nothing is tuned for similarity."""
    if judges_by_trees(settings, fitted) and fitted.validation is None and validation is None:
        settings = replace(settings, mediator="similarity", grouping="average")
    return replace(settings, tune=False) if settings.mediator == "similarity" else settings


def _no_trees(n_shared: int) -> str:
    why = "given k-NN graphs do not have the known images"
    if n_shared < FEWEST_IDENTITIES:
        why = f"identities with two images or more that are known: {n_shared}, and {FEWEST_IDENTITIES} at least are needed"
    return f'mediator = "mlp" instead of "trees": {why}.'


def judges_by_trees(settings: ConsensusSettings, fitted: Fitted) -> bool:
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
    cache = work.cache if classifier is None and graphs is None else StepCache()
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

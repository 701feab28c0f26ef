"""`fit`: choose the pair scorer for the labeled images, and train the paper's mediator if needed.

Gradient boosting is trained while images are labeled, because it learns among the images that it scores:
`fit` only sees to it that the labeled images will be joined with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cdp.errors import InputError
from cdp.knn.model_graphs import Graphs, find_graphs, search_inputs
from cdp.labeling.joined_views import concatenate
from cdp.labeling.tuning import MIN_IDENTITIES, count_shared, hold_out, not_chosen
from cdp.labeling.view_checks import check_labeled
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.committee_scorers import MediatorScorer, VoteScorer
from cdp.scoring.mediator import Mediator, PairClassifier, select_training_pairs, train_mediator
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import prepare_features
from cdp.scoring.scored_pairs import PairScorer
from cdp.scoring.settings import ConsensusSettings, ScoringSettings, check_threshold
from cdp.scoring.similarity import SimilarityScorer
from cdp.scoring.tree_scorer import TreeScorer
from cdp.settings import slice_of
from cdp.types import Views
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.constraints import Constraints

_FEW = (
    "{} labeled identities have two images or more, and at least {} are needed to learn from them: pairs are "
    "scored by similarity, and groups keep the given identities."
)
_NOT_IN_GRAPHS = "the given k-NN graphs do not contain the images to choose it on"


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images whose identities may be used.

    Attributes:
        parts: to learn from, separate from the unlabeled images; several if each was embedded by networks of
            its own.
        validation: to choose the threshold on, also separate.
        unlabeled: the images to label, where `rows` of them are labeled.
        rows: bool (n,), rows of `unlabeled` to choose the threshold on.
        are_among: whether the parts are among the images to label too, as in `CDP.fit`.
    """

    parts: tuple[Views, ...] = ()
    validation: Views | None = None
    unlabeled: Views | None = None
    rows: BoolArray | None = None
    are_among: bool = False

    @property
    def separate(self) -> list[Views]:
        """All images that are separate from the unlabeled ones."""
        return [*self.parts, *([] if self.validation is None else [self.validation])]

    @property
    def is_empty(self) -> bool:
        """Whether nobody is labeled."""
        return not self.separate and self.rows is None

    @property
    def has_validation(self) -> bool:
        """Whether there are images to choose the threshold on."""
        return self.validation is not None or self.rows is not None

    @property
    def identities(self) -> LongArray:
        """Identities of all labeled images."""
        identities = [views.identities for views in self.separate if views.identities is not None]
        if self.rows is not None and self.unlabeled is not None and self.unlabeled.identities is not None:
            identities.append(self.unlabeled.identities[self.rows])
        return np.concatenate([np.empty(0, np.int64), *identities])

    def to_train_on(self) -> list[Views]:
        """Return the parts to learn from, or the validation images where there are none."""
        if self.parts or not self.has_validation:
            return list(self.parts)
        if self.validation is not None:
            return [self.validation]
        assert self.unlabeled is not None
        assert self.rows is not None
        return [self.unlabeled.take(self.rows)]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was decided and learned from the labeled images.

    Attributes:
        settings: with the scorer that the labeled images allow.
        mediator: the paper's; None for the other scorers.
        joined: labeled images to join with the unlabeled ones: to train trees on, or to choose the threshold
            on.
        tries_similarity: whether similarity takes the place of trees that are not clearly better.
        notes: sentences for the user.
    """

    settings: ConsensusSettings
    mediator: Mediator | None = None
    joined: Views | None = None
    tries_similarity: bool = False
    notes: tuple[str, ...] = ()

    def scorer(self, threshold: float, seed: int, constraints: Constraints | None = None) -> PairScorer:
        """Return the pair scorer; `threshold` is the lowest one that will be tried."""
        return make_scorer(self.settings, threshold, seed, self.mediator, constraints)


def make_scorer(
    settings: ConsensusSettings,
    threshold: float,
    seed: int,
    mediator: Mediator | None = None,
    constraints: Constraints | None = None,
) -> PairScorer:
    """Create the scorer that the settings name."""
    if mediator is not None:
        return MediatorScorer(settings, threshold, seed, mediator)
    if settings.mediator == "trees":
        return TreeScorer(settings, threshold, seed, constraints)
    if settings.mediator == "similarity":
        return SimilarityScorer(settings, seed)
    return VoteScorer(settings, threshold, seed)


def is_trained_on_labeled(settings: ConsensusSettings, has_validation: bool, saw_labeled: bool) -> bool:
    """Return whether the mediator is trained on the labeled part, or on the validation part alone."""
    if settings.train_on == "validation" and not has_validation:
        raise InputError(
            'train_on = "validation" needs a validation part, and there is none; give one, or set train_on = '
            '"labeled".',
            code="train-on-validation-missing",
            key="train_on",
        )
    return settings.train_on == "labeled" or (
        settings.train_on == "auto" and not (saw_labeled and has_validation)
    )


def fit(
    labeled: LabeledImages,
    settings: ConsensusSettings,
    *,
    classifier: PairClassifier | None = None,
    labeled_graphs: Graphs | None = None,
    has_graphs: bool = False,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> Fitted:
    """Choose the scorer, train the mediator, and set images aside to choose the threshold on.

    Trees need a few labeled identities; with fewer, and where nobody is labeled, pairs are scored by
    similarity. The paper's mediator is trained instead where a probability is given as threshold, and where
    labeled and unlabeled images may show the same people.

    Args:
        labeled: labeled images.
        settings: of section 3.1.
        classifier: instead of the paper's MLP, any classifier with `fit` and `predict_proba`.
        labeled_graphs: k-NN graphs of the labeled part, if they exist already; then no identity is held out.
        has_graphs: whether k-NN graphs of the unlabeled images are given, which labeled ones cannot be joined
            with.
        seed: of everything random.
        runtime: how it runs.
    """
    runtime = runtime or Runtime()
    notes: tuple[str, ...] = ()
    if classifier is not None:
        settings = replace(settings, mediator="mlp")
    if settings.mediator in ("auto", "trees"):
        tries_similarity = settings.mediator == "auto"
        trees = replace(settings, mediator="trees")
        settings, notes, joined = _suit_trees(labeled, trees, has_graphs, runtime)
        if settings.mediator != "mlp":
            return Fitted(settings, joined=joined, tries_similarity=tries_similarity, notes=notes)
    if settings.mediator == "similarity":
        return Fitted(settings)
    settings, more = _settle_threshold(labeled, settings, has_graphs)
    notes += more
    parts = [views for views in labeled.to_train_on() if settings.is_trained or views.identities is not None]
    if parts and settings.is_trained and labeled_graphs is None:
        smallest = min(views.n_images for views in parts)
        settings, fewer = suit_k(settings, smallest, "the part to train on has {} images")
        notes += fewer
    check_labeled(parts, settings)
    joined = labeled.validation
    if settings.threshold is None and not labeled.has_validation and len(parts) == 1:
        parts[0], joined, why_not = _hold_out(parts[0], settings, labeled_graphs is not None, seed)
        if why_not:
            notes += (not_chosen(settings, why_not),)
            settings = replace(settings, threshold=settings.default_threshold)
    if settings.threshold is not None:
        joined = None
    mediator = (
        _train(parts, settings, labeled_graphs, classifier, seed, runtime) if settings.is_trained else None
    )
    return Fitted(settings, mediator, joined, notes=notes)


def _settle_threshold(
    labeled: LabeledImages, settings: ConsensusSettings, has_graphs: bool
) -> tuple[ConsensusSettings, tuple[str, ...]]:
    """Settle whether a threshold is chosen, with a note where it cannot be or need not be."""
    if settings.threshold is None and has_graphs and labeled.rows is None:
        # No identity is held out to choose a threshold on that cannot be chosen.
        default = replace(settings, threshold=settings.default_threshold)
        return default, (not_chosen(settings, _NOT_IN_GRAPHS),)
    if settings.threshold is not None and labeled.validation is not None:
        given = f"threshold = {settings.threshold:g} was given, so the validation part was not used."
        return settings, (given,)
    return settings, ()


def _suit_trees(
    labeled: LabeledImages, settings: ConsensusSettings, has_graphs: bool, runtime: Runtime
) -> tuple[ConsensusSettings, tuple[str, ...], Views | None]:
    """Replace trees where the labeled images do not allow them; the images to join where they do."""
    if labeled.is_empty:
        return replace(_without_labels(settings), mediator="similarity", grouping="average"), (), None
    if settings.threshold is not None:
        check_threshold(settings.threshold, settings.threshold_kind)
    n_shared = count_shared(labeled.identities)
    if n_shared >= MIN_IDENTITIES and not (has_graphs and labeled.separate):
        return settings, (), concatenate(labeled.separate, runtime) if labeled.separate else None
    is_usual = settings.threshold is None and settings.grouping == "average" and not has_graphs
    if n_shared < MIN_IDENTITIES and is_usual and not labeled.has_validation:
        joined = None if labeled.are_among else concatenate(labeled.separate, runtime)
        note = _FEW.format(n_shared, MIN_IDENTITIES)
        return replace(settings, mediator="similarity"), (note,), joined
    return replace(settings, mediator="mlp"), (_no_trees(n_shared),), None


def suit_k(settings: ConsensusSettings, n_images: int, why: str) -> tuple[ConsensusSettings, tuple[str, ...]]:
    """Lower k where there are too few images for as many neighbors, with a note."""
    if not 1 < n_images <= settings.k:
        return settings, ()
    note = f"k = {n_images - 1} instead of {settings.k}: {why.format(n_images)}."
    return replace(settings, k=n_images - 1), (note,)


def _without_labels(settings: ConsensusSettings) -> ConsensusSettings:
    """Refuse a threshold that is a probability where nobody is labeled: without labels it is a z-score."""
    if settings.threshold is not None and settings.threshold <= 1:
        raise InputError(
            f"threshold = {settings.threshold:g} is a probability, but without labels the threshold is a "
            "z-score (usually 3 to 8); leave it out to have it estimated, or label some people.",
            code="threshold-needs-labels",
            key="threshold",
            value=settings.threshold,
        )
    return settings


def _no_trees(n_shared: int) -> str:
    why = "the given k-NN graphs do not contain the labeled images"
    if n_shared < MIN_IDENTITIES:
        why = (
            f"{n_shared} labeled identities have two images or more, and at least {MIN_IDENTITIES} are needed"
        )
    return f'mediator = "mlp" instead of "trees": {why}.'


def _hold_out(
    labeled: Views, settings: ConsensusSettings, has_graphs: bool, seed: int
) -> tuple[Views, Views | None, str]:
    """Return the images to train on, those to choose the threshold on, and why there are none."""
    assert labeled.identities is not None
    if settings.mediator == "vote":
        # It is not trained, so all labeled images can serve.
        validation = labeled if count_shared(labeled.identities) >= MIN_IDENTITIES else None
    elif has_graphs:
        return (
            labeled,
            None,
            "given k-NN graphs contain all labeled images, so that no identity can be held out",
        )
    else:
        mask = hold_out(labeled.identities, seed)
        if mask is not None and (~mask).sum() > settings.k:
            return labeled.take(~mask), labeled.take(mask), ""
        validation = None
    too_few = "too few labeled identities have two images or more"
    return labeled, validation, "" if validation is not None else too_few


def _train(
    parts: Sequence[Views],
    settings: ConsensusSettings,
    graphs: Graphs | None,
    classifier: PairClassifier | None,
    seed: int,
    runtime: Runtime,
) -> Mediator:
    # Given graphs and classifiers have no key.
    cache = runtime.cache if classifier is None and graphs is None else StepCache()
    inputs = [
        [cache.hash_views(views), cache.hash(views.identities), search_inputs(settings, views.n_images, seed)]
        for views in parts
    ]
    key = step_key("mediator", 2, slice_of(settings, ScoringSettings), inputs, seed)
    trained = cache.get("mediator", key, Mediator)
    if trained is not None:
        return trained
    pairs = []
    for views in parts:
        found = find_graphs(views, settings, graphs, seed=seed, runtime=runtime, part="labeled ")
        with runtime.step("mediator"):
            source = prepare_features(views, list(found), settings.inputs)
            assert views.identities is not None
            candidates = candidate_pairs(found.base, runtime)
            pairs.append(select_training_pairs(source, candidates, views.identities))
    with runtime.step("mediator"):
        mediator = train_mediator(pairs, classifier, seed=seed, runtime=runtime)
    cache.put("mediator", key, mediator)
    return mediator

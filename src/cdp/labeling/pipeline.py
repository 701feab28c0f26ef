"""`label`: the one pipeline from views and labeled identities to labels.

fit      choose the scorer; train the mediator                        cdp.labeling.fitting
join     labeled images among the unlabeled ones                      cdp.labeling.joined_views
score    k-NN graphs, candidate pairs, a score for each               cdp.scoring
choose   the threshold: on labeled identities, or without labels      cdp.labeling.tuning,
                                                                      cdp.labeling.unsupervised_threshold
group    pairs become groups                                          cdp.grouping
expect   precision and confidence, from the labeled images            cdp.labeling.expectation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cdp.errors import InputError
from cdp.grouping.dendrogram import Dendrogram
from cdp.grouping.group import accepted_pairs, group, pairs_at
from cdp.grouping.soft_labels import diffuse, likely_pairs
from cdp.knn.model_graphs import Graphs
from cdp.labeling.density_matching import MAX_ROUNDS, is_as_dense, matching_share, use_share
from cdp.labeling.expectation import calibrate, expect, measure_calibration
from cdp.labeling.fitting import Fitted, LabeledImages, fit, is_trained_on_labeled, suit_k
from cdp.labeling.joined_views import join, keep_first
from cdp.labeling.labeling import Labeling
from cdp.labeling.scorer_choice import is_clearly_better, may_be_kept, shows_overlap
from cdp.labeling.tuning import MIN_IDENTITIES, count_shared, lowest_threshold, not_chosen, tune
from cdp.labeling.unsupervised_threshold import describe_estimate, estimate_threshold
from cdp.labeling.view_checks import check_mask, check_mediator, check_same_committee, check_views
from cdp.runtime.runtime import Runtime
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.similarity import SimilarityScorer
from cdp.scoring.zscore import ZScoredPairs
from cdp.types import ConsensusGraph, Views
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.constraints import Constraints, check_constraints, keep_identities
from cdp.types.run_record import CalibrationBin, Expectation, ThresholdEstimate, Tuning

_GRAPHS_NOT_USED = (
    "The given k-NN graphs were not used: they do not contain the labeled images, which are joined with the "
    "unlabeled ones."
)
_THINNED = (
    "The labeled identities have more images each than the unlabeled ones seem to have: {:,} of {:,} labeled "
    "images were used, so that what is learned on them holds for the others."
)
_BY_SIMILARITY = (
    "Boosted trees trained on the labeled identities were not clearly better than similarity, which scores "
    "the pairs instead; groups keep the given identities."
)
_OVERLAP = (
    "Labeled people are also among the unlabeled images, so disjoint = false: groups that show them get "
    "their names, if there are at least 20 of them."
)
_NOT_IN_GRAPHS = "the given k-NN graphs do not contain the images to choose it on"


def label(
    unlabeled: Views,
    settings: ConsensusSettings,
    *,
    labeled: Sequence[Views] = (),
    fitted: Fitted | None = None,
    validation: Views | BoolArray | None = None,
    labeled_among: bool = False,
    networks_saw_labeled: bool = False,
    graphs: Graphs | None = None,
    constraints: Constraints | None = None,
    reliable: BoolArray | None = None,
    keep_scored: bool = False,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> Labeling:
    """Label images with pseudo-identities: the one pipeline behind `CDP` and all commands.

    Args:
        unlabeled: the images to label; their identities are used only with `validation` or `labeled_among`.
        labeled: images with identities to learn from, in parts if embedded by different networks.
        fitted: result of an earlier `fit`, instead of `labeled`; its settings replace `settings`.
        validation: images to choose the threshold on: a mask of `unlabeled`, or views that are joined.
        labeled_among: the labeled images are rows of `unlabeled` already, marked by their identities.
        networks_saw_labeled: whether the networks were trained on the labeled part.
        graphs: k-NN graphs of the unlabeled images that exist already, by name or base first.
        constraints: must-link and cannot-link pairs, names and rejected images, which groups must keep.
        reliable: bool (n,), images to estimate the threshold on without labels; default: all.
        keep_scored: keep all scored pairs with what scoring more of them will need.

    Examples:
        >>> import cdp, numpy as np
        >>> X = np.repeat(np.random.default_rng(0).normal(size=(40, 64)), 6, axis=0)
        >>> cdp.label(cdp.Views(X), cdp.ConsensusSettings()).labels.n_identities
        40
    """
    runtime = runtime or Runtime()
    settings = settings if fitted is None else fitted.settings
    settings, notes = suit_k(settings, unlabeled.n_images, "there are {} images")
    fitted = fitted and replace(fitted, settings=settings)
    check_views(settings, unlabeled, (*labeled, validation), runtime)
    if constraints is not None:
        check_constraints(constraints, settings.most_images)
    rows = None if isinstance(validation, Views) else check_mask(validation, unlabeled)
    apart = validation if isinstance(validation, Views) else None
    if fitted is None:
        has_validation = rows is not None or apart is not None
        if not is_trained_on_labeled(settings, has_validation, networks_saw_labeled):
            labeled = ()
        given = LabeledImages(tuple(labeled), apart, unlabeled, rows)
        fitted = fit(given, settings, has_graphs=graphs is not None, seed=seed, runtime=runtime)
    elif apart is not None and fitted.joined is None and fitted.settings.threshold is None:
        fitted = replace(fitted, joined=apart)
    # Before graphs are searched: that the mediator does not fit must not be found out after an hour of work.
    check_mediator(fitted.mediator, unlabeled, fitted.settings)
    if labeled_among:
        fitted, rows = _as_rows(fitted, unlabeled, rows)
    fitted, graphs = _suit_graphs(replace(fitted, notes=(*notes, *fitted.notes)), graphs, rows)
    job = _Labeling(unlabeled, fitted, rows, graphs, constraints, reliable, seed, runtime)
    return job.run(keep_scored=keep_scored)


def _as_rows(fitted: Fitted, unlabeled: Views, rows: BoolArray | None) -> tuple[Fitted, BoolArray | None]:
    """Return the images to join as rows of the unlabeled ones, which they are among already."""
    assert unlabeled.identities is not None or fitted.joined is None
    if (
        fitted.joined is not None
        and fitted.joined.identities is not None
        and unlabeled.identities is not None
    ):
        rows = np.isin(unlabeled.identities, fitted.joined.identities)
        return replace(fitted, joined=None), rows
    if fitted.settings.mediator == "similarity" and unlabeled.identities is not None:
        rows = unlabeled.identities >= 0
    return fitted, rows


def _suit_graphs(
    fitted: Fitted, graphs: Graphs | None, rows: BoolArray | None
) -> tuple[Fitted, Graphs | None]:
    """Given graphs do not contain labeled images that would be joined: leave out one or the other."""
    if graphs is None or fitted.joined is None:
        return fitted, graphs
    if fitted.settings.mediator == "trees":
        return replace(fitted, notes=(*fitted.notes, _GRAPHS_NOT_USED)), None
    settings, notes = fitted.settings, fitted.notes
    if rows is None and settings.threshold is None:
        notes = (*notes, not_chosen(settings, _NOT_IN_GRAPHS))
        settings = replace(settings, threshold=settings.default_threshold)
    return replace(fitted, settings=settings, joined=None, notes=notes), graphs


@dataclass(frozen=True, eq=False)
class _Chosen:
    """The threshold, and how it was chosen."""

    threshold: float
    tuning: Tuning | None = None
    estimate: ThresholdEstimate | None = None
    dendrogram: Dendrogram | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Scored:
    """Scored pairs of all images, with the labeled ones that were joined.

    Attributes:
        views: of all images.
        rows: bool (n,), images whose identities may be used; None if there are none.
        tuning_identities: their identities, -1 elsewhere, where the threshold is chosen on them.
        pairs: scored pairs.
        share: of the joined images that are used.
        estimate: threshold of the same pairs, if it was estimated before.
        notes: sentences for the user.
    """

    views: Views
    rows: BoolArray | None
    tuning_identities: LongArray | None
    pairs: ScoredPairs
    share: float = 1.0
    estimate: ThresholdEstimate | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Labeling:
    """The steps of one labeling; every step returns what it found."""

    unlabeled: Views
    fitted: Fitted
    rows: BoolArray | None
    graphs: Graphs | None
    constraints: Constraints | None
    reliable: BoolArray | None
    seed: int
    runtime: Runtime

    @property
    def settings(self) -> ConsensusSettings:
        return self.fitted.settings

    def run(self, *, keep_scored: bool) -> Labeling:
        joined = self.fitted.joined
        if joined is None:
            scored = self._score(self.unlabeled, self.rows, self.graphs)
        else:
            check_same_committee(joined, self.unlabeled)
            scored = self._score_joined(joined)
        if not keep_scored:
            bare = replace(scored.pairs, candidates=None, tree_scores=None)
            scored = replace(scored, pairs=bare)
        labeling = self._better_labels(scored)
        if keep_scored:
            labeling = replace(labeling, joined=joined, share=scored.share)
        else:
            labeling = replace(labeling, kept=None)
        return labeling if joined is None else keep_first(labeling, self.unlabeled.n_images, self.runtime)

    def _score(self, views: Views, rows: BoolArray | None, graphs: Graphs | None = None) -> _Scored:
        """Score all images of the views, of which `rows` are labeled."""
        settings = self.settings
        tuning_identities, notes = _to_choose_on(views, rows, settings)
        lowest = settings.threshold
        if tuning_identities is not None:
            lowest = lowest_threshold(settings)
        elif lowest is None:
            # Z-scores are kept as they are until their threshold is estimated.
            lowest = 0.0 if settings.mediator == "similarity" else settings.default_threshold
        identities = np.full(views.n_images, -1, np.int64)
        if rows is not None and views.identities is not None:
            identities[rows] = views.identities[rows]
        scorer = self.fitted.scorer(lowest, self.seed, self.constraints)
        pairs = scorer.score(views, identities, self.runtime, graphs)
        return _Scored(views, rows, tuning_identities, pairs, notes=(*notes, *pairs.notes))

    def _score_joined(self, joined: Views) -> _Scored:
        """Score unlabeled and labeled images together, with labeled images matched in density."""
        matches = self.settings.mediator == "trees" and self.settings.is_disjoint and self.rows is None
        share = 1.0
        for left in reversed(range(MAX_ROUNDS if matches else 1)):
            views = join(self.unlabeled, use_share(joined, share, self.seed), self.rows, self.runtime)
            rows = np.ones(views.n_images, np.bool_)
            rows[: self.unlabeled.n_images] = False if self.rows is None else self.rows
            scored = self._score(views, rows)
            if not left or joined.identities is None:
                break
            graph = scored.pairs.scored
            assert isinstance(graph, ConsensusGraph)
            wanted = matching_share(graph, scored.pairs.identities, share, joined.identities, self.seed)
            if is_as_dense(share, wanted):
                break
            share = wanted
        if share < 1:
            n_used = views.n_images - self.unlabeled.n_images
            notes = (*scored.notes, _THINNED.format(n_used, joined.n_images))
            return replace(scored, share=share, notes=notes)
        return scored

    def _better_labels(self, scored: _Scored) -> Labeling:
        """Return the labels by the chosen scorer, or by similarity where trees are not clearly better.

        Strong models leave little to learn from few labeled identities, and what is learned on people with
        several images may not hold for others. Similarity also shows whether labeled people are among the
        unlabeled images.
        """
        if self.settings.mediator == "similarity":
            labeling = self._group(scored)
            if self.settings.disjoint is None and shows_overlap(labeling.labels, scored.pairs.identities):
                settings = replace(labeling.settings, disjoint=False)
                labeling = replace(labeling, settings=settings, notes=(*labeling.notes, _OVERLAP))
            return labeling
        identities = scored.tuning_identities
        if (
            identities is None
            or not self.fitted.tries_similarity
            or not may_be_kept(identities, self.settings)
        ):
            return self._group(scored)
        by_similarity = self._label_by_similarity(scored)
        job = self
        if self.settings.disjoint is None and shows_overlap(by_similarity.labels, identities):
            settings = replace(self.settings, disjoint=False)
            job = replace(self, fitted=replace(self.fitted, settings=settings))
            scored = replace(scored, notes=(*scored.notes, _OVERLAP))
        by_trees = job._group(scored)
        if is_clearly_better(by_trees.labels, by_similarity.labels, identities):
            return by_trees
        # Blind groups say what to expect: those that keep the labeled identities are right about them.
        expected = expect(by_similarity.labels, identities, self.seed, disjoint=job.settings.is_disjoint)
        return replace(job._label_by_similarity(scored, by_similarity), expected=expected)

    def _label_by_similarity(self, scored: _Scored, before: Labeling | None = None) -> Labeling:
        """Group the same images by similarity: at first blindly, then keeping the labeled identities."""
        settings = replace(self.settings, mediator="similarity")
        if before is None:
            scorer = SimilarityScorer(settings, self.seed)
            edges = scorer.score_edges(scored.views, scored.pairs.fused, self.runtime)
            identities, estimate = np.full_like(scored.pairs.identities, -1), None
        else:
            assert before.kept is not None
            assert isinstance(before.kept.scored, ZScoredPairs)
            edges, identities, estimate = before.kept.scored, scored.pairs.identities, before.estimate
        pairs = replace(scored.pairs, scored=edges, identities=identities, candidates=None, tree_scores=None)
        job = replace(self, fitted=replace(self.fitted, settings=settings))
        notes = (*scored.notes, _BY_SIMILARITY)
        return job._group(
            replace(scored, pairs=pairs, tuning_identities=None, estimate=estimate, notes=notes)
        )

    def _constraints(self, scored: _Scored) -> Constraints | None:
        """Return what groups must keep; by similarity also the given identities."""
        identities = scored.pairs.identities
        if self.settings.mediator != "similarity" or not (identities >= 0).any():
            return self.constraints
        return keep_identities(self.constraints and self.constraints.among(len(identities)), identities)

    def _choose(self, scored: _Scored) -> _Chosen:
        """Choose the threshold: as given, on labeled identities, or without labels."""
        settings, pairs = self.settings, scored.pairs.scored
        if scored.tuning_identities is not None:
            assert isinstance(pairs, ConsensusGraph)
            with self.runtime.step("tuning"):
                tuning, dendrogram = tune(pairs, scored.tuning_identities, settings, self.runtime)
            return _Chosen(tuning.chosen, tuning, dendrogram=dendrogram)
        if settings.threshold is not None:
            return _Chosen(settings.threshold)
        if isinstance(pairs, ZScoredPairs):
            estimate = scored.estimate or estimate_threshold(
                scored.pairs, reliable=self.reliable, seed=self.seed, runtime=self.runtime
            )
            is_nobody = not (scored.pairs.identities >= 0).any()
            subject = "Nobody is labeled, so the threshold" if is_nobody else "The threshold"
            note = describe_estimate(estimate, subject)
            return _Chosen(estimate.chosen, estimate=estimate, notes=(note,))
        return _Chosen(settings.default_threshold)

    def _group(self, scored: _Scored) -> Labeling:
        """Group the images of scored pairs, and say what to expect of the labels."""
        settings, runtime, tuning_identities = self.settings, self.runtime, scored.tuning_identities
        chosen = self._choose(scored)
        if chosen.estimate is not None:
            scored = replace(scored, pairs=scored.pairs.with_softness(chosen.estimate.softness))
        pairs = scored.pairs.scored
        if chosen.tuning is not None or not isinstance(pairs, ConsensusGraph):
            # Else the scorer was given the threshold, and kept no other pairs.
            pairs = pairs_at(pairs, settings, chosen.threshold, runtime)
        expected, calibration, notes = None, list[CalibrationBin](), chosen.notes
        if tuning_identities is not None and settings.mediator != "vote":
            assert isinstance(scored.pairs.scored, ConsensusGraph)
            calibration = measure_calibration(
                scored.pairs.scored, tuning_identities, disjoint=settings.is_disjoint
            )
        with runtime.step("groups"):
            labels = group(
                pairs,
                settings,
                chosen.threshold,
                self._constraints(scored),
                dendrogram=chosen.dendrogram,
                runtime=runtime,
            )
        if tuning_identities is not None:
            disjoint = settings.is_disjoint
            expected = expect(labels, tuning_identities, self.seed, disjoint=disjoint)
            notes += _missed_precision(settings, chosen.threshold, expected)
            if settings.grouping == "average":
                labels = calibrate(pairs, labels, tuning_identities, settings.k, disjoint=disjoint)
        soft = None
        if settings.soft_depth:
            with runtime.step("soft labels"):
                walked = likely_pairs(pairs) if settings.grouping == "average" else pairs
                soft = diffuse(walked, labels, settings.soft_depth, settings.soft_decay)
        nobody = np.zeros(pairs.n_images, np.bool_)
        return Labeling(
            labels=labels,
            settings=settings,
            threshold=chosen.threshold,
            accepted=accepted_pairs(pairs, labels, settings, runtime),
            scored=pairs,
            soft_labels=soft,
            graphs={name: graph.nearest(settings.k) for name, graph in scored.pairs.graphs.items()},
            candidate_lists={"": scored.pairs.candidate_graph},
            mediator=self.fitted.mediator,
            tuning=chosen.tuning,
            estimate=chosen.estimate,
            expected=expected,
            calibration=calibration,
            validation=nobody if scored.rows is None else scored.rows,
            seconds=dict(runtime.timings),
            notes=(*self.fitted.notes, *scored.notes, *notes),
            same_identity_recall=dict(scored.pairs.same_identity_recall),
            kept=scored.pairs,
        )


def _missed_precision(
    settings: ConsensusSettings, threshold: float, expected: Expectation
) -> tuple[str, ...]:
    reached = expected.precision.value
    if settings.min_precision is None or reached is None or reached >= settings.min_precision:
        return ()
    return (
        f"No threshold reaches precision {settings.min_precision:g} on the labeled identities; the best is "
        f"{reached:.3f}, at threshold {threshold:g}. Add stronger or more models.",
    )


def _to_choose_on(
    views: Views, rows: BoolArray | None, settings: ConsensusSettings
) -> tuple[LongArray | None, tuple[str, ...]]:
    """Return the identities to choose the threshold on (-1 elsewhere) and notes; None if not needed."""
    if settings.threshold is not None or settings.mediator == "similarity":
        return None, ()
    if rows is None:
        return None, (not_chosen(settings, "no validation images are labeled"),)
    if views.identities is None or not (views.identities[rows] >= 0).any():
        raise InputError(
            "The validation images have no identities, so they cannot choose the threshold; give "
            "identities, or a threshold.",
            code="validation-identities-missing",
            key="threshold",
        )
    identities: LongArray = np.where(rows, views.identities, -1)
    n_shared = count_shared(identities)
    if n_shared == 0:
        return None, (not_chosen(settings, "no validation identity has two images"),)
    if n_shared < MIN_IDENTITIES:
        note = (
            f"The threshold was chosen on {n_shared} validation identities with two images or more, which is "
            "few."
        )
        return identities, (note,)
    return identities, ()

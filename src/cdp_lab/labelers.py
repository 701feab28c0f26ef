"""Labelers for studies: clustering, labels corrected by the truth, thresholds set by the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.knn.model_graphs import find_graphs
from cdp.labeling.figures import measure_label_figures
from cdp.labeling.output import label_table, write_tables
from cdp.labeling.pipeline import label
from cdp.labeling.tuning import best_of, measure_point
from cdp.run.label_stage import (
    LabelSettings,
    label_images,
    read_part,
    stage_runtime,
    validation_rows,
)
from cdp.run.plan import Labeler, label_stage
from cdp.run.stages import Context, Stage, version
from cdp.run.training import part
from cdp.scoring.pairs import candidate_pairs
from cdp.storage.artifacts import fill, read_json
from cdp.storage.files import write_json, writing_folder
from cdp.types import ConsensusGraph, Labels, Pairs, Status, Views
from cdp.types.arrays import BoolArray, IntArray, LongArray
from cdp.types.labels import number_by_first_appearance
from cdp.types.run_record import Results, Tuning
from cdp.web.report.survey import majorities
from cdp_lab.baselines.hierarchical import Hierarchical
from cdp_lab.baselines.methods import BASELINES

Mistakes = Literal["splits", "mixtures", "all"]


@dataclass(frozen=True)
class ClusteringSettings:
    """Hierarchical clustering of the base embeddings; its threshold is tuned where possible."""

    label: LabelSettings
    merge_above: float
    memory_budget: str


def clustering(merge_above: float = 0.5, memory_budget: str = "2GB") -> Labeler:
    """Return the paper's clustering baseline instead of consensus."""

    def make(settings: LabelSettings, needs: tuple[str, ...]) -> list[Stage]:
        own = ClusteringSettings(settings, merge_above, memory_budget)
        return [Stage("label", "label", cluster_images, own, needs, {"labels": "labels"})]

    return make


@version(1)
def cluster_images(settings: ClusteringSettings, context: Context) -> None:
    """Labels by hierarchical clustering of the base's embeddings, single images left out."""
    views = read_part(settings.label, context.folder, "unlabeled")
    consensus, base = settings.label.consensus, views.base
    runtime, seed = stage_runtime(context), settings.label.seed
    graph = find_graphs(Views(base), consensus, seed=seed, runtime=runtime).base
    method = Hierarchical(memory_budget=settings.memory_budget)
    tuning, threshold = None, settings.merge_above
    rows = validation_rows(context.folder, views.n_images)
    identities = part(context.folder, "unlabeled").identities
    if consensus.threshold is None and rows is not None:
        known = np.where(rows, identities, -1)
        tried = [float(value) for value in BASELINES[method.name].grid["similarity"] if value is not None]
        cuts = method.label_each(base, graph, [{"similarity": one} for one in tried])
        points = [measure_point(one, labels, known) for one, labels in zip(tried, cuts, strict=True)]
        tuning = best_of(points, settings.merge_above, consensus.beta)
        threshold = tuning.chosen
    labels = method.having(similarity=threshold).label(base, graph)
    _write(context.folder, labels, "merge_above", threshold, tuning)


def _write(folder: Path, labels: Labels, kind: str, threshold: float, tuning: Tuning | None) -> None:
    table = part(folder, "unlabeled")
    figures = measure_label_figures(labels, _identities_to_count(folder), kind, threshold)
    with writing_folder(folder / "labels", force=True) as output:
        fill(output, labels)
        write_tables(output, label_table(labels, paths=table.locations))
        write_json(output / "metrics.json", msgspec.to_builtins(Results(labels=figures, tuning=tuning)))


def _identities_to_count(folder: Path) -> LongArray:
    """Return the identities that figures of labels count: not those of the validation part."""
    identities = part(folder, "unlabeled").identities
    rows = validation_rows(folder, len(identities))
    return identities if rows is None else np.where(rows, -1, identities)


@dataclass(frozen=True)
class OracleSettings:
    """Which mistakes are corrected."""

    mistakes: Mistakes


def oracle(mistakes: Mistakes) -> Labeler:
    """Label by consensus, then correct some mistakes by the truth, to price each kind."""

    def make(settings: LabelSettings, needs: tuple[str, ...]) -> list[Stage]:
        found = replace(settings, output="labels_found")
        return [
            Stage("label", "label", label_images, found, needs, {"labels found": "labels_found"}),
            Stage(
                "correct labels",
                "label",
                correct_labels,
                OracleSettings(mistakes),
                ("labels found", *(name for name in needs if name in ("unlabeled", "validation"))),
                {"labels": "labels"},
            ),
        ]

    return make


@version(1)
def correct_labels(settings: OracleSettings, context: Context) -> None:
    """Labels with some mistakes corrected by the true identities."""
    identities = part(context.folder, "unlabeled").identities
    found = context.folder / "labels_found"
    labels = correct_by_truth(Labels.load(found), identities, settings.mistakes)
    before: Results = read_json(found / "metrics.json", Results)
    _write(
        context.folder, labels, before.labels.threshold_kind, before.labels.threshold or 0.0, before.tuning
    )


def correct_by_truth(labels: Labels, identities: npt.ArrayLike, mistakes: Mistakes) -> Labels:
    """Return the labels without splits, without mixtures, or without either; it looks at the truth.

    Discarded images stay discarded. The images of a group whose identities are unknown stay together.

    Args:
        labels: as found.
        identities: the truth; negative = unknown.
        mistakes: what is corrected. `splits`: groups with the same majority identity become one, their other
            images included. `mixtures`: every group is divided by identity, and single images are discarded.
            `all`: both, so that every image with a label has its own identity.
    """
    truth = np.asarray(identities, dtype=np.int64)
    if truth.shape != (labels.n_images,):
        raise InputError(
            f"correct_by_truth: {truth.size:,} identities for {labels.n_images:,} labels.",
            code="truth-identities-differ",
            expected=labels.n_images,
            found=truth.size,
        )
    if not (truth >= 0).any():
        raise InputError(
            "correct_by_truth: no true identity of an unlabeled image is known; leave the oracle correction "
            "out.",
            code="truth-unknown",
        )
    labeled = np.flatnonzero(labels.labels >= 0)
    known = np.maximum(truth[labeled], -1)
    group = labels.labels[labeled].astype(np.int64)
    if mistakes in ("mixtures", "all"):
        group = np.unique(np.stack([group, known], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    if mistakes in ("splits", "all"):
        n_groups = int(group.max(initial=-1)) + 1
        majority = majorities(group, known, n_groups)
        # A group of unknown images only has a number of its own.
        alone = known.max(initial=-1) + 1 + np.arange(n_groups)
        group = np.unique(np.where(majority < 0, alone, majority)[group], return_inverse=True)[1]
    single = labeled[np.bincount(group)[group] < 2]
    corrected = np.full(labels.n_images, -1, np.int64)
    corrected[labeled] = group
    corrected[single] = -1
    status, confidence = labels.status.copy(), labels.confidence.copy()
    status[single], confidence[single] = Status.ISOLATED, 0
    return Labels(number_by_first_appearance(corrected), status, confidence)


@dataclass(frozen=True)
class PairRecallSettings:
    """Labels at the threshold where a share of the true candidate pairs is accepted."""

    label: LabelSettings
    pair_recall: float


def at_pair_recall(pair_recall: float) -> Labeler:
    """Label at the threshold that accepts this share of genuine candidates, to compare committees.

    As in the paper: "we adjust pair similarity threshold to obtain fixed recall". It looks at the truth, so
    it is a way to measure and not to label.
    """

    def make(settings: LabelSettings, needs: tuple[str, ...]) -> list[Stage]:
        own = PairRecallSettings(settings, pair_recall)
        return [replace(label_stage(settings, needs)[0], body=label_at_recall, settings=own)]

    return make


@version(1)
def label_at_recall(settings: PairRecallSettings, context: Context) -> None:
    """Accept everything, find the threshold, label at it."""
    consensus = settings.label.consensus
    views = read_part(settings.label, context.folder, "unlabeled")
    everything = label(
        views,
        replace(consensus, train_on="labeled", threshold=-1.0),
        seed=settings.label.seed,
        runtime=stage_runtime(context),
    )
    candidates = candidate_pairs(next(iter(everything.graphs.values())))
    counted = _identities_to_count(context.folder)
    threshold = threshold_at_recall(everything.accepted, candidates, counted, settings.pair_recall)
    tuned = replace(consensus, threshold=max(-1.0, threshold))
    label_images(replace(settings.label, consensus=tuned), context)


def threshold_at_recall(
    scored: ConsensusGraph, candidates: Pairs, identities: LongArray, pair_recall: float
) -> float:
    """Find the threshold that accepts this share of genuine candidates; the lowest if too few are scored."""

    def is_true(ids: IntArray) -> BoolArray:
        first, second = identities[ids[:, 0]], identities[ids[:, 1]]
        same: BoolArray = (first == second) & (first >= 0)
        return same

    n_true = int(is_true(candidates.ids).sum())
    if not n_true:
        raise InputError(
            "A threshold at a fixed pair recall needs the true identities of unlabeled images, and no "
            "candidate pair is known to be true.",
            code="pair-recall-without-truth",
        )
    doubt = np.sort(scored.doubt[is_true(scored.ids)].astype(np.float64))
    n_wanted = min(round(pair_recall * n_true), len(doubt))
    if n_wanted == len(doubt):
        # More than the rounding of 1 - doubt, or a pair without any doubt would be left out.
        return 1 - (float(scored.doubt.max(initial=0.0)) + 1e-6)
    # Between the last pair that is in and the first that is out.
    last = doubt[n_wanted - 1] if n_wanted else 0.0
    return 1 - float(last + doubt[n_wanted]) / 2

"""Figures of a labeling: what can be said without the truth, and with it."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.evaluate.agreement import agreement, count_same_edges, count_same_pairs
from cdp.evaluate.importance import permutation_importance
from cdp.evaluate.label_figures import count_pairs, measure_labels, score_pairs
from cdp.labeling.labeling import Labeling, whole_graphs
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import extract_features, prepare_features
from cdp.types import Labels, Status, Views
from cdp.types.arrays import AnyArray, LongArray
from cdp.types.opinions import block_columns
from cdp.types.run_record import (
    Agreement,
    Committee,
    LabelFigures,
    MediatorFigures,
    Member,
    PairScores,
    Results,
)

_MOST_SCORED = 20_000


def measure_labeling(
    labeling: Labeling,
    views: Views,
    *,
    names: list[str] | None = None,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> Results:
    """Compute all figures of labels, mediator and graphs; those that need the truth are None without it.

    Images whose identities were used to choose the threshold or to train the mediator are left out: what was
    learned from would flatter the result.

    Args:
        labeling: what `label` gave.
        views: of the images that were labeled, with their true identities where known.
        names: of the models, base first; those of the views unless given.
        seed: of the sample of pairs that the importance of inputs is measured on.
        runtime: how it runs.
    """
    counted = _identities_to_count(labeling, views)
    graphs = whole_graphs(labeling.graphs)
    identities = np.full(views.n_images, -1, np.int64) if views.identities is None else views.identities
    shown = list(views.names) if names is None else names
    edges = count_same_edges(graphs, identities, runtime).tolist()
    return Results(
        labels=measure_label_figures(
            labeling.labels,
            counted,
            labeling.settings.threshold_kind,
            labeling.threshold,
            pairs=_pairs(labeling, counted, runtime),
        ),
        tuning=labeling.tuning,
        expected=labeling.expected,
        unsupervised=labeling.estimate,
        calibration=labeling.calibration,
        mediator=_mediator(labeling, views, identities, seed, runtime),
        committee=Committee(
            members=[
                Member(
                    name=name,
                    role="member" if at else "base",
                    edge_precision=n_same / n_known if n_known else None,
                    graph_recall=graph.recall,
                    same_identity_recall=labeling.same_identity_recall.get(model),
                )
                for at, (name, model, graph, (n_known, n_same)) in enumerate(
                    zip(shown, labeling.graphs, graphs, edges, strict=True)
                )
            ],
            agreement=Agreement(names=shown, matrix=agreement(graphs, runtime, views.n_images).tolist()),
        ),
    )


def measure_label_figures(
    labels: Labels, counted: LongArray, kind: str, threshold: float, pairs: PairScores | None = None
) -> LabelFigures:
    """Figures of labels alone; `counted` are the true identities that count, -1 elsewhere."""
    kept = labels.labels[labels.labels >= 0]
    return LabelFigures(
        threshold_kind=kind,
        threshold=threshold,
        coverage=len(kept) / len(labels),
        identities_found=labels.n_identities,
        statuses={kind.name.lower(): int((labels.status == kind).sum()) for kind in Status},
        sizes=_sizes(kept),
        true=replace(measure_labels(labels, counted), pairs=pairs) if (counted >= 0).any() else None,
    )


def _identities_to_count(labeling: Labeling, views: Views) -> LongArray:
    if views.identities is None:
        return np.full(views.n_images, -1, np.int64)
    counted: LongArray = np.where(labeling.validation, -1, views.identities)
    return counted


def _pairs(labeling: Labeling, counted: LongArray, runtime: Runtime | None) -> PairScores | None:
    if not (counted >= 0).any():
        return None
    (graph,) = whole_graphs(labeling.candidate_lists)
    candidates = count_same_pairs(graph, counted, runtime)
    return score_pairs(count_pairs(labeling.accepted.ids, counted), candidates)


def _sizes(numbers: AnyArray) -> list[int]:
    """Return how many carry each number, largest first."""
    sizes: list[int] = np.sort(np.unique(numbers, return_counts=True)[1])[::-1].tolist()
    return sizes


def _mediator(
    labeling: Labeling, views: Views, identities: LongArray, seed: int, runtime: Runtime | None
) -> MediatorFigures | None:
    mediator = labeling.mediator
    if mediator is None:
        return None
    graphs = list(labeling.graphs.values())
    ids = candidate_pairs(graphs[0], runtime).ids
    blocks = spans(len(ids), PAIRS_PER_BLOCK)
    known = [start + np.flatnonzero((identities[ids[start:stop]] >= 0).all(axis=1)) for start, stop in blocks]
    rows = np.concatenate([np.empty(0, np.int64), *known])
    n_same = sum(int((identities[ids[part, 0]] == identities[ids[part, 1]]).sum()) for part in known)
    del known
    importance = []
    if 0 < n_same < len(rows):
        if len(rows) > _MOST_SCORED:
            drawn = np.random.default_rng([seed, 4]).choice(len(rows), _MOST_SCORED, replace=False)
            rows = rows[np.sort(drawn)]
        pairs = ids[rows]
        same = identities[pairs[:, 0]] == identities[pairs[:, 1]]
        matrix = extract_features(prepare_features(views, graphs, mediator.inputs), pairs).matrix(
            mediator.inputs
        )
        importance = permutation_importance(mediator, matrix, same, seed=seed)
    return MediatorFigures(
        columns=mediator.columns,
        blocks=block_columns(mediator.committee, mediator.inputs),
        # As a mediator from a file has them, so that figures are the same bytes.
        training_pairs={name: float(value) for name, value in mediator.training.items()},
        importance=importance,
    )

"""Label quality on real faces: LFW embeddings by three networks, 30 % of the identities labeled, several seeds.

Needs the embeddings of docs/data.md in `data/lfw` or $CDP_DATA/lfw; without them, this says so and measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.data import data_folder
from cdp import CDP, Labels, Views, Vote, knn_graph, measure_labels, propagate
from cdp.types import ALL_INPUTS, PAPER_INPUTS


def split_faces(seed: int = 0) -> tuple[Views, Views]:
    """The labeled and the unlabeled part: identity numbers shuffled with a seed, the first 30 % labeled."""
    folder = data_folder("lfw")
    if folder is None:
        raise SystemExit("data/lfw is not there; docs/data.md says how to make it.")
    identities = np.load(folder / "identities.npy")
    numbers = np.unique(identities)
    np.random.default_rng(seed).shuffle(numbers)
    labeled = np.isin(identities, numbers[: int(0.3 * len(numbers))])
    committee = {name: np.load(folder / f"{name}.npy") for name in ("sface", "openface")}
    views = Views(np.load(folder / "mobilefacenet.npy"), committee, identities)
    return views.take(labeled), views.take(~labeled)


def measure(*, quick: bool) -> dict[str, Any]:
    if data_folder("lfw") is None:
        print("skipped: data/lfw is not there; docs/data.md says how to make it")
        return {"skipped": True}
    labeled, unlabeled = split_faces()
    graphs = [[knn_graph(view, 20) for view in part] for part in (labeled, unlabeled)]
    seeds = range(2 if quick else 10)

    def learned(**settings: Any) -> list[Labels]:
        models = (CDP(seed=seed, **settings).fit(labeled, graphs=graphs[0]) for seed in seeds)
        return [model.predict(unlabeled, graphs[1]) for model in models]

    def voted(make: Callable[[float], Vote]) -> list[Labels]:
        tries = [CDP(mediator=make(t)).predict(unlabeled, graphs[1]) for t in np.arange(0.3, 0.66, 0.02)]
        return [max(tries, key=lambda labels: pairwise_f(labels, unlabeled))]

    ways = {
        "base model alone, best possible threshold": voted(lambda t: Vote(quorum=0, threshold=t)),
        "unanimous vote, best possible threshold": voted(lambda t: Vote(threshold=t)),
        "mediator, the paper's inputs": learned(),
        "mediator, with common neighbors": learned(inputs=ALL_INPUTS),
        "paper's inputs, grouped by the mean": learned(grouping="average"),
        "common neighbors, grouped by the mean": learned(inputs=ALL_INPUTS, grouping="average"),
    }
    figures: dict[str, Any] = {"seeds": len(seeds)}
    for name, runs in ways.items():
        figures[name] = summary = summarise(runs, unlabeled)
        print(
            f"{name:42s} F {summary['f'][0]:.3f} ± {summary['f'][1]:.3f}  precision {summary['precision'][0]:.3f}  "
            f"recall {summary['recall'][0]:.3f}  BCubed F {summary['bcubed_f'][0]:.3f}  "
            f"coverage {summary['coverage'][0]:.3f}  identities {summary['identities'][0]:.0f}"
        )
    figures["groupings and crowd"] = groupings_and_crowd(1 if quick else 3)
    figures["other splits"] = other_splits(1 if quick else 5)
    figures["which labels are wrong, paper's inputs"] = confidence_figures(
        labeled, unlabeled, graphs, PAPER_INPUTS
    )
    figures["which labels are wrong, common neighbors"] = confidence_figures(
        labeled, unlabeled, graphs, ALL_INPUTS
    )
    return figures


def other_splits(n_splits: int) -> dict[str, list[float]]:
    """F on splits 1, 2, … with the default seed: split 0 was looked at while the mediator's rules were chosen."""
    found: dict[str, list[float]] = {"paper's inputs": [], "common neighbors": []}
    for seed in range(1, n_splits + 1):
        labeled, unlabeled = split_faces(seed)
        graphs = [[knn_graph(view, 20) for view in part] for part in (labeled, unlabeled)]
        for name, inputs in zip(found, (PAPER_INPUTS, ALL_INPUTS), strict=True):
            labels = CDP(inputs=inputs).fit(labeled, graphs=graphs[0]).predict(unlabeled, graphs[1])
            found[name].append(pairwise_f(labels, unlabeled))
    for name, values in found.items():
        shown = ", ".join(f"{value:.3f}" for value in values)
        print(f"other splits, {name}: F {np.mean(values):.3f} ± {np.std(values):.3f} ({shown})")
    return found


def groupings_and_crowd(n_splits: int) -> dict[str, list[float]]:
    """F on splits 0, 1, … of both groupings, learned from the labeled part alone and in the company of the others."""
    found: dict[str, list[float]] = {}
    for seed in range(n_splits):
        labeled, unlabeled = split_faces(seed)
        crowd = join_crowd(labeled, unlabeled)
        graphs = [[knn_graph(view, 20) for view in part] for part in (labeled, crowd, unlabeled)]
        for inputs in (PAPER_INPUTS, ALL_INPUTS):
            for where, part, held in (("alone", labeled, graphs[0]), ("in the crowd", crowd, graphs[1])):
                learned = CDP(inputs=inputs).fit(part, graphs=held, crowd=True).mediator_
                for grouping in ("components", "average"):
                    labels = CDP(mediator=learned, grouping=grouping).predict(unlabeled, graphs[2])
                    name = f"{inputs[-1]}, {where}, {grouping}"
                    found.setdefault(name, []).append(pairwise_f(labels, unlabeled))
    for name, values in found.items():
        print(f"{name}: F {', '.join(f'{value:.3f}' for value in values)}")
    return found


def join_crowd(labeled: Views, unlabeled: Views) -> Views:
    """Both parts as one; the identities of the unlabeled one are hidden."""
    return Views.concatenate([labeled, Views(unlabeled.base, unlabeled.committee)])


def pairwise_f(labels: Labels, views: Views) -> float:
    """Discards kept as groups of one."""
    assert views.identities is not None
    return measure_labels(labels, views.identities).discards_kept.pairwise.f or 0.0


def confidence_figures(labeled: Views, unlabeled: Views, graphs: Any, inputs: Any) -> dict[str, float]:
    """Area under the ROC curve for "belongs to its group's majority identity": our confidence, and the obvious one."""
    from sklearn.metrics import roc_auc_score

    model = CDP(inputs=inputs).fit(labeled, graphs=graphs[0])
    graph = model.consensus(unlabeled, graphs[1])
    labels = propagate(graph)
    truth = unlabeled.identities
    assert truth is not None
    right = np.zeros(len(labels), bool)
    for group in range(labels.n_identities):
        rows = np.flatnonzero(labels.labels == group)
        right[rows] = truth[rows] == np.bincount(truth[rows]).argmax()
    ends = graph.ids.ravel()
    sums = np.bincount(ends, np.repeat(graph.probability, 2), minlength=len(labels))
    mean = sums / np.maximum(np.bincount(ends, minlength=len(labels)), 1)
    kept = labels.labels >= 0
    figures = {
        "labeled": int(kept.sum()),
        "wrong": int((~right[kept]).sum()),
        "confidence": float(roc_auc_score(right[kept], labels.confidence[kept])),
        "mean probability": float(roc_auc_score(right[kept], mean[kept])),
    }
    print(
        f"{figures['wrong']} of {figures['labeled']:,} labels wrong; ROC area of confidence {figures['confidence']:.3f}, "
        f"of the mean probability {figures['mean probability']:.3f}"
    )
    return figures


def summarise(runs: list[Labels], views: Views) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over the runs."""
    assert views.identities is not None
    rows = []
    for labels in runs:
        figures = measure_labels(labels, views.identities)
        kept = figures.discards_kept
        rows.append(
            {
                "f": kept.pairwise.f,
                "precision": kept.pairwise.precision,
                "recall": kept.pairwise.recall,
                "bcubed_f": kept.bcubed.f,
                "nmi": kept.nmi,
                "coverage": figures.coverage,
                "identities": figures.identities_found,
            }
        )
    return {
        name: (float(np.mean([row[name] for row in rows])), float(np.std([row[name] for row in rows])))
        for name in rows[0]
    }

"""Label quality on real faces: LFW embeddings by three networks, 30 % of the identities labeled, several seeds.

Needs the embeddings of docs/data.md in `data/lfw` or $CDP_DATA/lfw; without them, this says so and measures nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from benchmarks.data import data_folder
from cdp import CDP, Labels, Views, knn_graph, measure_labels
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
        models = (CDP("paper", seed=seed, **settings).fit(labeled, graphs=graphs[0]) for seed in seeds)
        return [labels_of(model, unlabeled, graphs[1]) for model in models]

    def voted(min_votes: int | Literal["all"]) -> list[Labels]:
        votes = (
            CDP("paper", mediator="vote", min_votes=min_votes, threshold=threshold).fit(labeled)
            for threshold in np.arange(0.3, 0.66, 0.02).tolist()
        )
        tries = [labels_of(model, unlabeled, graphs[1]) for model in votes]
        return [max(tries, key=lambda labels: pairwise_f(labels, unlabeled))]

    ways = {
        "base model alone, best possible threshold": voted(0),
        "unanimous vote, best possible threshold": voted("all"),
        "mediator, the paper's inputs": learned(),
        "mediator, with common neighbors": learned(inputs=ALL_INPUTS),
        "paper's inputs, grouped by the mean": learned(grouping="average"),
        "common neighbors, grouped by the mean": learned(inputs=ALL_INPUTS, grouping="average"),
        "preset best": [labels_of(CDP(seed=seed).fit(labeled), unlabeled) for seed in seeds],
    }
    figures: dict[str, Any] = {"seeds": len(seeds)}
    for name, runs in ways.items():
        figures[name] = summary = summarize(runs, unlabeled)
        print(
            f"{name:42s} F {summary['f'][0]:.3f} ± {summary['f'][1]:.3f}  precision {summary['precision'][0]:.3f}  "
            f"recall {summary['recall'][0]:.3f}  BCubed F {summary['bcubed_f'][0]:.3f}  "
            f"coverage {summary['coverage'][0]:.3f}  identities {summary['identities'][0]:.0f}"
        )
    figures["other splits"] = other_splits(1 if quick else 5)
    for name, inputs in (("paper's inputs", PAPER_INPUTS), ("common neighbors", ALL_INPUTS)):
        figures[f"which labels are wrong, {name}"] = confidence_figures(labeled, unlabeled, graphs, inputs)
    return figures


def other_splits(n_splits: int) -> dict[str, list[float]]:
    """F on splits 1, 2, … with the default seed: split 0 was looked at while the mediator's rules were chosen."""
    ways = {
        f"{name}, {grouping}": {"inputs": inputs, "grouping": grouping}
        for name, inputs in (("paper's inputs", PAPER_INPUTS), ("common neighbors", ALL_INPUTS))
        for grouping in ("components", "average")
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for seed in range(1, n_splits + 1):
        labeled, unlabeled = split_faces(seed)
        graphs = [[knn_graph(view, 20) for view in part] for part in (labeled, unlabeled)]
        for name, settings in ways.items():
            model = CDP("paper", **settings).fit(labeled, graphs=graphs[0])
            found[name].append(pairwise_f(labels_of(model, unlabeled, graphs[1]), unlabeled))
    for name, values in found.items():
        shown = ", ".join(f"{value:.3f}" for value in values)
        print(f"other splits, {name}: F {np.mean(values):.3f} ± {np.std(values):.3f} ({shown})")
    return found


def labels_of(model: CDP, views: Views, graphs: Any = None) -> Labels:
    """What a fitted model finds."""
    model.predict(views, graphs=graphs)
    return model.labeling_.labels


def pairwise_f(labels: Labels, views: Views) -> float:
    """Discards kept as groups of one."""
    assert views.identities is not None
    return measure_labels(labels, views.identities).discards_kept.pairwise.f or 0.0


def confidence_figures(labeled: Views, unlabeled: Views, graphs: Any, inputs: Any) -> dict[str, float]:
    """Area under the ROC curve for "belongs to its group's majority identity": our confidence, and the obvious one."""
    from sklearn.metrics import roc_auc_score

    model = CDP("paper", inputs=inputs).fit(labeled, graphs=graphs[0])
    labels = labels_of(model, unlabeled, graphs[1])
    accepted = model.labeling_.accepted
    truth = unlabeled.identities
    assert truth is not None
    right = np.zeros(len(labels), bool)
    for group in range(labels.n_identities):
        rows = np.flatnonzero(labels.labels == group)
        right[rows] = truth[rows] == np.bincount(truth[rows]).argmax()
    ends = accepted.ids.ravel()
    sums = np.bincount(ends, np.repeat(accepted.probability, 2), minlength=len(labels))
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


def summarize(runs: list[Labels], views: Views) -> dict[str, tuple[float, float]]:
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

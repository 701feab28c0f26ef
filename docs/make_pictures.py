"""The pictures of the docs, from made-up embeddings and drawn faces: `make docs-pictures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from cdp import (
    CDP,
    ConsensusGraph,
    candidate_pairs,
    collect_opinions,
    knn_graph,
    measure_labels,
    measure_pairs,
    propagate,
)
from cdp.lab.drawn_faces import FaceSettings
from cdp.lab.drawn_faces.sheet import draw_sheet
from cdp.lab.synthetic import synthetic_views
from cdp.types import ALL_INPUTS

HERE = Path(__file__).parent / "pictures"
SAME, OTHER, GRAY = "#1b7f5c", "#c8553d", "#7a7a7a"
plt.rcParams.update(
    {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "cdp",
        "figure.dpi": 110,
    }
)


def keep(figure: plt.Figure, name: str) -> None:
    figure.savefig(HERE / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    print(f"docs/pictures/{name}.svg")


def draw_pipeline() -> None:
    """The method as one pipeline."""
    figure, axes = plt.subplots(figsize=(10, 3.1))
    axes.set(xlim=(0, 100), ylim=(0, 31))
    axes.axis("off")

    def box(left: float, bottom: float, width: float, height: float, text: str, color: str) -> None:
        axes.add_patch(
            FancyBboxPatch(
                (left, bottom), width, height, boxstyle="round,pad=0.4", fc=color, ec="#444444", lw=1
            )
        )
        axes.text(left + width / 2, bottom + height / 2, text, ha="center", va="center", fontsize=9)

    def arrow(start: tuple[float, float], stop: tuple[float, float]) -> None:
        axes.add_patch(
            FancyArrowPatch(start, stop, arrowstyle="-|>", mutation_scale=12, color="#444444", lw=1)
        )

    box(1, 22, 15, 6, "base model", "#d9e8f5")
    box(1, 12.5, 15, 6, "committee 1 … N", "#e4eef7")
    box(22, 22, 13, 6, "its k-NN graph", "#d9e8f5")
    box(22, 12.5, 13, 6, "N k-NN graphs", "#e4eef7")
    box(41, 22, 14, 6, "candidate pairs", "#fbf0d3")
    box(41, 12.5, 14, 6, "opinions\n6N + 5 numbers", "#fbf0d3")
    box(61, 12.5, 13, 6, "mediator\ndoubt per pair", "#f6dccb")
    box(80, 12.5, 18, 6, "consensus graph\npairs with p > 0.96", "#dcefe5")
    box(79, 1.5, 20, 6, "propagation\nlabel, fate, confidence", "#dcefe5")
    box(39, 1.5, 35.5, 6, "labeled part: its pairs, known identities\n(the mediator learns here)", "#eeeeee")
    for start, stop in [
        ((16.6, 25), (21.4, 25)), ((16.6, 15.5), (21.4, 15.5)), ((35.6, 25), (40.4, 25)), ((35.6, 15.5), (40.4, 15.5)),
        ((48, 21.4), (48, 19.2)), ((55.6, 15.5), (60.4, 15.5)), ((74.6, 15.5), (79.4, 15.5)), ((89, 11.9), (89, 8.2)),
        ((67.5, 8.2), (67.5, 11.9)),
    ]:  # fmt: skip
        arrow(start, stop)
    keep(figure, "pipeline")


def draw_opinions(split, model, graphs, pairs, same) -> None:
    """One number is not enough; the mediator's answer is."""
    opinions = collect_opinions(pairs, split.unlabeled, graphs, ALL_INPUTS)
    doubt = model.mediator_.doubt(opinions.matrix(ALL_INPUTS))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2))
    for rows, color, name in ((same, SAME, "one identity"), (~same, OTHER, "two identities")):
        left.hist(opinions.affinity[rows, 0], 60, color=color, alpha=0.6, label=name)
        logit = np.log10(np.maximum(doubt[rows], 1e-7))
        right.hist(logit, np.linspace(-7, 0, 60), color=color, alpha=0.6, label=name)
    left.set(xlabel="similarity in the base model", ylabel="candidate pairs", title="What one model says")
    right.set(xlabel="doubt of the mediator (log scale)", title="What the mediator says", yscale="log")
    right.set_xticks(range(-7, 1), [f"$10^{{{power}}}$" for power in range(-7, 1)])
    right.axvline(np.log10(0.04), color="black", lw=1, ls="--")
    right.text(np.log10(0.04) - 0.1, right.get_ylim()[1] * 0.6, "accepted", ha="right", fontsize=9)
    left.legend(frameon=False)
    keep(figure, "opinions")


def draw_propagation() -> None:
    """A group that is too large loses its most doubtful pairs, and its parts are searched again."""
    generator = np.random.default_rng(4)
    centers = np.array([[0, 0], [3.2, 0.6], [1.6, 2.6]])
    position = np.concatenate([center + 0.55 * generator.normal(size=(9, 2)) for center in centers])
    group = np.repeat([0, 1, 2], 9)
    ends, doubts = [], []
    for first in range(27):
        near = [other for other in range(27) if other != first and group[other] == group[first]]
        for second in sorted(near, key=lambda other: np.sum((position[other] - position[first]) ** 2))[:3]:
            ends.append(sorted((first, second)))
            doubts.append(generator.uniform(0.0005, 0.012))
    for first, second in ((4, 10), (2, 22), (13, 25)):
        ends.append([first, second])
        doubts.append(generator.uniform(0.03, 0.039))
    pairs, rows = np.unique(np.array(ends), axis=0, return_index=True)
    graph = ConsensusGraph(pairs, np.array(doubts)[rows], 27)
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.6))
    for panel, size, title in zip(
        panels,
        (600, 12),
        ("accepted pairs: one component", "maximum 12: split where doubt is largest"),
        strict=True,
    ):
        labels = propagate(graph, max_size=size).labels
        for (first, second), doubt in zip(graph.ids, graph.doubt, strict=True):
            inside = labels[first] == labels[second] and labels[first] >= 0
            panel.plot(
                *position[[first, second]].T,
                color=GRAY if inside else OTHER,
                lw=1 + 2 * (doubt > 0.02),
                ls="-" if inside else ":",
                zorder=1,
            )
        shown = np.array(["#2a6fb0", "#d49a1f", "#1b7f5c", "#8d5aa5"])[np.maximum(labels, 0) % 4]
        shown[labels < 0] = "white"
        panel.scatter(*position.T, c=shown, edgecolors="#333333", s=60, zorder=2)
        panel.set_title(title)
        panel.axis("off")
    keep(figure, "propagation")


def draw_thresholds(split, model, graphs, pairs) -> None:
    """What the threshold trades."""
    thresholds = 1 - np.logspace(np.log10(0.5), -4, 16)
    rows = []
    for threshold in thresholds:
        labels = model.set_params(threshold=float(threshold)).predict(split.unlabeled, graphs=graphs)
        figures = measure_labels(labels, split.unlabeled.identities)
        pair = measure_pairs(model.labeling_.accepted, pairs, split.unlabeled.identities)
        kept = figures.discards_kept.pairwise
        rows.append((kept.precision, kept.recall, kept.f, figures.coverage, pair.precision))
    model.set_params(threshold=None)
    figure, axes = plt.subplots(figsize=(6.2, 3.4))
    names = (
        "pairwise precision",
        "pairwise recall",
        "pairwise F",
        "share of images labeled",
        "pair precision",
    )
    for values, name, color in zip(
        np.array(rows).T, names, (SAME, OTHER, "black", "#2a6fb0", GRAY), strict=True
    ):
        axes.plot(1 - thresholds, values, "o-", ms=3, color=color, label=name)
    axes.axvline(0.04, color="black", lw=1, ls="--")
    axes.set(xscale="log", xlabel="1 - threshold (the paper: 0.04)", ylim=(0, 1.03))
    axes.invert_xaxis()
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    keep(figure, "thresholds")


def draw_confidence(split, graphs) -> None:
    """Labels with a low confidence are wrong more often."""
    labels = CDP("paper").fit(split.labeled).predict(split.unlabeled, graphs=graphs)
    truth = split.unlabeled.identities
    right = np.zeros(len(labels), bool)
    for group in range(labels.n_identities):
        rows = np.flatnonzero(labels.labels == group)
        right[rows] = truth[rows] == np.bincount(truth[rows]).argmax()
    kept = labels.labels >= 0
    edges = np.linspace(0, 1, 11)
    bins = np.clip(np.digitize(labels.confidence[kept], edges) - 1, 0, 9)
    wrong = [np.mean(~right[kept][bins == bin_]) if (bins == bin_).any() else np.nan for bin_ in range(10)]
    figure, axes = plt.subplots(figsize=(6.2, 2.9))
    axes.bar(edges[:-1] + 0.05, wrong, 0.09, color=OTHER)
    for bin_ in range(10):
        if (bins == bin_).any():
            axes.text(
                edges[bin_] + 0.05, wrong[bin_] + 0.01, f"{(bins == bin_).sum():,}", ha="center", fontsize=7
            )
    axes.set(xlabel="confidence", ylabel="share with another identity\nthan their group's", xlim=(0, 1))
    keep(figure, "confidence")


def draw_drawn_faces() -> None:
    """A sheet of drawn faces; 256 colors keep the file small."""
    sheet = draw_sheet(FaceSettings(identities=300, images=16, size=48), n_people=11, n_pictures=14)
    sheet.quantize(256).save(HERE / "drawn-faces.png", optimize=True)
    print("docs/pictures/drawn-faces.png")


def main() -> None:
    HERE.mkdir(exist_ok=True)
    draw_drawn_faces()
    draw_pipeline()
    draw_propagation()
    split = synthetic_views(600, seed=1)
    graphs = [knn_graph(view, 20) for view in split.unlabeled]
    pairs = candidate_pairs(graphs[0])
    identities = split.unlabeled.identities
    same = identities[pairs.ids[:, 0]] == identities[pairs.ids[:, 1]]
    model = CDP("paper", inputs=ALL_INPUTS).fit(split.labeled)
    draw_opinions(split, model, graphs, pairs, same)
    draw_thresholds(split, model, graphs, pairs)
    draw_confidence(split, graphs)


if __name__ == "__main__":
    main()

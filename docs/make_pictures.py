"""The pictures of the docs, from made-up embeddings and drawn faces: `make docs-pictures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from cdp import CDP, ConsensusGraph, Views, knn_graph, measure_labels, propagate
from cdp.evaluate.label_figures import measure_pairs
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import collect_opinions
from cdp.types import ALL_INPUTS
from cdp_lab.drawn_faces import FaceSettings
from cdp_lab.drawn_faces.sheet import draw_sheet
from cdp_lab.synthetic import synthetic_views

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
    """From images to labels and a better network."""
    figure, axes = plt.subplots(figsize=(10.4, 3.4))
    axes.set(xlim=(0, 104), ylim=(0, 34))
    axes.axis("off")

    def box(left: float, bottom: float, width: float, text: str, color: str) -> None:
        shape = FancyBboxPatch(
            (left, bottom), width, 6, boxstyle="round,pad=0.4", fc=color, ec="#444444", lw=1
        )
        axes.add_patch(shape)
        axes.text(left + width / 2, bottom + 3, text, ha="center", va="center", fontsize=9)

    def arrow(start: tuple[float, float], stop: tuple[float, float]) -> None:
        axes.add_patch(
            FancyArrowPatch(start, stop, arrowstyle="-|>", mutation_scale=12, color="#444444", lw=1)
        )

    box(1, 20, 13, "unlabeled\nimages", "#eeeeee")
    box(1, 3, 13, "labeled\nimages", "#eeeeee")
    box(20, 25, 17, "base model", "#d9e8f5")
    box(20, 15, 17, "committee 1 … N", "#e4eef7")
    box(43, 25, 15, "its k-NN graph", "#d9e8f5")
    box(43, 15, 15, "N k-NN graphs", "#e4eef7")
    box(64, 25, 15, "candidate pairs", "#fbf0d3")
    box(64, 15, 15, "opinions\nabout each pair", "#fbf0d3")
    box(85, 15, 17, "mediator\nprobability per pair", "#f6dccb")
    box(85, 3, 17, "groups\nlabel, confidence", "#dcefe5")
    box(43, 3, 36, "base network, trained again on both", "#d9e8f5")
    for start, stop in [
        ((14.6, 24), (19.4, 27)), ((14.6, 22), (19.4, 19)), ((37.6, 28), (42.4, 28)), ((37.6, 18), (42.4, 18)),
        ((58.6, 28), (63.4, 28)), ((58.6, 18), (63.4, 18)), ((71.5, 24.4), (71.5, 21.8)), ((79.6, 18), (84.4, 18)),
        ((93.5, 14.4), (93.5, 9.8)), ((84.4, 6), (79.8, 6)), ((14.6, 6), (42.4, 6)),
    ]:  # fmt: skip
        arrow(start, stop)
    axes.plot([7.5, 7.5, 91, 91], [9.6, 12, 12, 12.4], color="#444444", lw=1, ls="--")
    arrow((91, 12), (91, 14.4))
    axes.text(
        16,
        12.6,
        "labeled identities train the mediator and choose the threshold",
        fontsize=8,
        color="#555555",
    )
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
        labels = propagate(graph, max_cluster_size=size).labels
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
    unlabeled = Views(split.unlabeled.base, split.unlabeled.committee)
    for threshold in thresholds.tolist():
        tried = CDP("paper", mediator=model.mediator_, threshold=threshold).fit(unlabeled, graphs=graphs)
        figures = measure_labels(tried.labeling_.labels, split.unlabeled.identities)
        pair = measure_pairs(tried.labeling_.accepted, pairs, split.unlabeled.identities)
        kept = figures.discards_kept.pairwise
        rows.append((kept.precision, kept.recall, kept.f, figures.coverage, pair.precision))
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
    model = CDP("paper").fit(split.labeled)
    model.predict(split.unlabeled, graphs=graphs)
    labels = model.labeling_.labels
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

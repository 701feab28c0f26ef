"""A partial view of the consensus graph: a few groups with their accepted pairs, wrong ones in red."""

from __future__ import annotations

import numpy as np

from cdp.report.artifacts import Artifacts
from cdp.report.layout import place_nodes
from cdp.report.markup import Html, element, join
from cdp.report.survey import Survey
from cdp.report.svg import picture
from cdp.report.words import counted, figure, legend, paragraph, percent, section, table
from cdp.types import KnnGraph
from cdp.types.arrays import BoolArray, DoubleArray, IntArray, LongArray

MOST_NODES = 220
COLORS = 12
_TITLE = "A part of the consensus graph"


def graph_section(artifacts: Artifacts, survey: Survey | None) -> Html:
    """A few dozen groups as a graph: where labels come from, and how wrong ones come about."""
    graph = artifacts.consensus
    if survey is None or graph is None or not len(graph):
        return section("graph", _TITLE, paragraph("No pair was accepted, so there is no graph to draw."))
    groups = choose_groups(survey)
    rows = _rows(survey, groups, artifacts.base_graph)
    number = np.full(len(survey.labels), -1, np.int64)
    number[rows] = np.arange(len(rows))
    inside = (number[graph.ids[:, 0]] >= 0) & (number[graph.ids[:, 1]] >= 0)
    edges = number[graph.ids[inside]]
    doubt = graph.doubt[inside].astype(np.float64)
    wrong = _wrong_edges(survey, rows, edges)
    rejected = _rejected(artifacts, survey, rows, number)
    places = place_nodes(len(rows), np.concatenate([edges, rejected]))
    drawn = _draw(survey, rows, places, edges, doubt, wrong, rejected)
    known = survey.identities is not None
    lost = int((survey.labels[rows] < 0).sum())
    entries = [
        ("dot", "labeled image, colored by its " + ("true identity" if known else "label")),
        ("dot hollow", "discarded image"),
        ("edge", "accepted pair; the less doubt, the stronger"),
    ]
    if known:
        entries.append(("edge wrong", "accepted pair of two identities: a mistake"))
    if len(rejected):
        entries.append(
            ("edge dotted", "a discarded image and its nearest neighbors in the group it would belong to")
        )
    numbers = table(
        ["shown", "number", "in the whole graph"],
        [
            ["groups", f"{len(groups):,}", f"{len(survey.sizes):,}"],
            ["images", f"{len(rows):,}", f"{graph.n_images:,}"],
            ["discarded images", f"{lost:,}", f"{int((survey.labels < 0).sum()):,}"],
            ["accepted pairs", f"{len(edges):,}", f"{len(graph):,}"],
            *([["wrong pairs", f"{int(wrong.sum()):,}", _all_wrong(survey, graph.ids)]] if known else []),
            ["median doubt of a pair", _doubt(doubt), _doubt(graph.doubt)],
        ],
        "What is drawn, and how much of the whole it is",
    )
    reading = (
        "Every cluster is one pseudo-identity. One color per cluster is right; two colors joined by a red line are two "
        "people under one label. Colors repeat in other clusters; point at a dot to read whose it is."
        if known
        else "Every cluster is one pseudo-identity; two dense parts joined by a thin bridge may be two people."
    )
    chosen = (
        "Chosen to show mistakes: groups with wrong pairs first, so it looks worse than the whole."
        if known
        else ""
    )
    return section(
        "graph",
        _TITLE,
        paragraph(
            f"{counted(len(rows), 'image')} of {graph.n_images:,} as dots, joined where the committee and its "
            f"mediator found consensus. {chosen}".strip(),
            class_="lead",
        ),
        figure(join([drawn, legend(entries)]), reading, wide=True),
        numbers,
    )


def choose_groups(survey: Survey, most_nodes: int = MOST_NODES) -> list[int]:
    """A few impure groups, a few groups of split identities, groups that lost images, and ordinary ones to fill.

    Each kind gets a share of the room, and very large groups are left out: they would fill the picture alone.
    """
    small = survey.sizes <= max(most_nodes // 7, 3)
    if survey.identities is not None and not small.any():
        small = survey.sizes <= most_nodes
    spread = np.argsort(-survey.sizes, kind="stable")
    spread = spread[
        np.unique(np.linspace(0, len(spread) - 1, min(len(spread), 120)).round().astype(np.int64))
    ]
    kinds = [
        (0.4, np.argsort(-survey.n_wrong, kind="stable")[: int((survey.n_wrong > 0).sum())]),
        (
            0.6,
            np.array(
                [group for _, groups in survey.split_identities()[:6] for group in groups[:3]], np.int64
            ),
        ),
        (0.75, np.argsort(-survey.n_missed, kind="stable")[: int((survey.n_missed > 0).sum())]),
        (1.0, spread),
    ]
    chosen: list[int] = []
    nodes = 0
    for share, groups in kinds:
        for group in groups[:200].tolist():
            weight = int(survey.sizes[group]) + min(2, int(survey.n_missed[group]))
            if group not in chosen and small[group] and nodes + weight <= share * most_nodes:
                chosen.append(group)
                nodes += weight
    return sorted(chosen)


def _rows(survey: Survey, groups: list[int], base_graph: KnnGraph | None) -> LongArray:
    """Members of the groups, and per group two discarded images that it misses; if possible such as lie near it."""
    shown = [np.flatnonzero(np.isin(survey.labels, groups))]
    for group in groups:
        missed = survey.missed(group)
        if base_graph is not None:
            neighbors = base_graph.neighbors[missed]
            missed = missed[((neighbors >= 0) & (survey.labels[neighbors] == group)).any(axis=1)]
        shown.append(missed[:2])
    return np.unique(np.concatenate(shown).astype(np.int64))


def _wrong_edges(survey: Survey, rows: LongArray, edges: LongArray) -> BoolArray:
    if survey.identities is None:
        return np.zeros(len(edges), np.bool_)
    ends = survey.identities[rows][edges]
    wrong: BoolArray = (ends[:, 0] != ends[:, 1]) & (ends >= 0).all(axis=1)
    return wrong


def _all_wrong(survey: Survey, ids: IntArray) -> str:
    assert survey.identities is not None
    ends = survey.identities[ids]
    wrong = int(((ends[:, 0] != ends[:, 1]) & (ends >= 0).all(axis=1)).sum())
    return f"{wrong:,} ({percent(wrong / len(ids))})"


def _rejected(artifacts: Artifacts, survey: Survey, rows: LongArray, number: LongArray) -> LongArray:
    """For every discarded image shown, its two nearest neighbors in the group it would belong to."""
    graph = artifacts.base_graph
    if graph is None:
        return np.empty((0, 2), np.int64)
    lost = rows[survey.labels[rows] < 0]
    ends = [
        (number[row], number[other])
        for row in lost.tolist()
        for other in [
            near
            for near in graph.neighbors[row].tolist()
            if near >= 0 and number[near] >= 0 and survey.labels[near] == survey.home[row]
        ][:2]
    ]
    return np.array(ends, np.int64).reshape(-1, 2)


def _draw(
    survey: Survey,
    rows: LongArray,
    places: DoubleArray,
    edges: LongArray,
    doubt: DoubleArray,
    wrong: BoolArray,
    rejected: LongArray,
) -> Html:
    low, high = places.min(axis=0) - 0.6, places.max(axis=0) + 0.6
    scale = 960 / float(high[0] - low[0])
    points = (places - low) * scale
    height = float(high[1] - low[1]) * scale
    radius = float(np.clip(0.2 * scale, 3, 9))
    # Thirds by rank, because doubts next to certainty differ by powers of ten.
    third = (3 * np.argsort(np.argsort(doubt, kind="stable"), kind="stable")) // max(len(doubt), 1)
    shapes = [_line(points, one, other, "edge dotted") for one, other in rejected.tolist()]
    for at in np.lexsort((-third, wrong)).tolist():
        kind = "edge wrong" if wrong[at] else f"edge e{third[at]}"
        one, other = edges[at].tolist()
        shapes.append(_line(points, one, other, kind, f"doubt {doubt[at]:.2g}"))
    owners = survey.labels[rows] if survey.identities is None else survey.identities[rows]
    colors = color_nodes(owners, survey.labels[rows], edges)
    for at, row in enumerate(rows.tolist()):
        lost = survey.labels[row] < 0
        who = "" if survey.identities is None else f", identity {survey.identities[row]}"
        fate = "discarded" if lost else f"label {survey.labels[row]}"
        shapes.append(
            element(
                "circle",
                element("title", f"image {row}{who}, {fate}"),
                cx=float(points[at, 0]),
                cy=float(points[at, 1]),
                r=radius,
                class_="node lost" if lost else f"node c{colors[at]}",
            )
        )
    title = f"{len(rows)} images and {len(edges)} accepted pairs, {int(wrong.sum())} of them wrong"
    return picture(960, height, title, *shapes)


def _line(points: DoubleArray, one: int, other: int, kind: str, hint: str | None = None) -> Html:
    (x1, y1), (x2, y2) = points[one].tolist(), points[other].tolist()
    title = element("title", hint) if hint else None
    return element("line", title, x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def color_nodes(owners: LongArray, groups: LongArray, edges: LongArray) -> list[int]:
    """Colors 0..11, one per owner (identity or label); owners that share a group or an edge get unlike ones.

    Colors repeat elsewhere, because nobody tells forty hues apart. The largest owners choose first, and among the
    colors that are free for them take the least used.
    """
    shared: dict[int, set[int]] = {owner: set() for owner in owners.tolist()}
    for group in np.unique(groups[groups >= 0]).tolist():
        together = set(owners[groups == group].tolist())
        for owner in together:
            shared[owner] |= together
    for one, other in owners[edges].tolist():
        shared[one].add(other)
        shared[other].add(one)
    names, counts = np.unique(owners, return_counts=True)
    color: dict[int, int] = {}
    used = [0] * COLORS
    for owner in names[np.argsort(-counts, kind="stable")].tolist():
        taken = {color[other] for other in shared[owner] if other in color}
        free = [hue for hue in range(COLORS) if hue not in taken] or list(range(COLORS))
        color[owner] = min(free, key=lambda hue: (used[hue], hue))
        used[color[owner]] += 1
    return [color[owner] for owner in owners.tolist()]


def _doubt(doubt: DoubleArray) -> str:
    return f"{float(np.median(doubt)):.2g}" if len(doubt) else "—"

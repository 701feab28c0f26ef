"""A partial view of the consensus graph: a few groups with their accepted pairs, wrong ones in red."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from cdp.runtime.kernels import kernel
from cdp.types import ConsensusGraph, KnnGraph
from cdp.types.arrays import BoolArray, DoubleArray, IntArray, LongArray
from cdp.web.page_views import Chart, Html, Swatch
from cdp.web.report.report_inputs import Artifacts
from cdp.web.report.report_views import Section
from cdp.web.report.survey import Survey
from cdp.web.svg import dot, line, picture
from cdp.web.words import counted, percent

MOST_NODES = 220
COLORS = 12
_NAMES = ("graph", "Graph", "A part of the consensus graph")


@dataclass(frozen=True, eq=False)
class _Part:
    """The part of the graph that is drawn.

    Attributes:
        rows: int64 (m,), the images, ascending.
        edges: int64 (e, 2), accepted pairs as positions in `rows`.
        doubt: float64 (e,).
        wrong: bool (e,), pairs of two known identities.
        rejected: int64 (r, 2), a discarded image and a neighbor in the group it would belong to.
    """

    rows: LongArray
    edges: LongArray
    doubt: DoubleArray
    wrong: BoolArray
    rejected: LongArray


def graph_section(artifacts: Artifacts, survey: Survey | None) -> Section:
    """Return a few dozen groups as a graph: where labels come from, and how wrong ones come about."""
    graph = artifacts.consensus
    groups = [] if survey is None else choose_groups(survey)
    if survey is None or graph is None or not groups:
        why = "All groups are too large to draw"
        if survey is None or graph is None:
            why = "The accepted pairs are not available"
        elif not len(graph):
            why = "No pair was accepted"
        return Section(*_NAMES, text=f"{why}, so there is no graph.")
    part = _cut(survey, graph, groups, artifacts.base_graph)
    lead = (
        f"{counted(len(part.rows), 'image')} of {graph.n_images:,} as dots, joined where a pair was accepted."
    )
    reading = "Each cluster is one pseudo-identity"
    if survey.identities is None:
        reading += "; two dense parts joined by a thin bridge may be two people."
    else:
        lead += " Groups with wrong pairs come first, so the picture looks worse than the whole."
        reading += (
            ". One color per cluster is right; two colors joined by a red line are two people under one "
            "label. Colors repeat in other clusters; point at a dot to see its identity."
        )
    return Section(
        *_NAMES,
        lead=lead,
        wide=[Chart(_draw(survey, part, artifacts.group), reading, wide=True, legend=_legend(survey, part))],
        note=_numbers(survey, graph, part, len(groups)),
    )


def _cut(survey: Survey, graph: ConsensusGraph, groups: list[int], base_graph: KnnGraph | None) -> _Part:
    rows = _rows(survey, groups, base_graph)
    position = np.full(len(survey.labels), -1, np.int64)
    position[rows] = np.arange(len(rows))
    inside = (position[graph.ids] >= 0).all(axis=1)
    pairs, doubt = graph.ids[inside], graph.doubt[inside].astype(np.float64)
    rejected = _rejected(survey, rows, position, base_graph)
    return _Part(rows, position[pairs], doubt, _are_wrong(survey, pairs), rejected)


def _legend(survey: Survey, part: _Part) -> list[Swatch]:
    known = survey.identities is not None
    entries = [
        Swatch("dot", "labeled image, colored by its " + ("true identity" if known else "label")),
        Swatch("dot hollow", "discarded image"),
        Swatch("edge", "accepted pair; darker = less doubt"),
    ]
    if known:
        entries.append(Swatch("edge wrong", "accepted pair of two identities: a mistake"))
    if len(part.rejected):
        words = "a discarded image and its nearest neighbors in the group it would belong to"
        entries.append(Swatch("edge dotted", words))
    return entries


def _numbers(survey: Survey, graph: ConsensusGraph, part: _Part, n_groups: int) -> str:
    groups, pairs = counted(len(survey.sizes), "group"), counted(len(graph), "accepted pair")
    words = f"Shown: {n_groups:,} of {groups} and {len(part.edges):,} of {pairs}"
    if survey.identities is None:
        return f"{words}."
    wrong = int(_are_wrong(survey, graph.ids).sum())
    share = percent(wrong / len(graph))
    shown = int(part.wrong.sum())
    return f"{words}; {shown:,} of those shown and {wrong:,} of all ({share}) are of two identities."


def choose_groups(survey: Survey, most_nodes: int = MOST_NODES) -> list[int]:
    """Choose a few impure groups, groups of split identities, groups that lost images, and ordinary ones.

    Each kind gets a share of the nodes. Very large groups are left out: they would fill the picture alone.
    """
    small = survey.sizes <= max(most_nodes // 7, 3)
    if not small.any():
        small = survey.sizes <= most_nodes
    by_size = np.argsort(-survey.sizes, kind="stable")
    spread = np.linspace(0, len(by_size) - 1, min(len(by_size), 120)).round().astype(np.int64)
    split = [group for _, groups in survey.split_identities()[:6] for group in groups[:3].tolist()]
    kinds: list[tuple[float, list[int]]] = [
        (0.4, np.argsort(-survey.n_wrong, kind="stable")[: int((survey.n_wrong > 0).sum())].tolist()),
        (0.6, split),
        (0.75, np.argsort(-survey.n_missed, kind="stable")[: int((survey.n_missed > 0).sum())].tolist()),
        (1.0, by_size[spread].tolist()),
    ]
    selected: list[int] = []
    nodes = 0
    for share, groups in kinds:
        for group in groups[:200]:
            weight = int(survey.sizes[group]) + min(2, int(survey.n_missed[group]))
            if group not in selected and small[group] and nodes + weight <= share * most_nodes:
                selected.append(group)
                nodes += weight
    return sorted(selected)


def _rows(survey: Survey, groups: list[int], base_graph: KnnGraph | None) -> LongArray:
    """Members of the groups, and per group two discarded images that it misses, near ones if possible."""
    shown = [np.flatnonzero(np.isin(survey.labels, groups))]
    for group in groups:
        missed = survey.missed(group)
        if base_graph is not None:
            neighbors = base_graph.neighbors[missed]
            missed = missed[((neighbors >= 0) & (survey.labels[neighbors] == group)).any(axis=1)]
        shown.append(missed[:2])
    return np.unique(np.concatenate(shown).astype(np.int64))


def _are_wrong(survey: Survey, ids: IntArray) -> BoolArray:
    """Return which pairs are of two known identities."""
    if survey.identities is None:
        return np.zeros(len(ids), np.bool_)
    ends = survey.identities[ids]
    wrong: BoolArray = (ends[:, 0] != ends[:, 1]) & (ends >= 0).all(axis=1)
    return wrong


def _rejected(survey: Survey, rows: LongArray, position: LongArray, graph: KnnGraph | None) -> LongArray:
    """For every discarded image shown, its two nearest neighbors in the group it would belong to."""
    ends: list[tuple[int, int]] = []
    for row in rows[survey.labels[rows] < 0].tolist():
        near = np.empty(0, np.int64) if graph is None else graph.neighbors[row]
        near = near[(near >= 0) & (position[near] >= 0) & (survey.labels[near] == survey.expected[row])]
        ends += [(position[row], position[other]) for other in near[:2]]
    return np.array(ends, np.int64).reshape(-1, 2)


def _draw(survey: Survey, part: _Part, group: Callable[[int], str]) -> Html:
    rows, edges, doubt = part.rows, part.edges, part.doubt
    positions = place_nodes(len(rows), np.concatenate([edges, part.rejected]))
    low, high = positions.min(axis=0) - 0.6, positions.max(axis=0) + 0.6
    scale = 960 / float(high[0] - low[0])
    points = (positions - low) * scale
    height = float(high[1] - low[1]) * scale
    radius = float(np.clip(0.2 * scale, 3, 9))
    # Thirds by rank, because doubts next to certainty differ by powers of ten.
    third = (3 * np.argsort(np.argsort(doubt, kind="stable"), kind="stable")) // max(len(doubt), 1)
    shapes = []
    for (x1, y1), (x2, y2) in points[part.rejected].tolist():
        shapes.append(line(x1, y1, x2, y2, "edge dotted"))
    for at in np.lexsort((-third, part.wrong)).tolist():
        (x1, y1), (x2, y2) = points[edges[at]].tolist()
        kind = "edge wrong" if part.wrong[at] else f"edge e{third[at]}"
        shapes.append(line(x1, y1, x2, y2, kind, f"doubt {doubt[at]:.2g}"))
    owners = survey.labels[rows] if survey.identities is None else survey.identities[rows]
    colors = color_nodes(owners, survey.labels[rows], edges)
    for at, row in enumerate(rows.tolist()):
        discarded = survey.labels[row] < 0
        identity = "" if survey.identities is None else f", identity {survey.identities[row]}"
        hint = f"image {row}{identity}, " + ("discarded" if discarded else group(int(survey.labels[row])))
        kind = "node discarded" if discarded else f"node c{colors[at]}"
        x, y = points[at].tolist()
        shapes.append(dot(x, y, radius, kind, hint))
    images, pairs = counted(len(rows), "image"), counted(len(edges), "accepted pair")
    title = f"{images} and {pairs}, {int(part.wrong.sum())} of them wrong"
    return picture(960, height, title, *shapes)


def color_nodes(owners: LongArray, groups: LongArray, edges: LongArray) -> list[int]:
    """Colors 0..11, one per owner (identity or label); owners that share a group or an edge get unlike ones.

    Colors repeat elsewhere, because forty hues look too much alike. The largest owners choose first, and
    among the colors that are free for them take the least used.
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


_REACH = 2.5
_CLEAR = 1.3


def place_nodes(n_nodes: int, edges: LongArray, rounds: int = 250, seed: int = 0) -> DoubleArray:
    """Positions, float64 (n, 2), one unit per edge or so; the same input gives the same picture.

    Components are laid out one by one and packed from the largest, each as near to the middle as it fits. So
    nothing overlaps and nothing drifts away, which springs alone do not promise.
    """
    positions = np.zeros((n_nodes, 2))
    if not n_nodes:
        return positions
    ones = np.ones(len(edges))
    graph = coo_matrix((ones, (edges[:, 0], edges[:, 1])), (n_nodes, n_nodes))
    n_components, component = connected_components(graph, directed=False)
    order = np.argsort(-np.bincount(component, minlength=n_components), kind="stable")
    generator = np.random.default_rng(seed)
    placed = np.empty((0, 2))
    for which in order:
        rows = np.flatnonzero(component == which)
        inside = edges[component[edges[:, 0]] == which]
        own = _springs(len(rows), np.searchsorted(rows, inside), rounds, generator)
        positions[rows] = own + _free_shift(placed, own)
        placed = np.concatenate([placed, positions[rows]])
    return positions


def _springs(n_nodes: int, edges: LongArray, rounds: int, generator: np.random.Generator) -> DoubleArray:
    """Fruchterman and Reingold: near nodes repel by 1/d, edges attract by d², steps shrink; centered at 0.

    As in the grid variant of their paper, far nodes do not repel; else groups joined by one edge drift apart.
    """
    if n_nodes == 1:
        return np.zeros((1, 2))
    positions = generator.normal(size=(n_nodes, 2)) * np.sqrt(n_nodes) / 2
    _relax(positions, edges, np.linspace(0.1 * np.sqrt(n_nodes) + 0.1, 0.005, rounds))
    positions -= positions.mean(axis=0)
    # Every component gets the area it needs for its number of nodes, however tight its springs are.
    nearest = np.sqrt(((positions[:, None] - positions[None]) ** 2).sum(axis=2)) + 9 * np.eye(n_nodes)
    scaled: DoubleArray = positions * (0.62 / max(float(np.median(nearest.min(axis=1))), 1e-6))
    return scaled


@kernel
def _relax(positions: DoubleArray, edges: LongArray, steps: DoubleArray) -> None:
    """Move all nodes at once as they are pushed and pulled, again and again, each time at most so far."""
    n_nodes = len(positions)
    force = np.empty((n_nodes, 2))
    for step in steps:
        force[:] = 0.0
        for one in range(n_nodes):
            for other in range(one):
                x = positions[one, 0] - positions[other, 0]
                y = positions[one, 1] - positions[other, 1]
                length = max(np.sqrt(x * x + y * y), 0.01)
                if length < _REACH:
                    push = 1 / (length * length)
                    force[one, 0] += x * push
                    force[one, 1] += y * push
                    force[other, 0] -= x * push
                    force[other, 1] -= y * push
        for edge in range(len(edges)):
            one, other = edges[edge]
            x = positions[one, 0] - positions[other, 0]
            y = positions[one, 1] - positions[other, 1]
            pull = np.sqrt(x * x + y * y)
            force[one, 0] -= x * pull
            force[one, 1] -= y * pull
            force[other, 0] += x * pull
            force[other, 1] += y * pull
        for node in range(n_nodes):
            strength = max(np.sqrt(force[node, 0] ** 2 + force[node, 1] ** 2), 1e-9)
            share = min(strength, step) / strength
            positions[node, 0] += force[node, 0] * share
            positions[node, 1] += force[node, 1] * share


def _free_shift(placed: DoubleArray, own: DoubleArray) -> DoubleArray:
    """Return the first shift on a wide spiral that keeps a component clear of all placed nodes."""
    shift: DoubleArray = np.zeros(2)
    if not len(placed):
        return shift
    taken = KDTree(placed)
    # Many at a time, which is much faster than one by one.
    for turns in np.split(np.arange(0, 600, 0.2), 60):
        shifts = np.stack([1.7 * np.cos(turns), np.sin(turns)], axis=1) * (0.07 * turns)[:, None]
        nearest = np.min(taken.query(own + shifts[:, None])[0], axis=1)
        free = np.flatnonzero(nearest >= _CLEAR)
        shift = shifts[free[0] if len(free) else -1]
        if len(free):
            break
    return shift

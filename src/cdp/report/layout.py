"""Where the nodes of a small graph are drawn: springs within a component, components packed side by side."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from cdp.types.arrays import DoubleArray, LongArray

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

    As in the grid variant of their paper, far nodes do not repel; else two groups joined by one edge drift away from each other.
    """
    if n_nodes == 1:
        return np.zeros((1, 2))
    positions = generator.normal(size=(n_nodes, 2)) * np.sqrt(n_nodes) / 2
    for step in np.linspace(0.1 * np.sqrt(n_nodes) + 0.1, 0.005, rounds):
        between = positions[:, None] - positions[None]
        length = np.maximum(np.sqrt((between**2).sum(axis=2)), 0.01)
        near = np.where(length < _REACH, 1 / length**2, 0)
        force = (between * near[..., None]).sum(axis=1)
        along = positions[edges[:, 0]] - positions[edges[:, 1]]
        pull = along * np.sqrt((along**2).sum(axis=1, keepdims=True))
        np.subtract.at(force, edges[:, 0], pull)
        np.add.at(force, edges[:, 1], pull)
        strength = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-9)
        positions += force / strength * np.minimum(strength, step)
    positions -= positions.mean(axis=0)
    # Every component gets the area it needs for its number of nodes, however tight its springs are.
    nearest = np.sqrt(((positions[:, None] - positions[None]) ** 2).sum(axis=2)) + 9 * np.eye(n_nodes)
    scaled: DoubleArray = positions * (0.62 / max(float(np.median(nearest.min(axis=1))), 1e-6))
    return scaled


def _free_shift(placed: DoubleArray, own: DoubleArray) -> DoubleArray:
    """The first shift on a spiral that keeps a component clear of all nodes placed; wider than high, like a page."""
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

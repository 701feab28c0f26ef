"""Labeled identities among the images: which group shows which labeled identity, with a probability.

The score of a group and a labeled identity is the mean probability of the pairs between them, as for two
groups. The threshold is chosen on split halves of the labeled images: each half is looked up among the other
halves. The best score with another identity is what an unlabeled identity would get, so the threshold is the
quantile at which no more than a given share of these would be named. There may be many more unlabeled
identities, and mixed groups of them, so the threshold is raised halfway to the score at which the same share
of the labeled ones would be missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.grouping.cohesion import tie_groups
from cdp.types import ConsensusGraph, Labels
from cdp.types.arrays import DoubleArray, IntArray, LongArray

FALSE_NAMES = 0.01
FEWEST_IDENTITIES = 20
"""Labeled identities with two images or more, below which no group is named."""


@dataclass(frozen=True, eq=False)
class Lookup:
    """The labeled identity that each group shows.

    Attributes:
        person: int64 (groups,), the labeled identity; -1 = none.
        probability: float64 (groups,), that the name is right; 0 where there is none.
        threshold: groups with a score above it are named.
    """

    person: LongArray
    probability: DoubleArray
    threshold: float


def look_up_identities(
    scored: ConsensusGraph,
    labels: IntArray,
    labeled: LongArray,
    k: int,
    *,
    false_names: float = FALSE_NAMES,
    seed: int = 0,
) -> Lookup:
    """Find the labeled identity that each group shows.

    Args:
        scored: pairs of all images, labeled ones after the others, as scored.
        labels: int32 (n,), groups 0, 1, … of the images; -1 = none.
        labeled: int64 (n + labeled ones,), identities of the labeled images; -1 = unlabeled.
        k: neighbors per image.
        false_names: highest share of unlabeled identities that may get a name, measured on held-out labeled
            ones.
        seed: of the split halves.
    """
    n_groups, n_images = int(labels.max(initial=-1)) + 1, len(labels)
    nobody = Lookup(np.full(n_groups, -1, np.int64), np.zeros(n_groups), 1.0)
    people, person = np.unique(labeled[labeled >= 0], return_inverse=True)
    rows = np.flatnonzero(labeled >= 0)
    half = _halves(person, seed)
    if len(np.unique(person[half == 1])) < FEWEST_IDENTITIES or not n_groups:
        return nobody
    cell = np.full(len(labeled), -1, np.int64)
    cell[rows] = np.where(half == 1, person, len(people) + person)
    who, tie = _best(scored, cell, len(people), k)
    shown = np.unique(person[half == 1])
    right = who[shown] == shown
    other = _best(scored, cell, len(people), k, without_own=True)[1][shown]
    threshold = float(np.quantile(other, 1 - false_names, method="higher"))
    if right.any():
        lowest = float(np.quantile(tie[shown][right], false_names, method="lower"))
        threshold = max(threshold, (threshold + lowest) / 2)
    from sklearn.isotonic import IsotonicRegression

    ties = np.concatenate([tie[shown][right], other])
    truth = np.concatenate([np.ones(right.sum()), np.zeros(len(other))])
    rising = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(ties, truth)
    cell = np.full(len(labeled), -1, np.int64)
    cell[:n_images] = labels
    cell[rows] = n_groups + person
    who, tie = _best(scored, cell, n_groups, k)
    is_named = (tie > threshold) & (who >= 0)
    return Lookup(
        np.where(is_named, people[np.maximum(who, 0)], -1),
        np.where(is_named, rising.predict(tie), 0.0),
        threshold,
    )


def _halves(person: LongArray, seed: int) -> IntArray:
    """0 or 1 per labeled image: every second of a person's images, in random order, is 1."""
    order = np.random.default_rng([seed, 8]).permutation(len(person))
    order = order[np.argsort(person[order], kind="stable")]
    starts = np.concatenate([[True], np.diff(person[order]) > 0])
    place = np.arange(len(order)) - np.flatnonzero(starts)[np.cumsum(starts) - 1]
    half = np.empty(len(person), np.int32)
    half[order] = place % 2
    return half


def _best(
    scored: ConsensusGraph, cell: LongArray, n_asked: int, k: int, *, without_own: bool = False
) -> tuple[LongArray, DoubleArray]:
    """Find the most strongly tied second cell of each first cell, and the tie; -1 and 0 if there is none."""
    labels = Labels.from_array(cell)
    cell_of = np.full(labels.n_identities, -1, np.int64)
    cell_of[labels.labels[cell >= 0]] = cell[cell >= 0]
    ties = tie_groups(scored, labels, k)
    ends = np.sort(cell_of[ties.ids], axis=1)
    across = (ends[:, 0] < n_asked) & (ends[:, 1] >= n_asked)
    if without_own:
        across &= ends[:, 1] - n_asked != ends[:, 0]
    asked, first = np.unique(ends[across, 0], return_index=True)  # the best tied come first
    who, tie = np.full(n_asked, -1, np.int64), np.zeros(n_asked)
    who[asked], tie[asked] = ends[across, 1][first] - n_asked, ties.probability[across][first]
    return who, tie

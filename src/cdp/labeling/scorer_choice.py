"""Trees or similarity? And are labeled people among the unlabeled images? Both by similarity's groups.

Trees are measured on the identities that they learned from, cross-fitted, at a threshold that was tuned on
them; people who occur once are never among these. So trees must be clearly better, the more so the fewer
identities are labeled (`python -m benchmarks known_people`).
"""

from __future__ import annotations

import math

import numpy as np

from cdp.grouping.cohesion import group_sizes
from cdp.labeling.tuning import count_shared, measure_point
from cdp.scoring.settings import ConsensusSettings
from cdp.types import Labels
from cdp.types.arrays import LongArray

_MARGIN, _MARGIN_OF_ONE = 0.05, 0.2
"""How much higher the F of trees must be: the first, plus the second divided by the root of the number of
identities."""

_OVERLAPPING = 0.3
"""Share of unlabeled images among the partners of labeled ones from which on people are shared."""

_FEWEST_PARTNERS = 5
_MOST_IDENTITIES = 500
"""Labeled identities up to which similarity is tried: of more, trees learn enough."""


def may_be_kept(identities: LongArray, settings: ConsensusSettings) -> bool:
    """Return whether groups by similarity can keep the labeled identities, and nothing needs trees."""
    if settings.grouping != "average" or settings.threshold is not None or settings.min_precision is not None:
        return False
    counts = np.unique(identities[identities >= 0], return_counts=True)[1]
    return len(counts) <= _MOST_IDENTITIES and int(counts.max(initial=0)) <= settings.most_images


def is_clearly_better(by_trees: Labels, by_similarity: Labels, identities: LongArray) -> bool:
    """Return whether trees give clearly better groups of labeled images than similarity does."""
    trees, similarity = (measure_point(0.0, labels, identities).f for labels in (by_trees, by_similarity))
    margin = _MARGIN + _MARGIN_OF_ONE / math.sqrt(count_shared(identities))
    return (trees or 0.0) > (similarity or 0.0) + margin


def shows_overlap(labels: Labels, identities: LongArray) -> bool:
    """Return whether many partners of labeled images are unlabeled.

    Args:
        labels: groups by similarity, of all images.
        identities: int64 (n,), -1 where unlabeled.
    """
    labeled = identities >= 0
    in_groups = labels.labels[labeled & (labels.labels >= 0)]
    n_labeled = np.bincount(in_groups, minlength=1)
    partners = group_sizes(labels)[labeled & (labels.labels >= 0)] - 1
    unlabeled = partners + 1 - n_labeled[in_groups]
    if len(in_groups) < _FEWEST_PARTNERS or not partners.any():
        return False
    share = np.divide(unlabeled, partners, out=np.zeros(len(partners)), where=partners > 0)
    return bool(share[partners > 0].mean() >= _OVERLAPPING)

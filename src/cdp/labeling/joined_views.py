"""Known images among the unlabeled ones, so that both are labeled together, and out of the result again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from cdp.labeling.result import Labeling
from cdp.labeling.workspace import Workspace, concatenate
from cdp.runtime.spill import SpillFiles
from cdp.scoring.pairs import keep_pairs
from cdp.types import ConsensusGraph, Labels, Views
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.labels import first_rows


def put_among(unlabeled: Views, others: Views, mask: BoolArray | None, work: Workspace) -> Views:
    """Both parts as one, with the identities that may be looked at."""
    looked_at = None
    if mask is not None and unlabeled.identities is not None:
        looked_at = np.where(mask, unlabeled.identities, -1)
    return concatenate([replace_identities(unlabeled, looked_at), others], work)


def replace_identities(views: Views, identities: LongArray | None) -> Views:
    """The same views with other identities, or none."""
    return Views(views.base, views.committee, identities, views.paths)


def keep_first(whole: Labeling, n_images: int, scratch: SpillFiles) -> Labeling:
    """The first images of a labeling; an image that is left alone in its group is discarded."""
    labels = first_rows(whole.labels, n_images)
    soft = whole.soft_labels
    return replace(
        whole,
        labels=labels,
        accepted=_first_pairs(whole.accepted, n_images, scratch),
        scored=_first_pairs(whole.scored, n_images, scratch),
        soft_labels=None if soft is None else _first_soft_rows(soft, whole.labels, labels),
        graphs={name: graph.first_rows(n_images, scratch.empty) for name, graph in whole.graphs.items()},
        candidates=whole.candidates.first_rows(n_images, scratch.empty),
        validation=whole.validation[:n_images],
    )


def _first_pairs(pairs: ConsensusGraph, n_images: int, scratch: SpillFiles) -> ConsensusGraph:
    def is_first(ids: IntArray, _: AnyArray) -> BoolArray:
        # The second id is the larger one.
        return np.asarray(ids[:, 1] < n_images)

    kept = keep_pairs(pairs, is_first, scratch)
    return ConsensusGraph(kept.ids, kept.doubt, n_images)


def _first_soft_rows(soft: sparse.csr_array, before: Labels, after: Labels) -> sparse.csr_array:
    """Columns follow the labels; what belonged to groups that are gone is shared out by normalizing again."""
    is_labeled = after.labels >= 0
    column = np.empty(after.n_identities, np.int64)
    column[after.labels[is_labeled]] = before.labels[: after.n_images][is_labeled]
    rows = soft[: after.n_images][:, column]
    total = np.asarray(rows.sum(axis=1)).ravel()
    scale = np.where(is_labeled, 1 / np.where(is_labeled, total, 1), 0)
    return sparse.csr_array(sparse.diags_array(scale) @ rows, dtype=np.float32)

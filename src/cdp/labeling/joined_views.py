"""Labeled images joined with the unlabeled ones, labeled together, and removed from the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from cdp.labeling.labeling import Labeling
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import keep_pairs
from cdp.types import ConsensusGraph, Labels, Views
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.labels import first_rows


def concatenate(parts: Sequence[Views], runtime: Runtime) -> Views:
    """Concatenate the images of several parts: in memory where they fit the budget, else in spill files."""
    if len(parts) == 1:
        return parts[0]
    size = sum(model.source.nbytes for views in parts for model in views)
    if not runtime.spill.fits(size):
        return Views.concatenate(parts, runtime.spill.new_path())
    whole = Views.concatenate(parts)
    for model in whole:
        runtime.spill.reserve(model.source)
    return whole


def join(unlabeled: Views, labeled: Views, rows: BoolArray | None, runtime: Runtime) -> Views:
    """Concatenate unlabeled and labeled images, with the identities of `rows` of the unlabeled ones."""
    identities = None
    if rows is not None and unlabeled.identities is not None:
        identities = np.where(rows, unlabeled.identities, -1)
    return concatenate([replace_identities(unlabeled, identities), labeled], runtime)


def replace_identities(views: Views, identities: LongArray | None) -> Views:
    """Return the same views with other identities, or none."""
    return Views(views.base, views.committee, identities, views.paths)


def keep_first(whole: Labeling, n_images: int, runtime: Runtime) -> Labeling:
    """Keep the first images of a labeling; an image that is left alone in its group is discarded."""
    labels = first_rows(whole.labels, n_images)
    soft = whole.soft_labels
    return replace(
        whole,
        labels=labels,
        accepted=_first_pairs(whole.accepted, n_images, runtime),
        scored=_first_pairs(whole.scored, n_images, runtime),
        soft_labels=None if soft is None else _first_soft_rows(soft, whole.labels, labels),
        graphs={name: graph.first_rows(n_images, runtime.empty) for name, graph in whole.graphs.items()},
        candidates=whole.candidates.first_rows(n_images, runtime.empty),
        validation=whole.validation[:n_images],
    )


def _first_pairs(pairs: ConsensusGraph, n_images: int, runtime: Runtime) -> ConsensusGraph:
    def is_first(ids: IntArray, _: AnyArray) -> BoolArray:
        # The second id is the larger one.
        return np.asarray(ids[:, 1] < n_images)

    kept = keep_pairs(pairs, is_first, runtime)
    return ConsensusGraph(kept.ids, kept.doubt, n_images)


def _first_soft_rows(soft: sparse.csr_array, before: Labels, after: Labels) -> sparse.csr_array:
    """Keep the columns of the groups that are left, and normalize rows again."""
    is_labeled = after.labels >= 0
    column = np.empty(after.n_identities, np.int64)
    column[after.labels[is_labeled]] = before.labels[: after.n_images][is_labeled]
    rows = soft[: after.n_images][:, column]
    total = np.asarray(rows.sum(axis=1)).ravel()
    scale = np.where(is_labeled, 1 / np.where(is_labeled, total, 1), 0)
    return sparse.csr_array(sparse.diags_array(scale) @ rows, dtype=np.float32)

"""Labeled images joined with the unlabeled ones, labeled together, and removed from the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy import sparse

from cdp.labeling.labeling import FirstLists, Labeling
from cdp.runtime.kernels import kernel
from cdp.runtime.packing import is_mapped
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import keep_pairs
from cdp.types import ConsensusGraph, KnnGraph, Labels, Views
from cdp.types.arrays import AnyArray, BoolArray, FloatArray, IntArray, LongArray
from cdp.types.labels import first_rows


def concatenate(parts: Sequence[Views], runtime: Runtime) -> Views:
    """Join the images of several parts: embeddings stay where they are, or are copied where they must be."""
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        one, other = (_place(part, runtime) for part in parts)
        stacked = one.stack(other)
        if stacked is not None:
            return stacked
    if not runtime.spill.fits(sum(map(_size, parts))):
        return Views.concatenate(parts, runtime.spill.new_path())
    whole = Views.concatenate(parts)
    for model in whole:
        runtime.spill.reserve(model.source)
    return whole


def _place(views: Views, runtime: Runtime) -> Views:
    """Put embeddings into files that other processes can open, where there are such and they are large."""
    if runtime.pool is None or runtime.spill.fits(_size(views)):
        return views
    if all(is_mapped(source) for model in views for source in model.sources):
        return views
    return Views.concatenate([views], runtime.spill.new_path())


def _size(views: Views) -> int:
    return sum(source.nbytes for model in views for source in model.sources)


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
    cut = partial(first_lists, n_images=n_images, runtime=runtime)
    return replace(
        whole,
        labels=labels,
        accepted=_first_pairs(whole.accepted, n_images, runtime),
        scored=_first_pairs(whole.scored, n_images, runtime),
        soft_labels=None if soft is None else _first_soft_rows(soft, whole.labels, labels),
        graphs=FirstLists(whole.graphs, cut),
        candidate_lists=FirstLists(whole.candidate_lists, cut),
        validation=whole.validation[:n_images],
    )


def first_lists(graph: KnnGraph, n_images: int, runtime: Runtime) -> KnnGraph:
    """Keep the lists of the first images; neighbors past them are gone, so some have fewer than k."""
    neighbors = runtime.empty((n_images, graph.k), np.int32)
    similarity = runtime.empty((n_images, graph.k), np.float32)
    _copy_first(graph.neighbors, graph.similarity, neighbors, similarity)
    return graph.with_lists(runtime.finished(neighbors), runtime.finished(similarity))


@kernel
def _copy_first(neighbors: IntArray, similarity: FloatArray, kept: IntArray, measured: FloatArray) -> None:
    n_images, k = kept.shape
    for image in range(n_images):
        place = 0
        for rank in range(k):
            if neighbors[image, rank] < n_images:
                kept[image, place], measured[image, place] = neighbors[image, rank], similarity[image, rank]
                place += 1
        for rank in range(place, k):
            kept[image, rank], measured[image, rank] = -1, -np.inf


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

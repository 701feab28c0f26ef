"""Dimension reduction of the search by PCA, for embeddings that a few components describe well enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
from cdp.knn.recall import Gap
from cdp.runtime.row_table import RowTable, gather_rows
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings
from cdp.types.arrays import DoubleArray, FloatArray

_SAMPLE_ROWS = 8192
_BLOCK_ROWS = 2048
_SAMPLE_BLOCK = 1024
# Numbers of components to choose from are multiples of this: vectors then fill whole cache lines.
_COMPONENT_STEP = 16
# More than this share of the dimensions saves too little to pay for a copy of the vectors.
_MAX_SHARE = 0.75
# The error of reduced products may be this share of the gap between the k-th neighbor and the last one in a
# longer list: 0.994 of the neighbors then stay in the list. Measured on structured embeddings of 200,000
# images by `python -m benchmarks.search constants`.
_ERROR_PER_GAP = 0.5
# Costs per image, in multiply-adds as in autotune.py: one more component, which is multiplied with about
# 3,000 probed images; one more candidate in every list; and re-ranking it, per dimension. Measured by the
# same command.
_COMPONENT_COST = 3_040
_CANDIDATE_COST = 7_860
_RERANK_COST = 8.9
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class ReducedVectors:
    """PCA-reduced embeddings: inner products of rows approximate those of the embeddings.

    Attributes:
        source: float32 (n, components); rows are a little shorter than unit length.
        error: standard deviation of the error of the inner product of two random rows.
        list_length: length of top-k lists by reduced products that still hold the k nearest neighbors.
    """

    source: FloatArray
    error: float
    list_length: int

    @property
    def n_images(self) -> int:
        """Number of rows."""
        return int(self.source.shape[0])

    @property
    def dimensions(self) -> int:
        """Number of components."""
        return int(self.source.shape[1])

    @cached_property
    def scale(self) -> DoubleArray:
        """1 for every row: rows are not normalized."""
        return np.ones(self.n_images)

    @property
    def is_lossy(self) -> bool:
        """Whether inner products differ by more than float32 rounding."""
        return self.error > _ROUNDING

    def block(self, start: int, stop: int) -> FloatArray:
        """Return rows start..stop-1."""
        return self.source[start:stop]

    def take(self, rows: npt.NDArray[np.integer[Any]], out: FloatArray | None = None) -> FloatArray:
        """Gather the given rows, into a new array or the one given."""
        # All rows exist, so nothing is clipped; but in any other mode NumPy would not write to `out`
        # directly.
        return np.take(self.source, rows, axis=0, out=out, mode="raise" if out is None else "clip")

    def reorder(self, order: npt.NDArray[np.integer[Any]], runtime: Runtime) -> ReducedVectors:
        """Copy the rows in another order."""
        return ReducedVectors(gather_rows(self.source, order, runtime), self.error, self.list_length)


Vectors: TypeAlias = Embeddings | ReducedVectors
"""The vectors that a search compares: the embeddings, or their PCA reduction."""


def reduce_dimensions(
    embeddings: Embeddings, k: int, gaps: Sequence[Gap], *, seed: int, runtime: Runtime
) -> Vectors:
    """Reduce embeddings by PCA as far as the k nearest neighbors stay in somewhat longer lists.

    The components are eigenvectors of the uncentered second moments, so that inner products are preserved.
    The product of two random rows along a component has the standard deviation of its eigenvalue λ, so
    leaving out the components after the c-th makes an error of sqrt(Σ_{i>c} λ_i²).

    Args:
        embeddings: all images.
        k: number of neighbors.
        gaps: list lengths to choose from, with the similarity gap of each: the longer the lists, the larger
            the error may be. The cheapest combination of components and length is taken.
        seed: of the sample that the components are found on.
        runtime: how the search runs.

    Returns:
        The embeddings themselves where too few components could be left out.
    """
    size = min(_SAMPLE_ROWS, embeddings.n_images)
    drawn = np.random.default_rng(seed).choice(embeddings.n_images, size, replace=False)
    eigenvalues, eigenvectors = np.linalg.eigh(_second_moments(embeddings, np.sort(drawn)))
    errors = np.sqrt(np.append(np.cumsum(np.square(eigenvalues))[::-1], 0.0))
    n_components, list_length = _choose_components(errors, k, gaps)
    if n_components > _MAX_SHARE * embeddings.dimensions:
        return embeddings
    basis = np.ascontiguousarray(eigenvectors[:, : -n_components - 1 : -1].astype(np.float32))
    table = RowTable.of((embeddings.n_images, n_components), np.float32, runtime)
    for _ in runtime.map(_reduce_block, (embeddings, basis, table), spans(embeddings.n_images, _BLOCK_ROWS)):
        pass
    return ReducedVectors(table.finish(runtime), float(errors[n_components]), list_length)


def _choose_components(errors: DoubleArray, k: int, gaps: Sequence[Gap]) -> tuple[int, int]:
    """Choose the cheapest number of components and list length; `errors` are those of 0..d components."""
    dimensions = len(errors) - 1
    choices = []
    for length, gap in gaps:
        allowed = max(_ERROR_PER_GAP * gap, _ROUNDING)
        count = next(
            number
            for number in range(_COMPONENT_STEP, dimensions + _COMPONENT_STEP, _COMPONENT_STEP)
            if number >= dimensions or errors[number] <= allowed
        )
        list_length = k if errors[min(count, dimensions)] <= _ROUNDING else length
        cost = _COMPONENT_COST * count + (_CANDIDATE_COST + _RERANK_COST * dimensions) * list_length
        choices.append((cost, count, list_length))
    _, count, list_length = min(choices)
    return count, list_length


def _second_moments(embeddings: Embeddings, rows: npt.NDArray[np.integer[Any]]) -> DoubleArray:
    """Compute the mean outer product x xᵀ of some rows, float64 (d, d)."""
    total = np.zeros((embeddings.dimensions, embeddings.dimensions))
    for start, stop in spans(len(rows), _SAMPLE_BLOCK):
        block = embeddings.take(rows[start:stop]).astype(np.float64)
        total += block.T @ block
    return total / len(rows)


def _reduce_block(shared: tuple[Embeddings, FloatArray, RowTable], span: tuple[int, int]) -> None:
    embeddings, basis, table = shared
    table.write(span[0], embeddings.block(*span) @ basis)

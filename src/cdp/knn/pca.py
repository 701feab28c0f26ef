"""Fewer dimensions for the search: the principal directions of the embeddings, where few of them hold what tells images apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
from cdp.knn.recall import Gap
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings
from cdp.types.arrays import DoubleArray, FloatArray

_SAMPLE_ROWS = 8192
_BLOCK_ROWS = 2048
_SAMPLE_BLOCK = 1024
_STEP = 16
# Fewer directions that save less than this share of the work are not worth a copy of the vectors.
_WORTH_IT = 0.75
# What is left out may change similarities by so much of the gap between the last neighbor and the last in a longer list: 0.994 of the
# neighbors stay in the list (measured on structured embeddings of 200,000 images).
_OF_THE_GAP = 0.5
# Nanoseconds per image; only their ratios matter. What one more direction costs, one more in a list, and a dimension to measure it in.
_PER_DIRECTION = 85
_PER_LISTED = 220
_PER_DIMENSION = 0.25
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Projected:
    """Embeddings along a few directions: products of rows are nearly those of the embeddings.

    Attributes:
        source: float32 (n, directions); the rows are a little shorter than unit length.
        error: standard deviation of what the product of two random rows lacks.
        listed: so many images with the greatest products hold the k nearest.
    """

    source: FloatArray
    error: float
    listed: int

    @property
    def n_images(self) -> int:
        """Number of rows."""
        return int(self.source.shape[0])

    @property
    def dimensions(self) -> int:
        """Number of directions."""
        return int(self.source.shape[1])

    @cached_property
    def scale(self) -> DoubleArray:
        """1 for every row: products are taken as they are."""
        return np.ones(self.n_images)

    @property
    def is_rounded(self) -> bool:
        """Whether products differ by more than float32 rounds."""
        return self.error > _ROUNDING

    def block(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop-1."""
        return self.source[start:stop]

    def take(self, rows: npt.NDArray[np.integer[Any]], out: FloatArray | None = None) -> FloatArray:
        """The given rows, in a fresh array or the one given."""
        # Rows are there, so nothing is clipped; but without it, NumPy would not write to `out` directly.
        return np.take(self.source, rows, axis=0, out=out, mode="raise" if out is None else "clip")

    def reorder(self, order: npt.NDArray[np.integer[Any]], runtime: Runtime) -> Projected:
        """The same rows in another order."""
        source = runtime.empty(self.source.shape, np.float32)
        for start, stop in spans(len(order), _BLOCK_ROWS):
            source[start:stop] = self.source[order[start:stop]]
        return Projected(runtime.finished(source), self.error, self.listed)


Vectors: TypeAlias = Embeddings | Projected
"""What a search compares: the embeddings, or the same along few directions."""


def project(
    embeddings: Embeddings,
    k: int,
    gaps: Sequence[Gap],
    *,
    seed: int,
    runtime: Runtime,
) -> Vectors:
    """The embeddings along so few principal directions that the k nearest neighbors just stay in longer lists, or as they are.

    Args:
        embeddings: all images.
        k: number of neighbors.
        gaps: how long lists may be, and how much less similar their last images are. The longer the lists, the fewer directions will
            do; what is cheapest is taken.
        seed: of the sample that the directions are found on.
        runtime: how the search runs.
    """
    size = min(_SAMPLE_ROWS, embeddings.n_images)
    drawn = np.random.default_rng(seed).choice(embeddings.n_images, size, replace=False)
    values, directions = np.linalg.eigh(_second_moments(embeddings, np.sort(drawn)))
    # Products of what two random rows have along a direction spread by its eigenvalue.
    lacking = np.sqrt(np.append(np.cumsum(np.square(values))[::-1], 0.0))
    count, listed = _cheapest(lacking, k, gaps)
    if count > _WORTH_IT * embeddings.dimensions:
        return embeddings
    basis = np.ascontiguousarray(directions[:, : -count - 1 : -1].astype(np.float32))
    source = runtime.empty((embeddings.n_images, count), np.float32)
    cut = spans(embeddings.n_images, _BLOCK_ROWS)
    for (start, stop), rows in zip(cut, runtime.map(_project_block, (embeddings, basis), cut), strict=True):
        source[start:stop] = rows
    return Projected(runtime.finished(source), float(lacking[count]), listed)


def _cheapest(lacking: DoubleArray, k: int, gaps: Sequence[Gap]) -> tuple[int, int]:
    """How many directions and how long lists, by what the products lack with so many directions."""
    dimensions = len(lacking) - 1
    choices = []
    for length, gap in gaps:
        allowed = max(_OF_THE_GAP * gap, _ROUNDING)
        count = next(
            number
            for number in range(_STEP, dimensions + _STEP, _STEP)
            if number >= dimensions or lacking[number] <= allowed
        )
        listed = k if lacking[min(count, dimensions)] <= _ROUNDING else length
        cost = _PER_DIRECTION * count + (_PER_LISTED + _PER_DIMENSION * dimensions) * listed
        choices.append((cost, count, listed))
    _, count, listed = min(choices)
    return count, listed


def _second_moments(embeddings: Embeddings, rows: npt.NDArray[np.integer[Any]]) -> DoubleArray:
    """The mean of the outer products of some rows with themselves, float64 (d, d)."""
    total = np.zeros((embeddings.dimensions, embeddings.dimensions))
    for start, stop in spans(len(rows), _SAMPLE_BLOCK):
        block = embeddings.take(rows[start:stop]).astype(np.float64)
        total += block.T @ block
    return total / len(rows)


def _project_block(shared: tuple[Embeddings, FloatArray], span: tuple[int, int]) -> FloatArray:
    embeddings, basis = shared
    rows: FloatArray = embeddings.block(*span) @ basis
    return rows

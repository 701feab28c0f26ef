"""Connected components of pairs that need not fit into memory, and components handed out as tasks.

No pair between two components joins anything, so components are grouped independently, in batches, on threads
of this process or on Ray.

- Every shard of pairs is reduced to a spanning forest, which has the same components and at most one edge per
  image; the forests are united here. Memory is one number per image, whatever the number of pairs.
- A component is named after its smallest image, so the order of shards and batches does not matter.
- Pairs are laid out batch by batch, those of a component in their original order, so a batch gives, bit for
  bit, what all pairs at once give.
- A component that exceeds the memory of a block is grouped by this process, in spill files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cdp.blocks import spans
from cdp.grouping.union_find import compress_paths, unite_pairs
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.runtime.spill import SpillFiles
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray

Settings = TypeVar("Settings")
Answer = TypeVar("Answer")

BYTES_PER_PAIR = 96
"""Peak memory per pair, the pair included. Measured with `python -m benchmarks grouping_memory`."""
# No budget limits batches to fewer pairs: the overhead per batch would dominate.
_FEWEST_PAIRS = 4096
# A shard's spanning forest is a task of about 50 ms. Measured with `python -m benchmarks grouping_memory`
# (way "reducing").
_PAIRS_PER_SHARD = 2**20
_ALL: BoolArray = np.empty(0, np.bool_)


@dataclass(frozen=True, eq=False)
class Batch:
    """Pairs of some images, which are renumbered 0, 1, 2, ….

    Attributes:
        images: int32 (n,), the original number of every image, ascending; None = all images, not renumbered.
        ids: int32 (m, 2), the pairs.
        columns: values of every pair, (m,) each.
        n_images: number of images n.
    """

    images: IntArray | None
    ids: IntArray
    columns: tuple[AnyArray, ...]
    n_images: int


def group_batches(
    function: Callable[[Settings, Batch, SpillFiles], Answer],
    settings: Settings,
    pairs: Batch,
    joins: BoolArray | None = None,
    *,
    runtime: Runtime,
    most_pairs: int | None = None,
) -> Iterator[tuple[IntArray | None, Answer]]:
    """Yield the images of every batch of components and function(settings, batch, spill).

    Images without a pair are in no batch. All pairs are one batch where they fit the memory of a block.

    Args:
        function: groups one batch. It belongs to a module, so that it can be sent to other processes.
        settings: shared by all batches.
        pairs: of all images.
        joins: bool (m,), the pairs that connect components; other pairs inside a component belong to it too.
            None = all pairs connect.
        runtime: workers and memory; its spill files hold the pairs meanwhile.
        most_pairs: largest number of pairs in a batch of several components, where the memory budget allows
            it.
    """
    fitting = max(_FEWEST_PAIRS, runtime.block_memory // BYTES_PER_PAIR)
    most_pairs = fitting if most_pairs is None else min(most_pairs, fitting)
    if joins is None and len(pairs.ids) <= most_pairs:
        yield None, function(settings, pairs, runtime.spill)
        return
    component = find_components(pairs.ids, pairs.n_images, joins, runtime=runtime)
    batch_of, sizes = _fill_batches(pairs, component, most_pairs)
    ids, *columns = _lay_out(pairs, component, batch_of, sizes, runtime)
    ends = np.cumsum(sizes)
    cut = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    # Components larger than a batch come second, so that fewer of them run at a time.
    for some in (sizes <= most_pairs, (sizes > most_pairs) & (sizes <= fitting)):
        if some.any():
            block_bytes = BYTES_PER_PAIR * int(sizes[some].max())
            pieces = (
                (ids[cut[number]], *(column[cut[number]] for column in columns))
                for number in np.flatnonzero(some)
            )
            yield from runtime.map(_group_batch, (function, settings), pieces, block_bytes=block_bytes)
    for number in np.flatnonzero(sizes > fitting):
        large = Batch(
            None, ids[cut[number]], tuple(column[cut[number]] for column in columns), pairs.n_images
        )
        batch = _count_own_images(large, runtime)
        yield batch.images, function(settings, batch, runtime.spill)


def _group_batch(
    shared: tuple[Callable[[Settings, Batch, SpillFiles], Answer], Settings], piece: tuple[AnyArray, ...]
) -> tuple[IntArray | None, Answer]:
    function, settings = shared
    ids, *columns = piece
    images, local = np.unique(ids, return_inverse=True)
    batch = Batch(images, local.reshape(ids.shape).astype(np.int32), tuple(columns), len(images))
    del local
    return images, function(settings, batch, SpillFiles())


def _count_own_images(batch: Batch, runtime: Runtime) -> Batch:
    """Renumber the images of a batch; with many pairs this takes less memory than sorting."""
    number = np.zeros(batch.n_images, np.int32)
    for start, stop in spans(len(batch.ids), _PAIRS_PER_SHARD):
        number[batch.ids[start:stop]] = 1
    images = np.flatnonzero(number).astype(np.int32)
    number[images] = np.arange(len(images), dtype=np.int32)
    ids = runtime.empty(batch.ids.shape, np.int32)
    for start, stop in spans(len(ids), _PAIRS_PER_SHARD):
        ids[start:stop] = number[batch.ids[start:stop]]
    return Batch(images, ids, batch.columns, len(images))


def find_components(
    ids: IntArray,
    n_images: int,
    joins: BoolArray | None = None,
    *,
    runtime: Runtime | None = None,
    pairs_per_shard: int = _PAIRS_PER_SHARD,
) -> IntArray:
    """Find connected components; return the smallest image of every image's component, int32 (n,).

    Args:
        ids: int32 (m, 2), the pairs.
        n_images: number of images.
        joins: bool (m,), the pairs that connect; None = all.
        runtime: on Ray, shards are reduced by the cluster; on threads one pass over the pairs is faster.
        pairs_per_shard: pairs per task.
    """
    parent = np.arange(n_images, dtype=np.int32)
    shards = (
        (ids[start:stop], _ALL if joins is None else joins[start:stop])
        for start, stop in spans(len(ids), pairs_per_shard)
    )
    if runtime is None or runtime.pool is None:
        for shard in shards:
            unite_pairs(parent, *shard)
    else:
        for forest in runtime.map(_reduce_shard, None, shards):
            unite_pairs(parent, forest, _ALL)
    compress_paths(parent)
    return parent


def _reduce_shard(_: None, shard: tuple[IntArray, BoolArray]) -> IntArray:
    """Return a spanning forest of the connecting pairs of a shard, int32 (f, 2)."""
    ids, joins = shard
    images, local = np.unique(ids, return_inverse=True)
    parent = np.arange(len(images), dtype=np.int32)
    forest: IntArray = ids[unite_pairs(parent, local.reshape(ids.shape).astype(np.int32), joins)]
    return forest


def _fill_batches(pairs: Batch, component: IntArray, most_pairs: int) -> tuple[IntArray, LongArray]:
    """Return the batch of every component, by its smallest image, and the number of pairs of every batch."""
    counts = np.zeros(pairs.n_images, np.int64)
    _count_pairs(pairs.ids, component, counts)
    batch_of = np.full(pairs.n_images, -1, np.int32)
    n_batches = _fill(counts, most_pairs, batch_of)
    has_pairs = np.flatnonzero(counts)
    sizes = np.zeros(n_batches, np.int64)
    np.add.at(sizes, batch_of[has_pairs], counts[has_pairs])
    return batch_of, sizes


@kernel
def _count_pairs(ids: IntArray, component: IntArray, counts: LongArray) -> None:
    """Count the pairs inside every component."""
    for row in range(len(ids)):
        if component[ids[row, 0]] == component[ids[row, 1]]:
            counts[component[ids[row, 0]]] += 1


@kernel
def _fill(counts: LongArray, most: int, batch_of: IntArray) -> int:
    """Fill batches of at most `most` pairs with components, in order; a larger one is a batch of its own."""
    batch, n_pairs = -1, 0
    for component in range(len(counts)):
        if counts[component] > 0:
            if batch < 0 or n_pairs + counts[component] > most:
                batch += 1
                n_pairs = 0
            batch_of[component] = batch
            n_pairs += counts[component]
    return batch + 1


def _lay_out(
    pairs: Batch, component: IntArray, batch_of: IntArray, sizes: LongArray, runtime: Runtime
) -> list[AnyArray]:
    """Copy the pairs inside components, and their columns, batch by batch."""
    n_pairs = int(sizes.sum())
    starts = np.cumsum(sizes) - sizes
    laid_out = []
    # Both ids of a pair are moved as one 64-bit number.
    for column in (np.ascontiguousarray(pairs.ids).view(np.int64).ravel(), *pairs.columns):
        placed = runtime.empty(n_pairs, column.dtype)
        _place(pairs.ids, component, batch_of, starts.copy(), column, placed)
        laid_out.append(runtime.finished(placed))
    laid_out[0] = laid_out[0].view(np.int32).reshape(-1, 2)
    return laid_out


@kernel
def _place(
    ids: IntArray,
    component: IntArray,
    batch_of: IntArray,
    free: LongArray,
    column: AnyArray,
    placed: AnyArray,
) -> None:
    for row in range(len(ids)):
        one = component[ids[row, 0]]
        if one == component[ids[row, 1]]:
            placed[free[batch_of[one]]] = column[row]
            free[batch_of[one]] += 1

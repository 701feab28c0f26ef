"""How many distractors come before each mate: tiles of the similarity matrix, counted and thrown away.

The product of the matrices is nearly all of the work. What is left over per similarity is one look-up: a
table of 4096 steps over [-1, 1] says how many of the probe's mates it beats. Where a step holds a mate's own
similarity the answer is searched for, and where the two are closer than float32 can tell, the similarity is
summed again exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.runtime.kernels import kernel
from cdp.runtime.parallel import map_blocks
from cdp.runtime.progress import Progress, no_progress
from cdp.types import Embeddings
from cdp.types.arrays import AnyArray, DoubleArray, FloatArray, LongArray, read_only

# A thread needs PROBE_ROWS x DISTRACTOR_ROWS float32 (8 MB) and a block of distractors.
PROBE_ROWS = 512
DISTRACTOR_ROWS = 4096
_STEPS = 4096
# Probes whose tables are in memory at a time: 32 MB.
_TABLES = 4096
# Similarities looked up in one go, so few that they stay in the processor's nearest cache.
_STRIP = 256
# More than a float32 product of unit vectors is ever off by; closer pairs are summed again in float64.
_MARGIN = 4e-6


@dataclass(frozen=True, eq=False)
class MatePairs:
    """Every ordered pair of probes of one identity, sorted by probe, then mate.

    Attributes:
        probes: int64 (m,), the first of the pair.
        mates: int64 (m,), the second.
        identities: int64 (m,), who they show, 0..I-1.
    """

    probes: LongArray
    mates: LongArray
    identities: LongArray
    n_probes: int

    def __post_init__(self) -> None:
        for name in ("probes", "mates", "identities"):
            object.__setattr__(self, name, read_only(getattr(self, name), np.int64))

    @property
    def n_identities(self) -> int:
        """Number of people among the probes."""
        return int(self.identities.max()) + 1

    def __len__(self) -> int:
        return len(self.probes)


def count_better(
    pairs: MatePairs,
    probes: Embeddings,
    distractors: Embeddings,
    stages: Sequence[LongArray],
    *,
    threads: int = 0,
    progress: Progress = no_progress,
) -> LongArray:
    """Distractors at least as similar to the probe as the mate, int64 (stages, m).

    Args:
        stages: rows of the distractors that join at every stage, rising; those of earlier stages stay.
    """
    if probes.dimensions != distractors.dimensions:
        raise InputError(
            f"Identification: probes have {probes.dimensions} dimensions, distractors "
            f"{distractors.dimensions}; embed both with the same network.",
            code="distractor-dimensions-differ",
            expected=probes.dimensions,
            found=distractors.dimensions,
        )
    similarity = np.empty(len(pairs))
    _pair_dots(probes.vectors, pairs.probes, pairs.mates, similarity)
    order = np.lexsort((similarity, pairs.probes))
    scores = similarity[order]
    starts = np.searchsorted(pairs.probes, np.arange(probes.n_images + 1))
    beaten = np.empty((len(stages), len(pairs)), np.int64)
    for start, stop in spans(probes.n_images, _TABLES):
        own = starts[start : stop + 1]
        part = _count_part(probes.block(start, stop), scores, own, distractors, stages, threads, progress)
        beaten[:, order[starts[start] : starts[stop]]] = part
    return beaten


def _count_part(
    vectors: FloatArray,
    all_scores: DoubleArray,
    all_starts: LongArray,
    distractors: Embeddings,
    stages: Sequence[LongArray],
    threads: int,
    progress: Progress,
) -> LongArray:
    """Of some probes, the counts for their mates in ascending order of similarity."""
    scores = all_scores[all_starts[0] : all_starts[-1]]
    starts = all_starts - all_starts[0]
    most = int(np.diff(starts).max())
    tables = np.empty((len(vectors), _STEPS + 1), np.int16 if most < 2**15 - 1 else np.int32)
    _fill_tables(scores, starts, tables)
    blocks = [
        (stage, rows[start:stop])
        for stage, rows in enumerate(stages)
        for start, stop in spans(len(rows), DISTRACTOR_ROWS)
    ]

    def count(block: tuple[int, LongArray]) -> tuple[int, int, LongArray]:
        stage, rows = block
        start, stop = int(rows[0]), int(rows[-1]) + 1
        in_one_piece = stop - start == len(rows)
        gallery = distractors.block(start, stop) if in_one_piece else distractors.take(rows)
        # One more cell than mates per probe: cell c counts the distractors that beat exactly the c lowest
        # mates.
        cells = np.zeros(len(scores) + len(vectors), np.int64)
        tile = np.empty((PROBE_ROWS, len(rows)), np.float32)
        for first, last in spans(len(vectors), PROBE_ROWS):
            queries = vectors[first:last]
            out = tile[: last - first]
            np.matmul(queries, gallery.T, out=out)
            _count_tile(out, queries, gallery, scores, starts, first, tables, cells)
        return stage, len(rows), cells

    done = 0
    cells = np.zeros((len(stages), len(scores) + len(vectors)), np.int64)
    for stage, n_rows, counted in map_blocks(count, blocks, threads):
        cells[stage] += counted
        done += n_rows
        progress("distractors", done, sum(len(rows) for rows in stages))
    # A mate is beaten by all that was counted in its own cell and in the later cells of its probe.
    counted_up_to = np.cumsum(np.cumsum(cells, axis=0), axis=1)
    probe_of = np.repeat(np.arange(len(vectors)), np.diff(starts))
    before, last = np.arange(len(scores)) + probe_of, starts[probe_of + 1] + probe_of
    beaten: LongArray = counted_up_to[:, last] - counted_up_to[:, before]
    return beaten


@kernel
def _dot(one: AnyArray, other: AnyArray) -> float:
    """Four sums in float64, always in the same order: copies of an image tie exactly."""
    dimensions = one.shape[0]
    whole = dimensions - dimensions % 4
    first = second = third = fourth = 0.0
    for at in range(0, whole, 4):
        first += np.float64(one[at]) * np.float64(other[at])
        second += np.float64(one[at + 1]) * np.float64(other[at + 1])
        third += np.float64(one[at + 2]) * np.float64(other[at + 2])
        fourth += np.float64(one[at + 3]) * np.float64(other[at + 3])
    for at in range(whole, dimensions):
        first += np.float64(one[at]) * np.float64(other[at])
    return (first + second) + (third + fourth)


@kernel
def _pair_dots(vectors: FloatArray, ones: LongArray, others: LongArray, similarity: DoubleArray) -> None:
    for pair in range(len(ones)):
        similarity[pair] = _dot(vectors[ones[pair]], vectors[others[pair]])


@kernel
def _count_tile(
    tile: FloatArray,
    queries: FloatArray,
    gallery: FloatArray,
    scores: DoubleArray,
    starts: LongArray,
    first_probe: int,
    tables: AnyArray,
    cells: LongArray,
) -> None:
    half = np.float32(_STEPS // 2)
    steps = np.empty(_STRIP, np.uint16)
    for row in range(tile.shape[0]):
        probe = first_probe + row
        mates = scores[starts[probe] : starts[probe + 1]]
        table = tables[probe]
        # Four counters per cell: a processor waits when it adds twice in a row to one address.
        counters = np.zeros(4 * (len(mates) + 1), np.int32)
        for start in range(0, tile.shape[1], _STRIP):
            values = tile[row, start : start + _STRIP]
            for column in range(len(values)):
                steps[column] = np.uint16(np.int32(values[column] * half + half))
            for column in range(len(values)):
                beats = np.int32(table[steps[column]])
                if beats < 0:
                    beats = np.int32(
                        _search(values[column], -1 - beats, mates, queries[row], gallery[start + column])
                    )
                counters[np.uint32((beats << 2) | (column & 3))] += np.int32(1)
        own = cells[starts[probe] + probe : starts[probe + 1] + probe + 1]
        for cell in range(len(own)):
            for lane in range(4):
                own[cell] += counters[4 * cell + lane]


@kernel
def _search(value: Any, beats: Any, mates: DoubleArray, query: FloatArray, distractor: FloatArray) -> Any:
    """Mates beaten by a similarity, `beats` of them for sure; summed exactly where float32 cannot tell."""
    n_mates = len(mates)
    while beats < n_mates and mates[beats] <= value - _MARGIN:
        beats += 1
    if beats < n_mates and mates[beats] <= value + _MARGIN:
        exact = _dot(query, distractor)
        while beats < n_mates and mates[beats] <= exact:
            beats += 1
    return beats


@kernel
def _fill_tables(scores: DoubleArray, starts: LongArray, tables: AnyArray) -> None:
    """Count mates beaten by every similarity of a step, or -1 - (surely beaten) if undecided."""
    width = 2.0 / _STEPS
    for probe in range(len(starts) - 1):
        mates = scores[starts[probe] : starts[probe + 1]]
        low = high = 0
        for step in range(_STEPS + 1):
            # The first and last steps also hold what rounding moved beyond -1 and 1.
            bottom = step * width - 1.0 - 4 * _MARGIN if step > 0 else -2.0
            top = (step + 1) * width - 1.0 + 4 * _MARGIN if step < _STEPS else 2.0
            while low < len(mates) and mates[low] <= bottom:
                low += 1
            while high < len(mates) and mates[high] <= top:
                high += 1
            tables[probe, step] = low if low == high else -1 - low

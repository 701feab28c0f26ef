"""Rows cut into blocks; results never depend on how many there are."""

from __future__ import annotations

PAIRS_PER_BLOCK = 65_536
"""Pairs processed at a time: few enough for the processor's cache, enough for the overhead per block not to
matter."""


def spans(n_rows: int, rows_per_block: int) -> list[tuple[int, int]]:
    """0..n_rows cut into (start, stop) blocks."""
    return [(start, min(start + rows_per_block, n_rows)) for start in range(0, n_rows, rows_per_block)]

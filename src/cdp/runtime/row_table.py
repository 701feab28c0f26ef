"""Tables that tasks fill with rows: in memory, or in one file that all machines see."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
from cdp.types.arrays import AnyArray

if TYPE_CHECKING:
    from cdp.runtime.runtime import Runtime

_BLOCK_ROWS = 4096


@dataclass(frozen=True, eq=False)
class RowTable:
    """A table to be filled by tasks, each with rows of its own; a task that runs again writes the same.

    Attributes:
        shape: rows and columns.
        dtype: of entries.
        place: an array of this process, or a file of that size without a header.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    place: AnyArray | Path

    @classmethod
    def of(cls, shape: tuple[int, int], dtype: npt.DTypeLike, runtime: Runtime) -> RowTable:
        """Allocate a table that all tasks of a runtime can write to."""
        entries = np.dtype(dtype)
        n_bytes = shape[0] * shape[1] * entries.itemsize
        if runtime.pool is None or not n_bytes:
            return cls(shape, entries, runtime.empty(shape, entries))
        return cls(shape, entries, runtime.spill.new_file(n_bytes))

    def write(self, start: int, rows: AnyArray) -> None:
        """Write rows from number `start` on.

        Files are only opened for writing: what else is in a page at either end is not read, so machines that
        share it over a network do not undo each other's rows.
        """
        if not isinstance(self.place, Path):
            self.place[start : start + len(rows)] = rows
            return
        content = np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data
        offset, file = start * self.shape[1] * self.dtype.itemsize, os.open(self.place, os.O_WRONLY)
        try:
            while len(content):
                n_written = os.pwrite(file, content, offset)
                content, offset = content[n_written:], offset + n_written
        finally:
            os.close(file)

    def finish(self, runtime: Runtime) -> AnyArray:
        """Return the table, whose rows are all written; other processes get its file by name."""
        if isinstance(self.place, Path):
            return runtime.spill.open_file(self.place, self.shape, self.dtype)
        return runtime.finished(self.place)


def gather_rows(source: AnyArray, rows: AnyArray, runtime: Runtime) -> AnyArray:
    """Copy some rows of a table, in tasks: source[rows]."""
    table = RowTable.of((len(rows), source.shape[1]), source.dtype, runtime)
    for _ in runtime.map(_gather_block, (source, table), _blocks(rows)):
        pass
    return table.finish(runtime)


def _blocks(rows: AnyArray) -> Iterator[tuple[int, AnyArray]]:
    return ((start, rows[start:stop]) for start, stop in spans(len(rows), _BLOCK_ROWS))


def _gather_block(shared: tuple[AnyArray, RowTable], block: tuple[int, AnyArray]) -> None:
    source, table = shared
    start, rows = block
    table.write(start, np.take(source, rows, axis=0))

"""Tables that tasks write, in memory or in a file, and rows gathered from them."""

import gc

import numpy as np
import pytest

from cdp.runtime.packing import is_mapped, pack, unpack
from cdp.runtime.row_table import RowTable, gather_rows
from cdp.runtime.runtime import Runtime


class _Elsewhere(Runtime):
    """A runtime whose blocks run in other processes: what they get and return was packed."""

    pool = property(lambda _: "a cluster")

    def map(self, function, shared, items, **_):
        shared = unpack(pack(shared))
        return (unpack(pack(function(shared, unpack(pack(item))))) for item in items)


@pytest.mark.parametrize("kind", [Runtime, _Elsewhere])
def test_rows_are_where_tasks_wrote_them(tmp_path, kind):
    rows = np.random.default_rng(0).integers(-9, 9, (1000, 7))
    runtime = kind.of(folder=tmp_path)
    table = RowTable.of(rows.shape, np.int16, runtime)
    for start, stop in ((900, 1000), (0, 333), (333, 900), (0, 10)):
        table.write(start, rows[start:stop])
    table.write(5, rows[:0])
    written = table.finish(runtime)
    assert written.dtype == np.int16
    np.testing.assert_array_equal(written, rows)
    assert is_mapped(written) == (kind is _Elsewhere)
    del written, table
    gc.collect()
    assert [path for folder in tmp_path.iterdir() for path in folder.iterdir()] == []


@pytest.mark.parametrize("kind", [Runtime, _Elsewhere])
@pytest.mark.parametrize("n_rows", [0, 1, 9000])
def test_gathered_rows_are_those_of_an_index(tmp_path, kind, n_rows):
    source = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    rows = np.random.default_rng(1).integers(0, 500, n_rows)
    np.testing.assert_array_equal(gather_rows(source, rows, kind.of(folder=tmp_path)), source[rows])

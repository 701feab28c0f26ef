import csv

import numpy as np
import pyarrow.parquet
import pytest

from cdp.labeling.output import write_tables
from cdp.types import Labels

PATHS = ("=cmd()", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "photos/=x.jpg", 'a,"b".jpg', "'x")


@pytest.mark.parametrize("quoted", [False, True])
def test_text_that_a_spreadsheet_would_run_is_quoted_if_asked(tmp_path, quoted):
    labels = Labels.from_array(np.arange(len(PATHS)))
    write_tables(tmp_path, labels, PATHS, quote_formulas=quoted)
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [f"'{path}" for path in PATHS[:6]] if quoted else list(PATHS[:6])
    assert [row["path"] for row in rows] == [*expected, *PATHS[6:]]
    assert [int(row["label"]) for row in rows] == list(range(len(PATHS)))
    table = pyarrow.parquet.read_table(tmp_path / "labels.parquet")
    assert table.column("path").to_pylist() == list(PATHS)


def test_without_paths_there_is_nothing_to_quote(tmp_path):
    write_tables(tmp_path, Labels.from_array(np.zeros(3, int)), None, quote_formulas=True)
    assert (tmp_path / "labels.csv").read_text().startswith('"row","label"')

import csv

import numpy as np
import pyarrow.parquet
import pytest

from cdp.labeling.output import label_table, write_tables
from cdp.types import Labels

PATHS = ("=cmd()", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "photos/=x.jpg", 'a,"b".jpg', "'x")


@pytest.mark.parametrize("quoted", [False, True])
def test_text_that_a_spreadsheet_would_run_is_quoted_if_asked(tmp_path, quoted):
    labels = Labels.from_array(np.arange(len(PATHS)))
    write_tables(tmp_path, label_table(labels, paths=PATHS), quote_formulas=quoted)
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [f"'{path}" for path in PATHS[:6]] if quoted else list(PATHS[:6])
    assert [row["path"] for row in rows] == [*expected, *PATHS[6:]]
    assert [int(row["identity"]) for row in rows] == list(range(len(PATHS)))
    table = pyarrow.parquet.read_table(tmp_path / "labels.parquet")
    assert table.column("path").to_pylist() == list(PATHS)


def test_without_paths_there_is_nothing_to_quote(tmp_path):
    write_tables(tmp_path, label_table(Labels.from_array(np.zeros(3, int))), quote_formulas=True)
    head, first = (tmp_path / "labels.csv").read_text().splitlines()[:2]
    assert head == '"row","path","photo","identity","name","status","confidence"'
    assert first == '0,"","",0,"","labeled",1'


def test_identities_have_their_own_numbers_and_names():
    table = label_table(
        Labels.from_array([0, 0, 1, -1]),
        np.array([7, 7, 2, -1], np.int32),
        names={7: "Anna", 90: "Nobody here"},
    )
    assert table.column("identity").to_pylist() == [7, 7, 2, -1]
    assert table.column("name").to_pylist() == ["Anna", "Anna", "", ""]
    assert table.column("status").to_pylist() == ["labeled", "labeled", "labeled", "no_accepted_pair"]

"""Manifests from CSV and Parquet."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses

from cdp.data.manifest_tables import number_identities, read_table


def table(tmp_path, text):
    (tmp_path / "table.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_table(tmp_path / "table.csv")


def test_numbers_names_unknowns_and_other_columns(tmp_path):
    manifest = table(tmp_path, "\ufeffidentity,age,path\r\n12,3,a.png\r\n,4,b.png\r\n-1,5,c.png\r\n")
    assert manifest.locations == ("a.png", "b.png", "c.png")
    assert manifest.identities.tolist() == [12, -1, -1]
    assert manifest.names is None
    manifest = table(tmp_path, 'path,identity\n"a,b.png",anna\nb.png,007\nc.png,\n')
    assert manifest.locations[0] == "a,b.png"
    assert manifest.names == ("007", "anna")
    assert manifest.identities.tolist() == [1, 0, -1]


def test_without_identities(tmp_path):
    assert table(tmp_path, "path\na.png\n").identities.tolist() == [-1]


def test_names_that_only_look_like_numbers():
    assert number_identities(["7", "07"])[1] == ("07", "7")
    assert number_identities(["9" * 30])[1] == ("9" * 30,)
    assert number_identities(["1_000", "2"])[1] == ("1_000", "2")


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ("", "table-path-column-missing", {"found": ()}),
        ("file,identity\na,1\n", "table-path-column-missing", {"found": ("file", "identity")}),
        ("path,identity\n", "table-empty", {}),
        ("path,path\na,b\n", "file-name-repeated", {"name": "path", "what": "columns"}),
        (
            "path,identity\na.png,1\nb,c.png,2\n",
            "table-fields-differ",
            {"line": 3, "expected": 2, "found": 3},
        ),
        ("path,identity\na.png,1\n,2\n", "manifest-locations-missing", {"row": 1, "count": 1}),
        ("path,identity\na.png,-5\n", "manifest-identity-negative", {"row": 0, "count": 1}),
        (b"path\n\xff.png\n", "text-not-utf8", {}),
        ('path\n"a.png\n', "table-quote-open", {"line": 2}),
        ("path,turn\na.png,x\n", "table-turns-wrong", {}),
        ("path,turn\na.png,7\n", "manifest-turn-out-of-range", {"row": 0, "count": 1}),
        (
            "path,identity,identity_name\na,0,x\nb,0,y\n",
            "table-identity-named-twice",
            {"row": 1, "identity": 0, "names": ("x", "y")},
        ),
        (
            f"path,identity,identity_name\na,{2**40},x\n",
            "table-identity-too-large",
            {"identity": 1099511627776},
        ),
    ],
)
def test_refuses(tmp_path, text, code, fields):
    with refuses(code, **fields):
        table(tmp_path, text)


def test_missing_table(tmp_path):
    with refuses("table-missing", file=tmp_path / "table.csv"):
        read_table(tmp_path / "table.csv")
    with refuses("table-kind-unknown", file=tmp_path / "table.xlsx"):
        read_table(tmp_path / "table.xlsx")


def test_parquet(tmp_path):
    file = tmp_path / "table.parquet"
    pq.write_table(pa.table({"path": ["a", "b"], "identity": pa.array([4, None], pa.int32())}), file)
    assert read_table(file).identities.tolist() == [4, -1]
    pq.write_table(pa.table({"path": ["a", "b"], "identity": ["z", None]}), file)
    manifest = read_table(file)
    assert (manifest.names, manifest.identities.tolist()) == (("z",), [0, -1])
    pq.write_table(pa.table({"path": ["a", None]}), file)
    with refuses("manifest-locations-missing", file=tmp_path / "table.parquet", row=1, count=1):
        read_table(file)
    pq.write_table(pa.table({"picture": ["a"]}), file)
    with refuses("table-path-column-missing", file=tmp_path / "table.parquet", found=("picture",)):
        read_table(file)
    file.write_bytes(file.read_bytes()[:-9])
    with refuses("parquet-damaged", file=tmp_path / "table.parquet"):
        read_table(file)


def test_whole_float_identities_in_parquet_are_numbers(tmp_path):
    file = tmp_path / "table.parquet"
    pq.write_table(pa.table({"path": ["a", "b"], "identity": np.array([3.0, np.nan])}), file)
    assert read_table(file).identities.tolist() == [3, -1]

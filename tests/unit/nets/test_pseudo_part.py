"""Pseudo-labels from a collection, whose identities keep their own numbers, from saved labels, and from plain files."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from scipy import sparse
from tests.refusals import refuses

from cdp.nets.joint import read_pseudo_part
from cdp.types import Labels
from cdp.types.manifest import Manifest

NUMBERS = [40, 7, -1, 7, 40, 12]
LABELS = [0, 1, -1, 1, 0, 2]
PATHS = [f"anne/{row}.png" for row in range(6)]


@pytest.fixture
def images():
    return Manifest(tuple(PATHS), np.full(6, -1))


@pytest.fixture
def collection(tmp_path):
    """What read_pseudo_part looks at of a collection."""
    write_table(tmp_path, PATHS)
    write_siblings(tmp_path, [(7, 40, 0.9), (12, 40, 0.2)])
    sparse.save_npz(tmp_path / "soft_labels.npz", sparse.csr_array(np.eye(6, 3)))
    return tmp_path


def write_table(folder, paths, column="identity"):
    table = pa.table({"row": range(6), "path": paths, column: NUMBERS})
    pyarrow.parquet.write_table(table, folder / "labels.parquet")


def write_siblings(folder, pairs):
    columns = zip(*pairs, strict=True) if pairs else ((), (), ())
    names = ("identity", "other_identity", "probability")
    pyarrow.csv.write_csv(
        pa.table(dict(zip(names, map(list, columns), strict=True))), folder / "split_groups.csv"
    )


def test_identities_are_numbered_by_first_appearance(collection, images):
    part = read_pseudo_part(images, collection)
    assert part.labels.labels.tolist() == LABELS
    assert (part.soft, part.siblings) == (None, None)


@pytest.mark.parametrize(
    ("above", "kin"), [(0.5, [(0, 1), (1, 0)]), (0.1, [(0, 1), (0, 2), (1, 0), (2, 0)]), (0.95, [])]
)
def test_siblings_are_named_by_identities_and_become_labels(collection, images, above, kin):
    found = read_pseudo_part(images, collection, siblings=above).siblings
    assert found.shape == (3, 3)
    assert [tuple(pair) for pair in np.argwhere(found.toarray()).tolist()] == kin


def test_a_table_without_siblings(collection, images):
    write_siblings(collection, [])
    assert read_pseudo_part(images, collection, siblings=0.5).siblings.nnz == 0


def test_soft_labels_of_a_collection(collection, images):
    assert read_pseudo_part(images, collection, soft=True).soft.shape == (6, 3)
    (collection / "soft_labels.npz").unlink()
    with refuses("soft-labels-missing"):
        read_pseudo_part(images, collection, soft=True)


def test_labels_that_python_saved_and_files_of_numbers(tmp_path, images):
    Labels.from_array(NUMBERS).save(tmp_path / "labels")
    np.save(tmp_path / "labels.npy", NUMBERS)
    (tmp_path / "labels.txt").write_text("\n".join(map(str, NUMBERS)))
    for name in ("labels", "labels.npy", "labels.txt"):
        assert read_pseudo_part(images, tmp_path / name).labels.labels.tolist() == LABELS


def test_a_collection_of_other_images_is_refused(collection, images):
    write_table(collection, ["bob/0.png", *PATHS[1:]])
    with refuses("labels-of-other-manifest", row=0):
        read_pseudo_part(images, collection)
    # Where the collection knows no paths, only the number of rows can be compared.
    write_table(collection, [""] * 6)
    assert read_pseudo_part(images, collection).labels.labels.tolist() == LABELS
    with refuses("pseudo-rows-differ", expected=5, found=6):
        read_pseudo_part(Manifest(tuple(PATHS[:5]), np.full(5, -1)), collection)


def test_what_is_damaged_or_missing_is_named(collection, images, tmp_path):
    write_siblings(collection, [(7, 99, 0.9)])
    with refuses("siblings-unknown"):
        read_pseudo_part(images, collection, siblings=0.5)
    write_table(collection, PATHS, column="label")
    with refuses("labels-column-missing"):
        read_pseudo_part(images, collection)
    with refuses("labels-missing"):
        read_pseudo_part(images, tmp_path / "nowhere")

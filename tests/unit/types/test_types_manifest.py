"""The Manifest noun."""

import pickle

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.errors import OutputExistsError, StoreError
from cdp.types import Manifest


def small(**changes):
    fields = {
        "locations": ("a.png", "b.png", "c.png"),
        "identities": np.array([7, -1, 2]),
        "root": "/pictures",
    }
    return Manifest(**(fields | changes))


def test_counts_classes_and_sizes():
    manifest = small(locations=tuple("abcde"), identities=np.array([7, -1, 2, 7, 7]))
    assert len(manifest) == manifest.n_images == 5
    assert manifest.n_identities == 2
    assert manifest.classes.tolist() == [1, -1, 0, 1, 1]
    assert manifest.sizes.tolist() == [1, 3]
    assert repr(manifest) == "Manifest: 5 images, 2 identities, 1 images without"


def test_identities_are_int64_read_only_and_the_callers_array_is_untouched():
    given = np.array([3, 1, 2], np.uint8)
    manifest = small(identities=given)
    assert manifest.identities.dtype == np.int64
    assert not manifest.identities.flags.writeable
    assert given.flags.writeable


def test_take_by_rows_and_mask_keeps_numbers_names_and_turns():
    manifest = small(names=tuple("01234567"), turns=np.array([0, 3, 1]))
    part = manifest.take([2, 0])
    assert part.locations == ("c.png", "a.png")
    assert part.identities.tolist() == [2, 7]
    assert part.turns.tolist() == [1, 0]
    assert part.names == manifest.names
    assert part.root == "/pictures"
    assert manifest.take(manifest.identities >= 0).locations == ("a.png", "c.png")


def test_survives_pickling():
    manifest = pickle.loads(pickle.dumps(small(turns=np.array([0, 3, 1]))))
    assert manifest.turns.tolist() == [0, 3, 1]


@pytest.mark.parametrize(
    ("changes", "code", "fields"),
    [
        ({"locations": (), "identities": np.array([], int)}, "manifest-empty", {}),
        ({"locations": ("a", "", "c")}, "manifest-locations-missing", {"row": 1, "count": 1}),
        ({"locations": ("a", None, "c")}, "manifest-locations-missing", {"row": 1, "count": 1}),
        (
            {"identities": np.array([1, 2])},
            "manifest-shape-wrong",
            {"what": "identities", "expected": 3, "found": (2,)},
        ),
        (
            {"identities": np.array([0.5, 1, 2])},
            "manifest-not-whole",
            {"what": "identities", "found": "float64"},
        ),
        ({"identities": np.array([0, -2, 1])}, "manifest-identity-negative", {"row": 1, "count": 1}),
        ({"identities": np.array([0, 2**63, 1], np.uint64)}, "manifest-too-large", {"what": "identities"}),
        ({"names": ("x", "y")}, "manifest-identity-unnamed", {"identity": 7, "names": 2}),
        ({"turns": np.array([0, 4, 1])}, "manifest-turn-out-of-range", {"row": 1, "count": 1}),
    ],
)
def test_refuses(changes, code, fields):
    with refuses(code, **fields):
        small(**changes)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_save_and_load(tmp_path, suffix):
    manifest = small(
        locations=('odd, "name".png', "/elsewhere/b.png", "ä\nb.png"),
        names=tuple("abcdefgh"),
        turns=np.array([0, 1, 2]),
        root=str(tmp_path / "pictures"),
    )
    manifest.save(tmp_path / f"table{suffix}")
    back = Manifest.load(tmp_path / f"table{suffix}")
    assert back.locations == ('pictures/odd, "name".png', "/elsewhere/b.png", "pictures/ä\nb.png")
    assert back.root == str(tmp_path)
    assert back.identities.tolist() == [7, -1, 2]
    assert back.turns.tolist() == [0, 1, 2]
    assert (back.names[7], back.names[2]) == ("h", "c")


def test_save_beside_the_images_keeps_locations(tmp_path):
    small(root=str(tmp_path)).save(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == "path,identity\na.png,7\nb.png,-1\nc.png,2\n"


def test_save_never_overwrites_unasked_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    small().save(tmp_path / "table.csv")
    before = (tmp_path / "table.csv").read_bytes()
    with refuses("output-exists", OutputExistsError, file=tmp_path / "table.csv"):
        small().save(tmp_path / "table.csv")

    def full_disk(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cdp.data.manifest_tables.write_csv", full_disk)
    with refuses("disk-full", StoreError, file=tmp_path / "table.csv"):
        small().take([0]).save(tmp_path / "table.csv", force=True)
    assert (tmp_path / "table.csv").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]


def test_save_needs_a_known_ending(tmp_path):
    with refuses("table-ending-wrong", file=tmp_path / "table.txt"):
        small().save(tmp_path / "table.txt")

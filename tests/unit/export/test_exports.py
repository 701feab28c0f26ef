"""Every format comes back through our own reader: the same images, the same people."""

import csv
import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.image_layouts import MAGIC_BYTES, frame, picture, write_folders, write_zip
from tests.refusals import refuses

from cdp import read_manifest
from cdp.data.images import open_images
from cdp.data.record_files import RecordFile
from cdp.errors import InputError, OutputExistsError
from cdp.export.export_formats import FORMATS, ExportOptions, export_images
from cdp.export.grouped_images import GroupedImages
from cdp.export.person_folders import person_folder_names
from cdp.export.record_writer import frame_record
from cdp.export.safe_names import UniqueNames, safe_name
from cdp.types import Manifest

IDENTITY = np.array([7, -1, 3, 7, 3, 7, 12, 12])
NAMES = {7: "Anna Öğüt", 3: "../../etc/passwd", 12: ""}


@pytest.fixture
def grouped(tmp_path):
    names = [f"{row}.png" for row in range(6)]
    write_folders(tmp_path / "photos", {"mixed": names})
    write_zip(tmp_path / "photos" / "more.zip", {"x/6.png": picture(6), "x/7.png": picture(7)})
    locations = (*(f"mixed/{name}" for name in names), "more.zip!x/6.png", "more.zip!x/7.png")
    images = Manifest(locations, np.full(8, -1), root=str(tmp_path / "photos"))
    return GroupedImages(IDENTITY, np.linspace(0, 1, 8), NAMES, images)


def shades(manifest):
    """Which image it is: its shade is its row."""
    reader = open_images(manifest)
    return [int(reader.image(row)[-1, -1, 0]) for row in range(len(manifest))]


def partition(shade, identities):
    groups = {}
    for one, who in zip(shade, np.asarray(identities).tolist(), strict=True):
        groups.setdefault(who, set()).add(one)
    return {frozenset(group) for group in groups.values()}


PEOPLE = {frozenset({0, 3, 5}), frozenset({2, 4}), frozenset({6, 7})}


READ_BACK = ("folders", "csv", "parquet", "records", "webdataset", "list")


@pytest.mark.parametrize("form", READ_BACK)
def test_what_is_exported_is_read_back(grouped, tmp_path, form):
    out = tmp_path / "deep" / ("out" + (f".{form}" if form in ("csv", "parquet") else ""))
    assert export_images(grouped, form, out).n_images == 7
    back = read_manifest(out)
    assert partition(shades(back), back.identities) == PEOPLE
    with refuses("output-exists", OutputExistsError):
        export_images(grouped, form, out)
    assert export_images(grouped, form, out, ExportOptions(force=True)).n_images == 7


@pytest.mark.parametrize(
    "form", ["folders", "records", "webdataset", "list", "coco", "fiftyone", "imagefolder"]
)
def test_the_same_groups_give_the_same_bytes(grouped, tmp_path, form):
    texts = []
    for name in ("one", "two"):
        export_images(grouped, form, tmp_path / name, ExportOptions(images_per_shard=2))
        files = sorted(one for one in (tmp_path / name).rglob("*") if one.is_file())
        texts.append([(str(one.relative_to(tmp_path / name)), one.read_bytes()) for one in files])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("copies", [False, True])
def test_folders_hold_links_or_copies_and_a_table_says_what_went_where(grouped, tmp_path, copies):
    out = tmp_path / "out"
    assert export_images(grouped, "folders", out, ExportOptions(copies=copies, discarded=True)).n_images == 8
    folders = {one.name: sorted(os.listdir(one)) for one in out.iterdir() if one.is_dir()}
    assert folders == {
        "Anna Öğüt": ["0000000_0.png", "0000003_3.png", "0000005_5.png"],
        "_.._etc_passwd": ["0000002_2.png", "0000004_4.png"],
        "person-000012": ["0000006_6.png", "0000007_7.png"],
        "_discarded": ["0000001_1.png"],
    }
    linked = (out / "Anna Öğüt" / "0000003_3.png").is_symlink()
    assert linked is not copies
    assert not (out / "person-000012" / "0000006_6.png").is_symlink()  # it lies in an archive
    with (out / "exported.csv").open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [int(line["row"]) for line in table] == list(range(8))
    assert [int(line["identity"]) for line in table] == IDENTITY.tolist()
    assert table[2]["name"] == "../../etc/passwd"
    assert table[6] | {"confidence": ""} == {
        "row": "6", "identity": "12", "name": "", "file": "person-000012/0000006_6.png", "made": "copy",
        "source": "more.zip!x/6.png", "confidence": "",
    }  # fmt: skip
    for line in table:
        assert (out / line["file"]).is_file()


def test_record_files_are_those_of_insightface(grouped, tmp_path):
    export_images(grouped, "records", tmp_path / "out")
    records = RecordFile(tmp_path / "out" / "train.rec")
    keys, identities = records.images()
    assert keys.tolist() == list(range(1, 8))
    assert identities.tolist() == [0, 0, 1, 1, 1, 2, 2]  # by identity number: 3, 7, 12
    header = records.payload(0, 0)
    assert struct.unpack_from("<2f", header, 24) == (8.0, 11.0)
    spans = [
        struct.unpack_from("<2f", records.payload(key, int(records.offsets[key])), 24) for key in (8, 9, 10)
    ]
    assert spans == [(1.0, 3.0), (3.0, 6.0), (6.0, 8.0)]
    assert (tmp_path / "out" / "property").read_text() == "3,4,6"
    assert (tmp_path / "out" / "identities.csv").read_text().splitlines()[1:] == [
        "0,3,../../etc/passwd,2", "1,7,Anna Öğüt,3", "2,12,,2",
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from([MAGIC_BYTES, b"a", b"abcd", MAGIC_BYTES[:2], b"\0\0"]), max_size=12).map(
        b"".join
    )
)
def test_records_are_cut_at_the_magic_number(payload):
    assert frame_record(payload) == frame(payload)


def test_shards_are_cut_and_named_by_row(grouped, tmp_path):
    export_images(grouped, "webdataset", tmp_path / "out", ExportOptions(images_per_shard=3))
    shards = sorted(one.name for one in (tmp_path / "out").glob("*.tar"))
    assert shards == ["shard-000000.tar", "shard-000001.tar", "shard-000002.tar"]
    back = read_manifest(tmp_path / "out")
    assert back.locations[0] == "shard-000000.tar!000000000.png"
    assert shards[-1] in back.locations[-1]
    assert shades(back) == [0, 2, 3, 4, 5, 6, 7]


def test_a_list_has_a_path_and_a_class_per_line(grouped, tmp_path):
    export_images(grouped, "list", tmp_path / "out")
    assert (tmp_path / "out" / "list.txt").read_text().splitlines()[0] == "../photos/mixed/0.png"
    assert (tmp_path / "out" / "meta.txt").read_text().split() == ["1", "0", "1", "0", "1", "2", "2"]


def test_embeddings_alone_are_exported_as_tables_only(tmp_path):
    grouped = GroupedImages(IDENTITY, np.ones(8), NAMES)
    for form in set(FORMATS) - {"csv", "parquet"}:
        with refuses("export-needs-photos" if form == "xmp" else "export-needs-images"):
            export_images(grouped, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert export_images(grouped, "csv", tmp_path / "out.csv", ExportOptions(discarded=True)).n_images == 8
    assert (tmp_path / "out.csv").read_text().splitlines()[:3] == [
        "row,identity,identity_name,confidence", "0,7,Anna Öğüt,1", "1,-1,,1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "out", "options", "message"),
    [
        ("xml", "out", {}, "xml: no such format; choose one of folders, csv"),
        ("csv", "out", {}, "a csv table is one file; call it out.csv"),
        (
            "records",
            "out",
            {"discarded": True},
            "records has no --discarded; leave it out, or choose folders or csv",
        ),
        ("csv", "out.csv", {"photos": True}, "csv has no --photos"),
        ("list", "out", {"unnamed": True}, "list has no --unnamed"),
    ],
)
def test_what_cannot_be_exported_is_said(grouped, tmp_path, form, out, options, message):
    with pytest.raises(InputError, match=message):
        export_images(grouped, form, tmp_path / out, ExportOptions(**options))


def test_an_image_that_is_gone_is_named_and_nothing_is_left(grouped, tmp_path):
    (tmp_path / "photos/mixed/3.png").unlink()
    linked = [
        ("folders", False),
        ("records", False),
        ("webdataset", False),
        ("coco", False),
        ("fiftyone", True),
    ]
    for form, copies in [*linked, ("folders", True), ("imagefolder", False)]:
        with pytest.raises(InputError, match=r"row 3 \(mixed/3.png\)"):
            export_images(grouped, form, tmp_path / "out", ExportOptions(copies=copies))
        assert [one.name for one in tmp_path.iterdir()] == ["photos"]


def test_a_list_has_no_place_for_line_feeds(tmp_path):
    (tmp_path / "a\nb.png").write_bytes(picture(0))
    images = Manifest(("a\nb.png",), np.array([-1]), root=str(tmp_path))
    with refuses("export-path-has-line-feed"):
        export_images(GroupedImages(np.array([0]), np.ones(1), {}, images), "list", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("Anna", "Anna"),
        ("../../etc", "_.._etc"),
        ('a/b\\c:d*e?f"g<h>i|j', "a_b_c_d_e_f_g_h_i_j"),
        ("...", "_"),
        ("", "_"),
        (" . ", "_"),
        ("CON", "CON_"),
        ("nul.txt", "nul.txt_"),
        ("-rf", "_rf"),
        ("line\nfeed\x00\u202e", "line_feed__"),
        ("é", "é"),
        ("می‌خواهم", "می‌خواهم"),
    ],
)
def test_names_are_made_safe(name, safe):
    assert safe_name(name) == safe


@given(st.lists(st.text(max_size=300), max_size=8))
def test_no_name_leads_elsewhere_or_occurs_twice(names):
    unique = UniqueNames("_discarded")
    made = [unique.take(name) for name in names]
    assert len({name.casefold() for name in made} | {"_discarded"}) == len(made) + 1
    for name in made:
        assert name not in (".", "..")
        assert not set(name) & set('/\\\0:*?"<>|')
        assert len(name.encode()) <= 140


def test_people_of_one_name_get_two_folders():
    names = {1: "Anna", 2: "anna", 3: "person-000004", 5: "_discarded"}
    grouped = GroupedImages(np.array([1, 2, 3, 4, 5]), np.ones(5), names)
    assert person_folder_names(grouped) == {
        1: "Anna", 2: "anna (2)", 3: "person-000004 (2)", 4: "person-000004", 5: "_discarded (2)", -1: "_discarded",
    }  # fmt: skip

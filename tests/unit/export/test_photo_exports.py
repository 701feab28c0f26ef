"""Exports of faces on photos: every format names the photo and the box; those of images are as before."""

import csv
import json
import math
import os
import tarfile

import numpy as np
import pyarrow.parquet
import pytest
from tests.image_layouts import picture, write_folders, write_zip
from tests.refusals import refuses
from tests.xmp_photos import photo

from cdp import read_manifest
from cdp.export.export_formats import ExportOptions, export_images
from cdp.export.grouped_images import GroupedImages
from cdp.export.resorted_folders import read_export_table
from cdp.faces.face_tables import FaceRow
from cdp.types import Manifest

NAMES = {3: "Anna", 7: "Berta"}
POINTS = (math.nan,) * 10
SIDES = ("left", "top", "right", "bottom")


@pytest.fixture
def album(tmp_path):
    """Crops of five faces on three photos, two of one name: Anna is on all, Berta on one, one is in no group."""
    for folder in ("photos/2020", "photos/2021", "crops"):
        (tmp_path / folder).mkdir(parents=True)
    beach = photo(tmp_path / "photos/2020/beach.jpg")
    again = photo(tmp_path / "photos/2021/beach.jpg", orientation=6)  # 100 x 200 upright
    park = photo(tmp_path / "photos/2021/park.png")
    places = [(beach, (40, 30, 60, 50)), (beach, (140, 30, 170, 60)), (again, (10, 120, 50, 160)),
              (park, (-5, 10, 20, 40)), (park, (90, 10, 120, 40))]  # fmt: skip
    faces = [FaceRow(str(place), box, POINTS, score=0.5 + at / 10) for at, (place, box) in enumerate(places)]
    for row in range(5):
        (tmp_path / f"crops/f{row}0aa1.png").write_bytes(picture(row))
    images = Manifest(tuple(f"crops/f{row}0aa1.png" for row in range(5)), np.full(5, -1), root=str(tmp_path))
    return GroupedImages(np.array([3, 7, 3, 3, -1]), np.linspace(0, 1, 5), NAMES, images, faces)


@pytest.fixture
def plain(tmp_path):
    """Four images of two people, one inside an archive."""
    write_folders(tmp_path / "plain", {"mixed": ["0.png", "1.png", "2.png"]})
    write_zip(tmp_path / "plain/more.zip", {"x/3.png": picture(3)})
    locations = (*(f"mixed/{row}.png" for row in range(3)), "more.zip!x/3.png")
    images = Manifest(locations, np.full(4, -1), root=str(tmp_path / "plain"))
    return GroupedImages(np.array([4, 4, 9, 9]), np.ones(4), {4: "Anna"}, images)


def table(file):
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_tables_name_the_photo_and_the_box(album, plain, tmp_path):
    export_images(album, "csv", tmp_path / "deep/out.csv", ExportOptions(discarded=True))
    rows = table(tmp_path / "deep/out.csv")
    assert rows[1] == {
        "row": "1", "path": "../crops/f10aa1.png", "identity": "7", "identity_name": "Berta", "confidence": "0.25",
        "photo": "../photos/2020/beach.jpg", "left": "140.00", "top": "30.00", "right": "170.00", "bottom": "60.00",
        "score": "0.6000",
    }  # fmt: skip
    assert [(tmp_path / "deep" / row["photo"]).is_file() for row in rows] == [True] * 5
    assert len(read_manifest(tmp_path / "deep/out.csv")) == 5
    export_images(album, "parquet", tmp_path / "out.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert found["left"] == [40, 140, 10, -5]
    assert found["photo"][3] == "photos/2021/park.png"
    export_images(plain, "csv", tmp_path / "plain.csv")
    assert list(table(tmp_path / "plain.csv")[0]) == [
        "row",
        "path",
        "identity",
        "identity_name",
        "confidence",
    ]


def test_a_photo_that_is_the_face_has_no_box_in_a_table(album, tmp_path):
    faces = [FaceRow(one.photo, (math.nan,) * 4, POINTS) for one in album.faces[:4]] + [None]
    grouped = GroupedImages(album.identity, album.confidence, NAMES, album.images, faces)
    export_images(grouped, "csv", tmp_path / "out.csv", ExportOptions(discarded=True))
    rows = table(tmp_path / "out.csv")
    assert [rows[0][side] for side in (*SIDES, "score")] == [""] * 5
    assert rows[0]["photo"] == "photos/2020/beach.jpg"
    assert rows[4]["photo"] == ""
    export_images(grouped, "folders", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out/Berta")) == ["0000001_beach.png"]


def test_crops_are_called_after_their_photos(album, tmp_path):
    export_images(album, "folders", tmp_path / "out", ExportOptions(copies=True, discarded=True))
    found = {one.name: sorted(os.listdir(one)) for one in (tmp_path / "out").iterdir() if one.is_dir()}
    assert found == {
        "Anna": ["0000000_beach-1.png", "0000002_beach-1.png", "0000003_park-1.png"],
        "Berta": ["0000001_beach-2.png"],
        "_discarded": ["0000004_park-2.png"],
    }
    rows = table(tmp_path / "out/exported.csv")
    assert (rows[1]["photo"], rows[1]["left"]) == ("../photos/2020/beach.jpg", "140.00")
    assert read_export_table(tmp_path / "out").identity == {0: 3, 1: 7, 2: 3, 3: 3, 4: -1}


@pytest.mark.parametrize("copies", [False, True])
def test_folders_of_whole_photos(album, tmp_path, copies):
    result = export_images(album, "folders", tmp_path / "out", ExportOptions(copies=copies, photos=True))
    assert (result.n_images, result.n_people, result.notes) == (4, 2, ())
    found = {one.name: sorted(os.listdir(one)) for one in (tmp_path / "out").iterdir() if one.is_dir()}
    assert found == {"Anna": ["beach (2).jpg", "beach.jpg", "park.png"], "Berta": ["beach.jpg"]}
    both = [(tmp_path / "out" / who / "beach.jpg").read_bytes() for who in ("Anna", "Berta")]
    assert both == [(tmp_path / "photos/2020/beach.jpg").read_bytes()] * 2
    assert (tmp_path / "out/Anna/beach.jpg").is_symlink() is not copies
    rows = table(tmp_path / "out/photos.csv")
    assert [(one["file"], one["left"]) for one in rows] == [
        ("Anna/beach.jpg", "40.00"), ("Berta/beach.jpg", "140.00"), ("Anna/beach (2).jpg", "10.00"),
        ("Anna/park.png", "-5.00"),
    ]  # fmt: skip
    with refuses("export-table-missing"):
        read_export_table(tmp_path / "out")


def test_whole_photos_that_are_gone_are_left_out_and_told(album, plain, tmp_path):
    (tmp_path / "photos/2020/beach.jpg").unlink()
    for form, options in (("folders", {"photos": True}), ("coco", {}), ("fiftyone", {}), ("imagefolder", {})):
        result = export_images(album, form, tmp_path / form, ExportOptions(**options))
        assert (result.n_images, result.n_people, len(result.notes)) == (2, 1, 1)
    for name in ("2021/beach.jpg", "2021/park.png"):
        (tmp_path / "photos" / name).unlink()
    for form, options in (("folders", {"photos": True}), ("coco", {})):
        with refuses("export-photos-gone"):
            export_images(album, form, tmp_path / "none", ExportOptions(**options))
    with refuses("export-needs-photos"):
        export_images(plain, "folders", tmp_path / "none", ExportOptions(photos=True))
    assert not (tmp_path / "none").exists()


def test_training_formats_have_photo_and_box_beside(album, plain, tmp_path):
    for form in ("list", "records"):
        export_images(album, form, tmp_path / form)
        rows = table(tmp_path / form / "boxes.csv")
        assert sorted(int(one["row"]) for one in rows) == [0, 1, 2, 3]
        assert rows[0]["photo"] == "../photos/2020/beach.jpg"
        assert len(read_manifest(tmp_path / form)) == 4
        export_images(plain, form, tmp_path / f"plain-{form}")
        assert not (tmp_path / f"plain-{form}/boxes.csv").exists()
    assert [int(one["row"]) for one in table(tmp_path / "records/boxes.csv")] == [0, 2, 3, 1], (
        "in order of keys"
    )


def test_shards_have_photo_and_box_as_json(album, plain, tmp_path):
    export_images(album, "webdataset", tmp_path / "out")
    with tarfile.open(tmp_path / "out/shard-000000.tar") as archive:
        assert archive.getnames()[:3] == ["000000000.png", "000000000.cls", "000000000.json"]
        about = json.load(archive.extractfile("000000001.json"))
    assert about == {
        "row": 1, "identity": 7, "name": "Berta", "photo": "../photos/2020/beach.jpg",
        "left": 140, "top": 30, "right": 170, "bottom": 60, "score": 0.6,
    }  # fmt: skip
    assert len(read_manifest(tmp_path / "out")) == 4
    export_images(plain, "webdataset", tmp_path / "plain-out")
    with tarfile.open(tmp_path / "plain-out/shard-000000.tar") as archive:
        assert not any(name.endswith(".json") for name in archive.getnames())


def test_coco(album, tmp_path):
    result = export_images(album, "coco", tmp_path / "out")
    assert (result.n_images, result.n_people) == (3, 2)
    found = json.loads((tmp_path / "out/instances.json").read_text(encoding="utf-8"))
    assert found["categories"] == [
        {"id": 1, "name": "Anna", "supercategory": "person", "identity": 3},
        {"id": 2, "name": "Berta", "supercategory": "person", "identity": 7},
    ]
    assert found["images"] == [
        {"id": 1, "file_name": "beach.jpg", "width": 200, "height": 100},
        {"id": 2, "file_name": "beach (2).jpg", "width": 100, "height": 200},
        {"id": 3, "file_name": "park.png", "width": 200, "height": 100},
    ]
    boxes = [(one["image_id"], one["category_id"], one["bbox"], one["area"]) for one in found["annotations"]]
    assert boxes == [
        (1, 1, [40, 30, 20, 20], 400), (1, 2, [140, 30, 30, 30], 900), (2, 1, [10, 120, 40, 40], 1600),
        (3, 1, [0, 10, 20, 30], 600),
    ]  # fmt: skip
    for one in found["images"]:
        assert (tmp_path / "out/images" / one["file_name"]).is_file()


def test_fiftyone(album, tmp_path):
    export_images(album, "fiftyone", tmp_path / "out", ExportOptions(copies=True))
    found = json.loads((tmp_path / "out/labels.json").read_text(encoding="utf-8"))
    assert found["classes"] == ["Anna", "Berta"]
    assert set(found["labels"]) == {os.path.splitext(one)[0] for one in os.listdir(tmp_path / "out/data")}
    assert [(one["label"], one["bounding_box"]) for one in found["labels"]["beach"]] == [
        (0, [0.2, 0.3, 0.1, 0.2]), (1, [0.7, 0.3, 0.15, 0.3]),
    ]  # fmt: skip
    assert found["labels"]["beach (2)"][0]["bounding_box"] == [0.1, 0.6, 0.4, 0.2]


def test_imagefolder(album, tmp_path):
    export_images(album, "imagefolder", tmp_path / "out")
    lines = [
        json.loads(line)
        for line in (tmp_path / "out/metadata.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert lines[0] == {
        "file_name": "images/beach.jpg", "width": 200, "height": 100,
        "objects": {
            "id": [0, 1], "bbox": [[40, 30, 20, 20], [140, 30, 30, 30]], "area": [400, 900], "categories": [0, 1],
            "names": ["Anna", "Berta"],
        },
    }  # fmt: skip
    assert all((tmp_path / "out" / one["file_name"]).is_file() for one in lines)
    assert table(tmp_path / "out/identities.csv")[1]["name"] == "Berta"


@pytest.mark.parametrize(
    ("form", "inside"), [("coco", "images"), ("fiftyone", "data"), ("imagefolder", "images")]
)
def test_images_that_are_on_no_photo_have_a_box_around_them(plain, tmp_path, form, inside):
    result = export_images(plain, form, tmp_path / "out")
    assert (result.n_images, result.n_people) == (4, 2)
    assert sorted(os.listdir(tmp_path / "out" / inside)) == ["0.png", "1.png", "2.png", "3.png"]
    assert not (tmp_path / "out" / inside / "3.png").is_symlink(), "it is in an archive"
    if form == "coco":
        found = json.loads((tmp_path / "out/instances.json").read_text())
        assert {tuple(one["bbox"]) for one in found["annotations"]} == {(0, 0, 6, 4)}
        assert [one["name"] for one in found["categories"]] == ["Anna", "person-000009"]
    elif form == "fiftyone":
        found = json.loads((tmp_path / "out/labels.json").read_text())
        assert found["labels"]["3"][0]["bounding_box"] == [0, 0, 1, 1]


def test_people_of_one_name_are_two():
    grouped = GroupedImages(np.array([1, 2, 3]), np.ones(3), {1: "Anna", 2: "Anna"})
    assert grouped.titles() == {1: "Anna", 2: "Anna (2)", 3: "person-000003"}

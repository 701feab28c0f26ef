"""Folders sorted again by hand, as a file manager does it, come in as corrections."""

import os
import shutil

import numpy as np
import pytest
from tests.image_layouts import write_folders
from tests.refusals import refuses

from cdp.collection.corrections import different, named, rejected, same
from cdp.errors import InputError
from cdp.export.export_formats import ExportOptions, export_images
from cdp.export.grouped_images import GroupedImages
from cdp.export.resorted_folders import read_export_table, read_resorted, resorted_corrections
from cdp.types import Manifest

IDENTITY = np.array([5, 5, 5, 5, 8, 8, 8, 9, 9, -1])
CONFIDENCE = np.array([0.9, 0.8, 0.7, 0.6, 0.9, 0.8, 0.7, 0.9, 0.8, 0.0])


@pytest.fixture(params=["links", "copies"])
def out(tmp_path, request):
    names = [f"{row}.png" for row in range(10)]
    write_folders(tmp_path / "photos", {"all": names})
    images = Manifest(tuple(f"all/{name}" for name in names), np.full(10, -1), root=str(tmp_path / "photos"))
    grouped = GroupedImages(IDENTITY, CONFIDENCE, {8: "Bob"}, images)
    options = ExportOptions(discarded=True, copies=request.param == "copies")
    export_images(grouped, "folders", tmp_path / "out", options)
    return tmp_path / "out"


def move(out, row, folder):
    (file,) = out.glob(f"*/{row:07d}_*")
    (out / folder).mkdir(exist_ok=True)
    os.rename(file, out / folder / file.name)


def resorted(out, **options):
    exported = read_export_table(out)
    return resorted_corrections(exported, *read_resorted(out, exported), **options)


def test_nothing_changed_says_nothing(out):
    found = resorted(out)
    assert (found.corrections, found.moved, found.renamed, found.missing, found.foreign) == (
        (),
        (),
        {},
        (),
        (),
    )


def test_a_moved_image_is_the_same_as_there_and_not_as_where_it_was(out):
    move(out, 3, "Bob")
    found = resorted(out)
    assert found.corrections == (same(4, 5, 6, 3), different(3, 0), different(3, 1), different(3, 2))
    assert found.moved == (3,)


def test_two_images_from_one_folder_to_another_stay_together(out):
    move(out, 2, "Bob")
    move(out, 3, "Bob")
    assert resorted(out).corrections == (same(4, 5, 6, 2, 3), different(2, 0), different(2, 1))


def test_a_folder_emptied_into_another_is_a_merge(out):
    for row in (7, 8):
        move(out, row, "Bob")
    os.rmdir(out / "person-000009")
    assert resorted(out).corrections == (same(4, 5, 6, 7, 8),)


def test_a_renamed_folder_is_a_name(out):
    os.rename(out / "person-000005", out / "Anna  Lee")
    found = resorted(out)
    assert found.corrections == (named("Anna Lee", 0, 1, 2, 3),)
    assert found.renamed == {"person-000005": "Anna  Lee"}
    assert found.moved == ()


def test_a_renamed_folder_with_others_moved_into_it(out):
    os.rename(out / "person-000005", out / "Anna")
    move(out, 6, "Anna")
    apart = (different(6, 4), different(6, 5))
    assert resorted(out).corrections == (same(0, 1, 2, 6), *apart, named("Anna", 0, 1, 2, 6, 3))


def test_images_in_a_new_folder_are_a_new_person(out):
    move(out, 2, "Carl")
    move(out, 3, "Carl")
    move(out, 9, "Carl")
    found = resorted(out)
    assert found.corrections == (same(2, 3, 9), different(2, 0), different(2, 1), named("Carl", 2, 3, 9))


def test_an_image_put_among_the_discarded_is_rejected_and_one_taken_out_joins(out):
    move(out, 0, "_discarded")
    move(out, 9, "Bob")
    assert resorted(out).corrections == (rejected(0), same(4, 5, 6, 9))


def test_what_was_removed_is_rejected_only_if_asked(out):
    (file,) = out.glob("*/0000001_*")
    file.unlink()
    shutil.rmtree(out / "person-000009")
    assert resorted(out).corrections == ()
    assert resorted(out).missing == (1, 7, 8)
    assert resorted(out, reject_missing=True).corrections == (rejected(1, 7, 8),)


def test_foreign_files_are_left_alone(out):
    (out / "Bob" / "holiday.jpg").write_bytes(b"x")
    (out / "Bob" / "notes.txt").write_text("x")
    (out / "Bob" / ".DS_Store").write_text("x")
    (out / "Bob" / "9999999_x.jpg").write_bytes(b"x")
    found = resorted(out)
    assert found.corrections == ()
    assert found.foreign == ("Bob/9999999_x.jpg", "Bob/holiday.jpg")


def test_an_image_in_two_folders_or_in_none_is_refused(out):
    (file,) = out.glob("*/0000001_*")
    shutil.copy(file, out / "Bob")
    with pytest.raises(
        InputError, match=r"0000001_1.png is in both Bob and person-000005; an image is of one person"
    ):
        resorted(out)
    os.rename(file, out / file.name)
    (out / "Bob" / file.name).unlink()
    with refuses("sorted-image-in-no-folder"):
        resorted(out)


def test_another_folder_is_refused(tmp_path):
    with refuses("export-table-missing"):
        read_export_table(tmp_path)
    (tmp_path / "exported.csv").write_text("row,identity,file,confidence,source\n1,2,a/b,high,x\n")
    with refuses("export-table-damaged", line=2):
        read_export_table(tmp_path)

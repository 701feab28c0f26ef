"""Photos below folders: any nesting, what is left out and why, and which are new, renamed, copied or gone."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.refusals import refuses

from cdp.data.images import decode
from cdp.faces.photo_scan import scan_photos, stamp_photos
from cdp.faces.photo_table import (
    Photo,
    compare_photos,
    left_out_in_words,
    read_photo_table,
    update_photos,
    write_photo_table,
)


def draw(file, seed):
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (20, 30, 3), np.uint8)).save(file)


@pytest.fixture
def photos(tmp_path):
    """A folder as people have them."""
    home = tmp_path / "photos"
    for seed, name in enumerate(
        ("DSC_0001.JPG", "2019 Holiday/a.jpg", "2019 Holiday/day 2/b.png", "Anna/c.jpeg")
    ):
        draw(home / name, seed)
    draw(home / "@eaDir/DSC_0001.JPG/thumb.jpg", 9)
    draw(home / ".hidden/d.jpg", 9)
    for name in ("film.MP4", "raw.CR2", "image.psd", "notes.txt", "DSC_0001.JPG.xmp"):
        (home / name).write_text("x")
    return home


def test_any_nesting_is_fine_and_folder_names_mean_nothing(photos):
    scan = scan_photos(photos)
    assert list(scan.photos.locations) == [
        "DSC_0001.JPG",
        "2019 Holiday/a.jpg",
        "2019 Holiday/day 2/b.png",
        "Anna/c.jpeg",
    ]
    assert (scan.photos.identities == -1).all()
    assert {Path(one.path).name: one.reason.partition(";")[0] for one in scan.left_out} == {
        "film.MP4": "a video",
        "raw.CR2": "a camera raw file",
        "image.psd": "an image format that is not supported",
    }
    assert scan.n_thumbnails == 1


def test_folder_names_are_people_where_asked_for(photos):
    scan = scan_photos(photos, identities="folders")
    names = [scan.photos.names[one] if one >= 0 else "" for one in scan.photos.identities]
    assert names == ["", "2019 Holiday", "day 2", "Anna"]


def test_links_do_not_lead_in_circles(photos):
    (photos / "Anna/again").symlink_to(photos)
    (photos / "Anna/link.jpg").symlink_to(photos / "DSC_0001.JPG")
    scan = scan_photos(photos)
    stamps = stamp_photos(scan, {})
    changes = compare_photos([], scan, stamps)
    assert len(changes.new) == 4
    assert [Path(one).name for one in changes.copies] == ["link.jpg"]


def test_a_folder_without_photos_is_refused_and_says_what_there_is(tmp_path):
    (tmp_path / "film.mp4").write_text("x")
    with refuses("photos-missing", folder=tmp_path):
        scan_photos(tmp_path)


def look(folder, before, faces=1):
    """One step of an album: what changed, and the photos afterwards; every photo has a face."""
    scan = scan_photos(folder)
    stamps = stamp_photos(scan, {one.path: one.stamp for one in before})
    changes = compare_photos(before, scan, stamps)
    found = dict.fromkeys(changes.new, ("faces", faces, ""))
    return changes, update_photos(before, changes, scan, stamps, found), scan


def test_copies_renames_replacements_and_what_is_gone(photos):
    changes, before, _ = look(photos, [])
    assert len(changes.new) == 4
    assert look(photos, before)[0].new == ()
    shutil.copy(photos / "DSC_0001.JPG", photos / "copy.jpg")
    (photos / "Anna/c.jpeg").rename(photos / "Anna/renamed.jpeg")
    (photos / "2019 Holiday/a.jpg").unlink()
    draw(photos / "2019 Holiday/day 2/b.png", 77)
    changes, after, scan = look(photos, before)
    assert [Path(scan.photos.locations[row]).name for row in changes.new] == ["b.png"]
    assert {Path(old).name: Path(new).name for old, new in changes.renamed.items()} == {
        "c.jpeg": "renamed.jpeg"
    }
    assert {Path(one).name: Path(two).name for one, two in changes.copies.items()} == {
        "copy.jpg": "DSC_0001.JPG"
    }
    assert sorted(Path(one).name for one in changes.gone) == ["a.jpg", "b.png"]
    status = sorted((Path(one.path).name, one.status) for one in after if one.status != "not supported")
    assert status == [
        ("DSC_0001.JPG", "faces"),
        ("a.jpg", "gone"),
        ("b.png", "faces"),
        ("b.png", "gone"),
        ("copy.jpg", "copy"),
        ("renamed.jpeg", "faces"),
    ]
    words = left_out_in_words(after, 1)
    assert words.startswith("2 gone since (their faces are kept), ")
    assert words.endswith("1 thumbnail")
    # Nothing changes when nothing changed, and what was gone may come back.
    assert look(photos, after)[0].new == ()
    draw(photos / "2019 Holiday/a.jpg", 1)
    again, restored, _ = look(photos, after)
    assert again.new == ()
    assert ("a.jpg", "faces") in {(Path(one.path).name, one.status) for one in restored}


def test_copies_that_were_moved_are_counted_once(photos, tmp_path):
    shutil.copy(photos / "DSC_0001.JPG", photos / "copy.jpg")
    _, before, _ = look(photos, [])
    photos.rename(tmp_path / "moved")
    _, after, _ = look(tmp_path / "moved", before)
    copies = [one.path for one in after if one.status == "copy"]
    assert len(copies) == 1
    assert copies[0].startswith(str(tmp_path / "moved"))


def test_what_could_not_be_read_is_looked_at_again(photos):
    scan = scan_photos(photos)
    stamps = stamp_photos(scan, {})
    found = dict.fromkeys(range(len(scan.photos)), ("unreadable", 0, "cut short"))
    before = update_photos([], compare_photos([], scan, stamps), scan, stamps, found)
    changes, after, _ = look(photos, before)
    assert (len(changes.new), changes.again) == (4, 4)
    assert sum(one.status == "faces" for one in after) == 4
    assert not any(one.status == "unreadable" for one in after)


def test_a_folder_that_was_moved_is_known_by_its_bytes(photos, tmp_path):
    _, before, _ = look(photos, [])
    photos.rename(tmp_path / "elsewhere")
    changes, after, _ = look(tmp_path / "elsewhere", before)
    assert changes.new == changes.gone == ()
    assert len(changes.renamed) == 4
    assert all("elsewhere" in one.path for one in after if one.status == "faces")


def test_the_table_reads_back_as_it_was_written_and_moves_with_the_photos(photos, tmp_path):
    _, before, _ = look(photos, [])
    album = tmp_path / "album"
    write_photo_table(album, before)
    assert read_photo_table(album) == sorted(before, key=lambda one: (one.path, one.status))
    moved = tmp_path / "moved"
    moved.mkdir()
    photos.rename(moved / "photos")
    album.rename(moved / "album")
    assert all(os.path.exists(one.path) for one in read_photo_table(moved / "album"))
    assert read_photo_table(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["photo,status\na,b\n", "photo,status,faces,reason,sha256,bytes,changed\na,b,many,,,0,0\n"]
)
def test_a_damaged_table_is_refused(tmp_path, text):
    (tmp_path / "photos.csv").write_text(text)
    with refuses("photo-table-damaged", file=tmp_path / "photos.csv"):
        read_photo_table(tmp_path)


def test_heic_and_avif_are_images(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    pixels = np.full((32, 48, 3), 128, np.uint8)
    heif.from_pillow(Image.fromarray(pixels)).save(tmp_path / "a.heic")
    Image.fromarray(pixels).save(tmp_path / "b.avif")
    assert list(scan_photos(tmp_path).photos.locations) == ["a.heic", "b.avif"]
    for name in ("a.heic", "b.avif"):
        found = decode((tmp_path / name).read_bytes())
        assert found.shape == (32, 48, 3)
        assert abs(found.astype(int) - 128).max() < 8


def test_heic_without_its_extra_names_the_install_command(tmp_path, monkeypatch):
    heif = pytest.importorskip("pillow_heif")
    heif.from_pillow(Image.new("RGB", (32, 32))).save(tmp_path / "a.heic")
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    with refuses("image-needs-heic", extra="heic"):
        decode((tmp_path / "a.heic").read_bytes())


def test_photos_have_no_stamp_unless_given():
    assert Photo("a.jpg", "no face").stamp.sha256 == ""

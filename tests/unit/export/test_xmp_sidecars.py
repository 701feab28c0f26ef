"""Sidecars: what is written is read back, what others wrote stays, and photos are never changed."""

import hashlib
import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refuses
from tests.xmp_photos import HEAD, TAIL, attribute_packet, packet, photo

from cdp.errors import InputError
from cdp.export.export_formats import ExportOptions, export_images
from cdp.export.grouped_images import GroupedImages
from cdp.faces.face_regions import read_regions
from cdp.faces.face_tables import FaceRow
from cdp.types import Manifest

NAMES = {3: "Anna Öğüt", 7: "A/B | <C> & “D”"}


def album(faces, identity, names=None):
    rows = [FaceRow(str(place), box, (math.nan,) * 10, score=0.9) for place, box in faces]
    images = Manifest(tuple(f"crop{row}.jpg" for row in range(len(rows))), np.full(len(rows), -1))
    identity = np.array(identity)
    return GroupedImages(identity, np.ones(len(rows)), NAMES if names is None else names, images, rows)


@pytest.fixture
def photos(tmp_path):
    """Two photos in folders, one on its side; three people, one without a name, and a face in no group."""
    (tmp_path / "photos/2020").mkdir(parents=True)
    first = photo(tmp_path / "photos/2020/a.jpg")
    second = photo(tmp_path / "photos/b.jpg", orientation=6)  # 100 x 200 upright
    faces = [
        (first, (40, 30, 60, 50)),
        (first, (140, 30, 170, 60)),
        (second, (10, 120, 50, 160)),
        (second, (60, 20, 80, 40)),
        (first, (100, 0, 110, 10)),
    ]
    return album(faces, [3, 7, 3, 5, -1])


def hashes(folder):
    return {
        str(one): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in sorted(folder.rglob("*"))
        if one.is_file()
    }


def boxes(found):
    return {one.name: pytest.approx(one.box, abs=0.01) for one in found}


def write(grouped, out, **options):
    return export_images(grouped, "xmp", Path(out), ExportOptions(**options))


def test_sidecars_next_to_the_photos_are_read_back(photos, tmp_path):
    before = hashes(tmp_path / "photos")
    result = write(photos, tmp_path / "photos")
    assert (result.n_images, result.n_people, result.notes) == (3, 2, ())
    after = hashes(tmp_path / "photos")
    assert set(after) - set(before) == {
        str(tmp_path / "photos/2020/a.jpg.xmp"),
        str(tmp_path / "photos/b.jpg.xmp"),
    }
    assert {name: after[name] for name in before} == before, "photos are never changed"
    assert boxes(read_regions(tmp_path / "photos/2020/a.jpg")) == {
        "Anna Öğüt": (40, 30, 60, 50), NAMES[7]: (140, 30, 170, 60),
    }  # fmt: skip
    assert boxes(read_regions(tmp_path / "photos/b.jpg")) == {"Anna Öğüt": (10, 120, 50, 160)}


def test_elsewhere_the_folders_are_those_of_the_photos_and_again_gives_the_same_bytes(photos, tmp_path):
    for _ in range(2):
        write(photos, tmp_path / "out")
        texts = hashes(tmp_path / "out")
        assert set(texts) == {str(tmp_path / "out/2020/a.jpg.xmp"), str(tmp_path / "out/b.jpg.xmp")}
    stamps = [one.stat().st_mtime_ns for one in (tmp_path / "out").rglob("*.xmp")]
    write(photos, tmp_path / "out")
    assert hashes(tmp_path / "out") == texts
    assert [one.stat().st_mtime_ns for one in (tmp_path / "out").rglob("*.xmp")] == stamps
    assert list((tmp_path / "photos").rglob("*.xmp")) == []


def test_people_without_a_name_are_written_if_asked_for(photos, tmp_path):
    assert write(photos, tmp_path / "photos", unnamed=True).n_people == 3
    assert set(boxes(read_regions(tmp_path / "photos/b.jpg"))) == {"Anna Öğüt", "person-000005"}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_regions_come_back_in_every_orientation(tmp_path, orientation):
    file = photo(tmp_path / "a.jpg", orientation=orientation)
    write(album([(file, (10.0, 20.0, 30.0, 60.0))], [3]), tmp_path)
    assert boxes(read_regions(file)) == {"Anna Öğüt": (10, 20, 30, 60)}


def test_what_others_wrote_stays_and_what_was_written_here_is_replaced(tmp_path):
    file = photo(tmp_path / "a.jpg")
    title = (
        '<dc:title><rdf:Alt><rdf:li xml:lang="x-default">On &amp; off\nthe road</rdf:li></rdf:Alt></dc:title>'
    )
    subject = "<dc:subject><rdf:Bag><rdf:li>holiday</rdf:li></rdf:Bag></dc:subject>"
    sidecar = tmp_path / "a.jpg.xmp"
    foreign = packet(("Berta", 0.75, 0.45, 0.15, 0.3), inside=title + subject)
    sidecar.write_bytes(foreign.replace(b'rdf:about=""', b'rdf:about="" dc:note="one&#10;two"'))
    grouped = album([(file, (40, 30, 60, 50))], [3], {3: "Anna"})
    assert write(grouped, tmp_path).notes == ()
    assert set(boxes(read_regions(file))) == {"Anna", "Berta"}
    text = sidecar.read_text(encoding="utf-8")
    for kept in (
        "On &amp; off\nthe road",
        "<rdf:li>holiday</rdf:li>",
        'dc:note="one&#10;two"',
        "<rdf:li>Anna</rdf:li>",
    ):
        assert kept in text
    # The person is called something else now; what is foreign is still there.
    write(album([(file, (40, 30, 60, 50))], [3], {3: "Clara"}), tmp_path)
    text = sidecar.read_text(encoding="utf-8")
    assert set(boxes(read_regions(file))) == {"Clara", "Berta"}
    assert "Anna" not in text
    assert text.count("<rdf:li>holiday</rdf:li>") == 1
    assert "People/Clara" in text
    # Nobody is named any more: only what others wrote is left.
    write(album([(file, (40, 30, 60, 50))], [3], {}), tmp_path)
    text = sidecar.read_text(encoding="utf-8")
    assert set(boxes(read_regions(file))) == {"Berta"}
    assert "Clara" not in text
    assert "cdp:Written" not in text
    assert "MPRI:Regions>" not in text


@pytest.mark.parametrize("make", [packet, attribute_packet])
def test_a_face_that_others_named_is_left_to_them(tmp_path, make):
    file = photo(tmp_path / "a.jpg")
    (tmp_path / "a.jpg.xmp").write_bytes(make(("Berta", 0.25, 0.4, 0.1, 0.2)))
    same = write(
        album([(file, (41, 31, 61, 51)), (file, (100, 0, 120, 20))], [3, 4], {3: "Berta", 4: "Anna"}),
        tmp_path,
    )
    assert (same.n_images, same.notes) == (2, ())
    assert boxes(read_regions(file)) == {"Berta": (40, 30, 60, 50), "Anna": (100, 0, 120, 20)}
    other = write(album([(file, (41, 31, 61, 51))], [3], {3: "Clara"}), tmp_path)
    assert (other.n_images, len(other.notes)) == (0, 1)
    assert boxes(read_regions(file)) == {"Berta": (40, 30, 60, 50)}


def test_prefixes_of_others_mean_what_they_mean_there(tmp_path):
    """A packet whose prefixes are others, and where ours means something else."""
    file = photo(tmp_path / "a.jpg")
    odd = (
        '<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:stArea="urn:other/">'
        '<r:Description r:about="" stArea:x="theirs"/></r:RDF>'
    )
    (tmp_path / "a.jpg.xmp").write_text(odd)
    for _ in range(2):
        write(album([(file, (40, 30, 60, 50))], [3]), tmp_path)
        assert boxes(read_regions(file)) == {"Anna Öğüt": (40, 30, 60, 50)}
    assert 'stArea:x="theirs"' in (tmp_path / "a.jpg.xmp").read_text(encoding="utf-8")


def test_empty_structures_of_others_are_filled(tmp_path):
    file = photo(tmp_path / "a.jpg")
    (tmp_path / "a.jpg.xmp").write_text(f"{HEAD}<mwg-rs:Regions/><MP:RegionInfo/><dc:subject/>{TAIL}")
    write(album([(file, (40, 30, 60, 50))], [3]), tmp_path)
    text = (tmp_path / "a.jpg.xmp").read_text(encoding="utf-8")
    assert text.count("mwg-rs:Regions ") == 1
    assert '<mwg-rs:Regions rdf:parseType="Resource">' in text
    assert boxes(read_regions(file)) == {"Anna Öğüt": (40, 30, 60, 50)}


@pytest.mark.parametrize(
    "content",
    [b"broken", b"<html/>", b"<!DOCTYPE x [<!ENTITY a 'b'>]>" + packet(), f"{HEAD}{TAIL}".encode()[:-5]],
)
def test_a_sidecar_that_cannot_be_read_is_left_as_it_is(tmp_path, content):
    file = photo(tmp_path / "a.jpg")
    (tmp_path / "a.jpg.xmp").write_bytes(content)
    result = write(album([(file, (40, 30, 60, 50))], [3]), tmp_path)
    assert (tmp_path / "a.jpg.xmp").read_bytes() == content
    assert result.n_images == 0
    assert len(result.notes) == 1
    assert "a.jpg.xmp" in result.notes[0]


def test_photos_that_are_gone_or_in_archives_are_told(photos, tmp_path):
    (tmp_path / "photos/b.jpg").unlink()
    faces = [*photos.faces, FaceRow(str(tmp_path / "more.zip!c.jpg"), (0, 0, 9, 9), (math.nan,) * 10)]
    images = Manifest(tuple(f"{row}.jpg" for row in range(6)), np.full(6, -1))
    grouped = GroupedImages(np.array([3, 7, 3, 5, -1, 3]), np.ones(6), NAMES, images, faces)
    result = write(grouped, tmp_path / "out")
    assert result.n_images == 2
    assert len(result.notes) == 2


def test_a_face_that_is_its_photo_is_a_box_around_all_of_it(tmp_path):
    file = photo(tmp_path / "a.jpg")
    write(album([(file, (math.nan,) * 4)], [3]), tmp_path)
    assert boxes(read_regions(file)) == {"Anna Öğüt": (0, 0, 200, 100)}


def test_sidecars_need_photos_and_a_folder(photos, tmp_path):
    with refuses("export-needs-photos", InputError):
        write(GroupedImages(np.array([1]), np.ones(1), {1: "Anna"}), tmp_path / "out")
    (tmp_path / "file").write_text("x")
    with refuses("output-is-a-file", InputError):
        write(photos, tmp_path / "file")


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not installed")
def test_exiftool_reads_what_is_written(photos, tmp_path):
    write(photos, tmp_path / "photos")
    asked = ["-RegionInfo", "-RegionInfoMP", "-Subject", "-HierarchicalSubject", "-TagsList"]
    files = [str(tmp_path / "photos" / one) for one in ("2020/a.jpg.xmp", "b.jpg.xmp")]
    said = subprocess.run(
        ["exiftool", "-q", "-struct", "-j", *asked, *files],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
    )
    assert said.stderr == b""
    first, second = json.loads(said.stdout)
    assert first["Subject"] == ["Anna Öğüt", NAMES[7]]
    assert first["HierarchicalSubject"] == ["People|Anna Öğüt", "People|A_B _ <C> & “D”"]
    assert first["TagsList"] == ["People/Anna Öğüt", "People/A_B _ <C> & “D”"]
    assert first["RegionInfo"]["AppliedToDimensions"] == {"W": 200, "H": 100, "Unit": "pixel"}
    anna = first["RegionInfo"]["RegionList"][0]
    assert anna["Area"] == {"X": 0.25, "Y": 0.4, "W": 0.1, "H": 0.2, "Unit": "normalized"}
    assert (anna["Name"], anna["Type"]) == ("Anna Öğüt", "Face")
    assert first["RegionInfoMP"]["Regions"][0] == {
        "PersonDisplayName": "Anna Öğüt", "Rectangle": "0.200000, 0.300000, 0.100000, 0.200000",
    }  # fmt: skip
    # Stored, the second photo is as wide as the first; its upright box (10, 120, 50, 160) of 100 x 200 is on its side there.
    assert second["RegionInfo"]["AppliedToDimensions"] == {"W": 200, "H": 100, "Unit": "pixel"}
    assert second["RegionInfo"]["RegionList"][0]["Area"] == {
        "X": 0.7, "Y": 0.7, "W": 0.2, "H": 0.4, "Unit": "normalized",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not installed")
def test_what_exiftool_embeds_is_read(tmp_path):
    """The way into the photo itself, for programs that do not read sidecars of JPEG files."""
    file = photo(tmp_path / "a.jpg", orientation=8)
    write(album([(file, (10, 20, 30, 60))], [3]), tmp_path)
    sidecar = str(tmp_path / "a.jpg.xmp")
    subprocess.run(
        ["exiftool", "-q", "-overwrite_original", "-tagsfromfile", sidecar, "-xmp:all", str(file)], check=True
    )
    Path(sidecar).unlink()
    assert boxes(read_regions(file)) == {"Anna Öğüt": (10, 20, 30, 60)}

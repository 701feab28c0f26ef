"""What a run sees of its images before it trains."""

import csv
import os

import pytest
from tests.folder_of_photos import BROKEN, draw_photos
from tests.image_layouts import picture, write_zip
from tests.refusals import refuses

from cdp.config.reading import recipe_from
from cdp.data.manifests import read_manifest
from cdp.run import image_scan
from cdp.run.image_scan import UNREADABLE, scan_images
from cdp.run.sources import prepare


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scan") / "photos"
    draw_photos(folder, n_identities=40, n_images=3)
    return folder


@pytest.fixture
def looked(monkeypatch):
    """Locations that were decoded."""
    seen = []

    def spy(root, locations, threads=0, progress=None):
        seen.extend(locations)
        return look(root, locations, threads, progress)

    look = image_scan.look_at_images
    monkeypatch.setattr(image_scan, "look_at_images", spy)
    return seen


def test_sizes_are_counted_and_what_cannot_be_read_is_left_out_and_listed(photos, tmp_path):
    given = read_manifest(photos)
    scan = scan_images({"images": given}, threads=1)
    assert (scan.n_unreadable, scan.n_images) == (BROKEN, len(given) - BROKEN)
    assert scan.count_below(30) == 0 < scan.count_below(64) < scan.count_below(10**4) == scan.n_images
    assert scan.count_below(scan.median_side) <= scan.n_images / 2 <= scan.count_below(scan.median_side + 1)
    left = scan.readable("images", given)
    lost = {one.location for one in scan.unreadable["images"]}
    assert set(left.locations) == set(given.locations) - lost
    (tmp_path / "run").mkdir()
    scan.save(tmp_path / "images.json", tmp_path / "run")
    rows = list(csv.DictReader((tmp_path / "run" / UNREADABLE).read_text().splitlines()))
    assert {row["path"] for row in rows} == {str(photos / one) for one in lost}
    assert all(row["reason"] and row["source"] == "images" for row in rows)
    assert len(read_manifest(photos, skip=tmp_path / "run" / UNREADABLE)) == len(left), (
        "the list can be skipped"
    )


def test_a_scan_is_remembered_until_a_file_changes(photos, looked, tmp_path):
    given, memory = read_manifest(photos), tmp_path / "images.json"
    first = scan_images({"images": given}, memory, 1)
    assert len(looked) == len(given)
    first.save(memory, tmp_path)
    looked.clear()
    again = scan_images({"images": given}, memory, 1)
    assert looked == []
    assert (again.sides, again.unreadable) == (first.sides, first.unreadable)
    location = first.unreadable["images"][0].location
    broken = (photos / location).read_bytes()
    (photos / location).write_bytes(picture(3, width=50, height=60))
    assert scan_images({"images": given}, memory, 1).n_unreadable == BROKEN - 1
    assert looked == [location]
    (photos / location).write_bytes(broken)
    memory.write_text("{")
    assert scan_images({"images": given}, memory, 1).n_unreadable == BROKEN, "damaged is as good as absent"


def test_an_archive_has_one_time_for_all_its_images(looked, tmp_path):
    write_zip(tmp_path / "set.zip", {"a/1.png": picture(1), "b/1.png": picture(2)})
    given, memory = read_manifest(tmp_path / "set.zip"), tmp_path / "images.json"
    scan_images({"images": given}, memory, 1).save(memory, tmp_path)
    assert scan_images({"images": given}, memory, 1).sides == {4: 2}
    assert len(looked) == 2
    os.utime(tmp_path / "set.zip", (1, 1))
    scan_images({"images": given}, memory, 1)
    assert len(looked) == 4


def test_a_run_starts_without_unreadable_images_and_says_so(photos):
    resolved = prepare(recipe_from({}, {"data.images": str(photos), "engine.threads": 1}))
    table = resolved.sources.manifest("images")
    assert len(table) == len(read_manifest(photos)) - BROKEN
    assert resolved.notes[0].startswith(f"{BROKEN} images cannot be read")
    assert "enlarged" in resolved.notes[1]
    assert resolved.said[:2] == resolved.notes[:2], "at once, not only at the end"
    assert (resolved.recipe.train.size, resolved.recipe.joint.size) == (64, 64)


def test_images_that_all_cannot_be_read_are_refused_at_once(tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"no image")
    with refuses("images-all-unreadable"):
        prepare(recipe_from({}, {"data.images": str(tmp_path)}))

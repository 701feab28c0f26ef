"""The scan for unreadable images."""

import pytest
from tests.refusals import refuses

from cdp.data import check
from cdp.data.check import CheckWorker, Unreadable, check_images, write_unreadable
from cdp.data.manifests import read_manifest, without_unreadable
from cdp.data.split import rotated
from image_layouts import picture, write_folders, write_zip

SIZE = (6, 4)
"""Of the pictures that can be read: width, height."""


@pytest.fixture
def broken(tmp_path):
    """Nine images, of which rows 2, 3 and 7 cannot be read."""
    write_folders(tmp_path / "set", {name: ["1.png", "2.png", "3.png"] for name in "abc"})
    (tmp_path / "set" / "a" / "3.png").write_bytes(b"")
    (tmp_path / "set" / "b" / "1.png").write_bytes(b"GIF? no")
    (tmp_path / "set" / "c" / "2.png").write_bytes(picture(1)[:-30])
    return read_manifest(tmp_path / "set")


@pytest.mark.parametrize("threads", [1, 2])
def test_finds_all_of_them_whatever_the_number_of_processes(broken, monkeypatch, threads):
    monkeypatch.setattr(check, "_PICTURES_PER_BLOCK", 2)
    seen = []
    found = check_images(broken, threads, lambda *progress: seen.append(progress))
    assert [(one.row, one.location) for one in found] == [(2, "a/3.png"), (3, "b/1.png"), (7, "c/2.png")]
    assert found[0].reason == "the image is empty (0 bytes); copy it again or leave it out."
    assert "not in an image format" in found[1].reason
    assert seen[-1] == ("images", 9, 9)


def test_looking_gives_sizes_and_reasons(broken):
    seen = check.look_at_images(broken.root, broken.locations, 1)
    assert [seen[location] == SIZE for location in broken.locations] == [
        row not in (2, 3, 7) for row in range(9)
    ]
    assert "cannot be decoded" in seen["c/2.png"], "a file that is cut off has a good header"


def test_nothing_to_report(tmp_path):
    write_zip(tmp_path / "set.zip", {"a/1.png": picture(1), "b/1.png": picture(2)})
    assert check_images(read_manifest(tmp_path / "set.zip"), 1) == []


def test_rotations_are_decoded_once_and_reported_four_times(broken):
    seen = []
    found = check_images(rotated(broken), 1, lambda *progress: seen.append(progress))
    assert [one.row for one in found] == [turn * 9 + row for turn in range(4) for row in (2, 3, 7)]
    assert seen[-1] == ("images", 9, 9)


def test_without_unreadable_keeps_the_others_in_order(broken):
    rest = without_unreadable(broken, [2, 3, 7])
    assert rest.locations == ("a/1.png", "a/2.png", "b/2.png", "b/3.png", "c/1.png", "c/3.png")
    assert without_unreadable(broken, []) is broken
    with refuses("images-all-unreadable"):
        without_unreadable(broken, range(9))


def test_the_written_list_is_what_skip_reads(broken, tmp_path):
    file = tmp_path / "lists" / "unreadable.csv"
    write_unreadable(broken, check_images(broken, 1), file)
    assert file.read_text().splitlines()[1].startswith("2,../set/a/3.png,")
    assert len(read_manifest(tmp_path / "set", skip=file)) == 6
    broken.save(tmp_path / "elsewhere" / "table.csv")
    assert len(read_manifest(tmp_path / "elsewhere" / "table.csv", skip=file)) == 6
    with refuses("unreadable-list-ending-wrong", file=tmp_path / "list.txt"):
        write_unreadable(broken, [Unreadable(0, "x", "y")], tmp_path / "list.txt")


def test_a_decoder_crash_costs_only_the_image_that_causes_it(tmp_path, monkeypatch):
    worker = CheckWorker(str(tmp_path))
    asked = []

    def ask(locations):
        asked.append(list(locations))
        return None if "bad" in locations else {}

    monkeypatch.setattr(worker, "_ask", ask)
    assert worker.scan(["a", "b", "bad", "c"]) == {"bad": "the image makes its decoder crash; leave it out."}
    assert asked == [["a", "b", "bad", "c"], ["a", "b"], ["bad", "c"], ["bad"], ["c"]]


def test_a_killed_worker_is_started_again(broken):
    worker = CheckWorker(broken.root)
    assert worker.scan(["a/1.png"]) == {"a/1.png": SIZE}
    worker._process.kill()
    worker._process.wait()
    seen = worker.scan(["a/3.png", "a/1.png"])
    assert seen["a/1.png"] == SIZE
    assert "0 bytes" in seen["a/3.png"]
    worker.stop()

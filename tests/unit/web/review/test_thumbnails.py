"""Thumbnails on disk: found again by the next server, made again when an image changes, bounded."""

import os

import numpy as np
from PIL import Image

from cdp.web.review.thumbnails import Pictures


def draw(file, value):
    Image.fromarray(np.full((40, 40, 3), value, np.uint8)).save(file)


def test_thumbnails_are_kept_on_disk_and_made_again_when_the_image_changes(tmp_path, monkeypatch):
    draw(tmp_path / "a.png", 20)
    shelf = tmp_path / "thumbnails"
    made = Pictures(["a.png"], str(tmp_path), kept_in=shelf).thumbnail(0)
    (kept,) = [one for one in shelf.glob("*/*") if one.is_file()]
    assert kept.read_bytes() == made
    again = Pictures(["a.png"], str(tmp_path), kept_in=shelf)
    monkeypatch.setattr(again, "_jpeg", lambda *_: b"made anew")
    assert again.thumbnail(0) == made
    draw(tmp_path / "a.png", 200)
    os.utime(tmp_path / "a.png", ns=(1, 1))
    fresh = Pictures(["a.png"], str(tmp_path), kept_in=shelf)
    monkeypatch.setattr(fresh, "_jpeg", lambda *_: b"made anew")
    assert fresh.thumbnail(0) == b"made anew"


def test_thumbnails_on_disk_are_bounded_and_a_disk_that_refuses_is_left_alone(tmp_path):
    for number in range(12):
        draw(tmp_path / f"{number}.png", 20 * number)
    paths = [f"{number}.png" for number in range(12)]
    one = len(Pictures(paths, str(tmp_path)).thumbnail(0))
    pictures = Pictures(paths, str(tmp_path), kept_in=tmp_path / "kept", disk_bytes=5 * one)
    for row in range(12):
        pictures.thumbnail(row)
    assert 0 < len([one for one in (tmp_path / "kept").glob("*/*") if one.is_file()]) <= 6
    (tmp_path / "file").touch()
    assert Pictures(paths, str(tmp_path), kept_in=tmp_path / "file").thumbnail(0)


def test_a_damaged_thumbnail_is_made_again(tmp_path):
    shelf = tmp_path / "kept"
    Image.new("RGB", (40, 40), (200, 30, 30)).save(tmp_path / "a.png")
    made = Pictures(["a.png"], str(tmp_path), kept_in=shelf).thumbnail(0)
    (kept,) = [one for one in shelf.rglob("*") if one.is_file()]
    for damage in (b"", made[: len(made) // 2], made[:100] + bytes(len(made) - 100)):
        kept.write_bytes(damage)
        assert Pictures(["a.png"], str(tmp_path), kept_in=shelf).thumbnail(0) == made
        assert kept.read_bytes() == made

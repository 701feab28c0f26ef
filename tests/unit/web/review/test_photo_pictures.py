"""Photos by row of a face: upright, not too large, with a box; nothing that the collection does not list."""

import io
import math

import numpy as np
import pytest
from PIL import Image

from cdp.errors import InputError
from cdp.faces.face_tables import FaceRow
from cdp.web.review.photo_pictures import PhotoPictures, scaled_box

GRAY = (90, 90, 90)
YELLOW = (255, 196, 0)


def shown(face, row=0):
    return Image.open(io.BytesIO(PhotoPictures([face]).picture(row)))


def is_near(pixel, color):
    return np.abs(np.array(pixel) - color).max() < 60


def test_a_large_photo_is_reduced_and_its_box_with_it(tmp_path):
    Image.new("RGB", (2800, 1000), GRAY).save(tmp_path / "a.png")
    picture = shown(FaceRow(str(tmp_path / "a.png"), (400.0, 200.0, 800.0, 700.0), ()))
    assert picture.size == (1400, 500)
    assert is_near(picture.getpixel((197, 200)), YELLOW)  # left of the box, which starts at 200
    assert is_near(picture.getpixel((300, 200)), GRAY)
    assert is_near(picture.getpixel((1000, 400)), GRAY)


def test_a_photo_lies_as_its_exif_note_says(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (300, 200), GRAY).save(tmp_path / "a.jpg", exif=exif)
    picture = shown(FaceRow(str(tmp_path / "a.jpg"), (50.0, 220.0, 100.0, 280.0), ()))
    assert picture.size == (200, 300)
    assert is_near(picture.getpixel((48, 250)), YELLOW)


def test_a_photo_that_is_a_face_has_no_box(tmp_path):
    Image.new("RGB", (60, 60), GRAY).save(tmp_path / "a.png")
    picture = shown(FaceRow(str(tmp_path / "a.png"), (math.nan,) * 4, ()))
    assert len(picture.getcolors()) == 1


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((10, 10, 20, 30), (5, 5, 10, 15)),
        ((-8, -8, 500, 500), (0, 0, 49, 99)),
        ((math.nan,) * 4, None),
        ((300, 10, 400, 20), None),
    ],
)
def test_boxes_are_inside_the_picture(box, expected):
    assert scaled_box(box, (100, 200), (50, 100)) == expected


def test_what_is_not_there_is_refused(tmp_path):
    faces = [None, FaceRow(str(tmp_path / "gone.jpg"), (0.0, 0.0, 1.0, 1.0), ())]
    for row, code in (
        (0, "photo-missing"),
        (1, "image-missing"),
        (2, "photo-missing"),
        (-1, "photo-missing"),
    ):
        with pytest.raises(InputError) as refused:
            PhotoPictures(faces).picture(row)
        assert refused.value.code == code

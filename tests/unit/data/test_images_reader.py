"""Images as bytes and pixels, from threads and processes."""

import io
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from tests.refusals import refuses

from cdp.data import images
from cdp.data.images import decode, image_size, open_images
from cdp.data.manifests import read_manifest
from cdp.types import Manifest
from image_layouts import insightface, picture, write_folders, write_records, write_tar, write_zip


@pytest.fixture
def everywhere(tmp_path) -> Manifest:
    """Twelve images: plain files, and entries of a zip, a tar and a record file."""
    pictures = [picture(shade) for shade in range(12)]
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(pictures[number])
    write_zip(tmp_path / "a.zip", {f"x/{number}.png": pictures[number] for number in range(3, 6)})
    write_tar(tmp_path / "b.tar", {f"{number}.png": pictures[number] for number in range(6, 9)})
    write_records(tmp_path / "c.rec", insightface({0: pictures[9:]}))
    places = [f"{n}.png" for n in range(3)] + [f"a.zip!x/{n}.png" for n in range(3, 6)]
    places += [f"b.tar!{n}.png" for n in range(6, 9)] + [f"c.rec!{n}" for n in (1, 2, 3)]
    return Manifest(tuple(places), np.arange(12), root=str(tmp_path))


def test_every_kind_of_location(everywhere):
    reader = open_images(everywhere)
    assert len(reader) == 12
    assert [reader.read(row) for row in range(12)] == [picture(shade) for shade in range(12)]


def test_threads_share_a_reader(everywhere):
    reader = open_images(everywhere)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: reader.image(row % 12)[-1, -1, 0], range(600)))
    assert found == [row % 12 for row in range(600)]


def test_pickled_readers_open_their_own_archives(everywhere):
    reader = open_images(everywhere)
    reader.read(4)
    again = pickle.loads(pickle.dumps(reader))
    assert [again.read(row) for row in range(12)] == [reader.read(row) for row in range(12)]


def _shades(reader, rows, out):
    out.put([int(reader.image(row % 12)[-1, -1, 0]) for row in rows])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_processes_do_not_disturb_each_other(everywhere):
    reader = open_images(everywhere)
    for row in range(12):
        reader.read(row)
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    workers = [context.Process(target=_shades, args=(reader, range(240), out)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert out.get() == [row % 12 for row in range(240)]
    for worker in workers:
        worker.join()


def test_few_archives_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "_MOST_OPEN", 2)
    for number in range(5):
        write_zip(tmp_path / f"{number}.zip", {"a/1.png": picture(number)})
    places = tuple(f"{number}.zip!a/1.png" for number in range(5))
    reader = open_images(Manifest(places, np.arange(5), root=str(tmp_path)))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for row in (0, 1, 2, 3, 4, 0, 4):
        assert reader.read(row) == picture(row)
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 2


@pytest.mark.parametrize(
    ("place", "code", "fields"),
    [
        ("gone.png", "image-missing", {"row": 0}),
        ("a\0b.png", "image-unreadable", {"row": 0}),
        (".", "image-unreadable", {"row": 0}),
        ("gone.zip!x/3.png", "image-missing", {"row": 0}),
        ("a.zip!x/9.png", "archive-entry-missing", {"row": 0, "entry": "x/9.png"}),
        ("b.tar!9.png", "archive-entry-missing", {"row": 0, "entry": "9.png"}),
        ("c.rec!99", "record-key-missing", {"row": 0, "key": "99"}),
        ("c.rec!x", "record-key-missing", {"row": 0, "key": "x"}),
    ],
)
def test_what_is_not_there(everywhere, place, code, fields):
    reader = open_images(Manifest((place,), np.array([0]), root=everywhere.root))
    with refuses(code, **fields):
        reader.read(0)


@pytest.mark.parametrize(
    ("data", "code", "fields"),
    [
        (b"", "image-empty", {"row": 0, "file": "0.png"}),
        (b"hello", "image-undecodable", {"row": 0, "file": "0.png"}),
        (picture(1)[:-30], "image-undecodable", {"row": 0, "file": "0.png"}),
        (picture(1, kind="JPEG")[:-30], "image-undecodable", {"row": 0, "file": "0.png"}),
    ],
)
def test_an_image_that_cannot_be_decoded_is_named(tmp_path, data, code, fields):
    (tmp_path / "0.png").write_bytes(data)
    reader = open_images(Manifest(("0.png",), np.array([0]), root=str(tmp_path)))
    with refuses(code, **fields):
        reader.image(0)


def test_a_file_called_like_an_entry(tmp_path):
    write_folders(tmp_path, {"old.zip!odd": ["1.png"]})
    assert open_images(read_manifest(tmp_path)).read(0) == picture(0)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "LA", "I;16", "I"])
def test_color_and_gray_of_every_mode(mode):
    stream = io.BytesIO()
    if mode.startswith("I"):
        Image.fromarray(np.full((4, 6), 40_000, np.uint16 if mode == "I;16" else np.int32)).save(
            stream, "TIFF"
        )
        expected = 40_000 >> 8
    else:
        Image.new("L", (6, 4), 255).convert(mode).save(stream, "TIFF" if mode == "CMYK" else "PNG")
        expected = 255
    color, gray = decode(stream.getvalue()), decode(stream.getvalue(), color=False)
    assert (color.shape, gray.shape) == ((4, 6, 3), (4, 6, 1))
    assert color.dtype == gray.dtype == np.uint8
    assert set(np.unique(color)) == set(np.unique(gray)) == {expected}
    assert color.flags.writeable


def test_float_pixels_are_refused():
    stream = io.BytesIO()
    Image.new("F", (6, 4), 0.5).save(stream, "TIFF")
    with refuses("image-floating-point") as caught:
        decode(stream.getvalue())
    assert str(caught.value) == "the image holds floating-point pixels; convert it to 8 or 16 bits."


def test_size_scales_the_shorter_side_and_cuts_the_middle():
    stripes = np.zeros((20, 60), np.uint8)
    stripes[:, 20:40] = 200
    stream = io.BytesIO()
    Image.fromarray(stripes).save(stream, "PNG")
    pixels = decode(stream.getvalue(), color=False, size=10)
    assert pixels.shape == (10, 10, 1)
    assert int(pixels[5, 5, 0]) == 200
    assert int(pixels[5, 1, 0]) == 200


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_size_of_large_and_small_pictures(kind):
    for side in (8, 33, 500):
        assert decode(picture(90, width=side, height=side, kind=kind), size=32).shape == (32, 32, 3)


def test_turned_by_quarters(tmp_path):
    (tmp_path / "0.png").write_bytes(picture(9))
    manifest = Manifest(("0.png",) * 4, np.arange(4), root=str(tmp_path), turns=np.arange(4))
    reader = open_images(manifest)
    upright = reader.image(0)
    for row in range(4):
        assert np.array_equal(reader.image(row), np.rot90(upright, row))
        assert reader.image(row).flags.c_contiguous


def test_the_exif_note_is_obeyed():
    pixels = np.zeros((4, 6), np.uint8)
    pixels[0] = 250
    image = Image.fromarray(pixels)
    note = image.getexif()
    note[0x0112] = 6  # to be shown turned by 90 degrees
    stream = io.BytesIO()
    image.save(stream, "PNG", exif=note)
    shown = decode(stream.getvalue(), color=False)
    assert shown.shape == (6, 4, 1)
    assert np.all(shown[:, -1] == 250)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_from_the_header_is_that_of_the_upright_image(orientation):
    image = Image.new("L", (6, 4))
    note = image.getexif()
    note[0x0112] = orientation
    stream = io.BytesIO()
    image.save(stream, "JPEG", exif=note)
    assert image_size(stream.getvalue()) == decode(stream.getvalue()).shape[:2]
    assert image_size(b"no image") is None

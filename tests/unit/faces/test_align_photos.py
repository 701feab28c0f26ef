"""Photos with several drawn faces, whose landmarks are known, into aligned faces."""

import csv
import json
from contextlib import nullcontext

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("onnxruntime", reason="detectors need the extra onnx")
pytest.importorskip("onnx")

from tests.drawn_landmarks import find_landmarks
from tests.onnx_builders import constant_detector, marker_detector
from tests.refusals import refuses

from cdp.data.manifests import read_manifest
from cdp.faces.align_log import open_log
from cdp.faces.align_photos import align_faces
from cdp.faces.align_settings import AlignSettings
from cdp.faces.alignment import TEMPLATE
from cdp.faces.face import Face
from cdp.types.manifest import Manifest
from cdp_lab.drawn_faces import FaceSettings, draw_faces

SIDE = 48
RELATIVE = np.array([[0.35, 0.45], [0.65, 0.45], [0.5, 0.6], [0.38, 0.75], [0.62, 0.75]])


@pytest.fixture(scope="module")
def drawn():
    settings = FaceSettings(
        identities=3, images=4, size=SIDE, junk=0, mislabeled=0, lookalikes=0, difficulty=0.2
    )
    rows = np.array([0, 4, 8])
    return draw_faces(settings, rows).pixels, find_landmarks(settings, rows)


def photo_of(drawn, places, side=128):
    """A photo with drawn faces at some places, each with the mark that the toy detector looks for."""
    photo = np.full((side, side, 3), 60, np.uint8)
    for pixels, (x, y) in zip(drawn[0], places, strict=False):
        photo[y : y + SIDE, x : x + SIDE] = pixels
        photo[y : y + 8, x : x + 8] = (0, 255, SIDE)
    return photo


@pytest.fixture
def photos(tmp_path, drawn):
    """Three, one and no faces; one photo is turned by its EXIF note, one is broken, one is a face already."""
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.fromarray(photo_of(drawn, [(0, 0), (64, 8), (16, 72)])).save(folder / "a.png")
    Image.fromarray(photo_of(drawn, [(40, 32)])).save(folder / "b.png")
    Image.fromarray(photo_of(drawn, [])).save(folder / "c.png")
    turned = Image.fromarray(np.rot90(photo_of(drawn, [(24, 64)])))
    exif = turned.getexif()
    exif[0x0112] = 6  # to be shown a quarter turn clockwise
    turned.save(folder / "d.png", exif=exif)
    (folder / "e.png").write_bytes(b"broken")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)).save(
        folder / "f.png"
    )
    return Manifest(tuple(f"{name}.png" for name in "abcdef"), np.arange(6), tuple("ABCDEF"), str(folder))


def test_every_face_is_found_cut_out_and_listed(tmp_path, photos):
    detector = marker_detector(tmp_path / "detector.onnx", RELATIVE)
    made = align_faces(photos, detector, tmp_path / "faces", AlignSettings())
    assert [face.photo for face in made.faces] == [0, 0, 0, 1, 3, 5]
    np.testing.assert_allclose(
        [face.box[:2] for face in made.faces[:5]], [(0, 0), (16, 72), (64, 8), (40, 32), (24, 64)], atol=0.1
    )
    np.testing.assert_allclose(made.faces[3].landmarks, RELATIVE * SIDE + (40, 32), atol=0.1)
    # Whoever is alone on a photo is who the photo is of; of several faces nobody knows which.
    assert made.manifest.identities.tolist() == [-1, -1, -1, 1, 3, 5]
    assert made.different.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert [(face.photo, face.reason[:20]) for face in made.dropped] == [
        (2, "no face was found"),
        (4, "cannot be read: the "),
    ]
    for row in range(6):
        with Image.open(tmp_path / "faces" / made.manifest.locations[row]) as crop:
            assert crop.size == (112, 112)
    same = read_manifest(tmp_path / "faces")
    assert same.locations == made.manifest.locations
    assert same.names is not None
    assert same.identities.tolist() == [-1, -1, -1, 1, 3, 5]
    with (tmp_path / "faces/different.csv").open() as file:
        one, other = made.manifest.locations[:2]
        assert next(csv.DictReader(file)) == {"kind": "different", "path": one, "other_path": other}
    with (tmp_path / "faces/faces.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[3]["photo"] == "../photos/b.png"
    assert float(rows[3]["nose_y"]) == pytest.approx(0.6 * SIDE + 32, abs=0.1)
    card = json.loads((tmp_path / "faces/card.json").read_text())
    assert (card["kind"], card["settings"]["detector"]) == ("Faces", "SCRFD")


def test_a_ready_face_is_taken_as_it_is_and_an_upright_photo_gives_the_same_face(tmp_path, photos, drawn):
    detector = marker_detector(tmp_path / "detector.onnx", RELATIVE)
    made = align_faces(photos, detector, tmp_path / "faces")

    def pixels(location, root):
        with Image.open(f"{root}/{location}") as opened:
            return np.asarray(opened)

    kept = pixels(made.manifest.locations[5], made.manifest.root)
    np.testing.assert_array_equal(kept, pixels("f.png", photos.root))
    # Photos b and d show the same face, d turned by its EXIF note.
    one, other = (pixels(made.manifest.locations[row], made.manifest.root) for row in (3, 4))
    np.testing.assert_allclose(one.astype(int), other.astype(int), atol=2)
    none = align_faces(photos.take([1, 5]), detector, tmp_path / "none", AlignSettings(ready="none"))
    assert [face.photo for face in none.faces] == [0]
    everything = align_faces(photos.take([0, 5]), None, tmp_path / "all", AlignSettings(ready="all"))
    assert len(everything.faces) == 2
    with refuses("detector-missing", option="--detector"):
        align_faces(photos, None, tmp_path / "absent")


def test_landmarks_of_drawn_faces_come_to_lie_on_the_template(tmp_path, drawn):
    """Eyes that are painted onto the drawn face are found again where the template has them."""
    pixels, landmarks = drawn
    photo = np.full((64, 64, 3), 0, np.uint8)
    photo[8 : 8 + SIDE, 8 : 8 + SIDE] = pixels[0] // 4
    points = landmarks[0] + 8
    for x, y in points[:2]:
        photo[round(float(y)), round(float(x))] = 255
    Image.fromarray(photo).save(tmp_path / "a.png")
    truth = [(0.9, (8, 8, 56, 56), points)]
    detector = constant_detector(tmp_path / "detector.onnx", "yunet", truth)
    made = align_faces(Manifest(("a.png",), np.array([-1]), root=str(tmp_path)), detector, tmp_path / "faces")
    with Image.open(tmp_path / "faces" / made.manifest.locations[0]) as opened:
        crop = np.asarray(opened).sum(axis=2).astype(float)
    transform = made.faces[0]
    assert transform.score == pytest.approx(0.9)
    for x, y in TEMPLATE[:2]:
        area = crop[int(y) - 8 : int(y) + 9, int(x) - 8 : int(x) + 9]
        at = np.unravel_index(area.argmax(), area.shape)
        assert np.hypot(at[0] - 8, at[1] - 8) < 5


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"min_score": 0.95}, "score 0.9 is below 0.95"),
        ({"min_face": 30}, "size 24 is below 30"),
        ({"min_sharpness": 1e6}, "sharpness"),
        ({"max_pose": 0.1}, "pose 0.333 is above 0.1"),
    ],
)
def test_every_filter_lists_what_it_drops(tmp_path, settings, reason):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(
        tmp_path / "a.png"
    )
    good = (0.96, (34, 2, 64, 32), [(44, 12), (54, 12), (49, 17), (45, 25), (53, 25)])
    weak = (0.9, (0, 32, 24, 60), [(6, 42), (18, 42), (14, 48), (8, 54), (16, 54)])
    detector = constant_detector(tmp_path / "detector.onnx", "scrfd", [good, weak])
    photos = Manifest(("a.png",), np.array([0]), root=str(tmp_path))
    if "min_sharpness" in settings:
        with refuses("faces-missing", photos=1):
            align_faces(photos, detector, tmp_path / "faces", AlignSettings(**settings))
        return
    made = align_faces(photos, detector, tmp_path / "faces", AlignSettings(**settings))
    assert [face.reason for face in made.dropped] == [reason]
    assert len(made.faces) == 1
    assert reason in (tmp_path / "faces/dropped.csv").read_text()
    # The face that was dropped may be the one that the photo is of, unless the detector doubts that it is a face.
    assert made.manifest.identities.tolist() == [0 if "min_score" in settings else -1]


def test_threads_do_not_matter(tmp_path, photos):
    detector = marker_detector(tmp_path / "detector.onnx", RELATIVE)
    for threads in (1, 3):
        align_faces(photos, detector, tmp_path / f"faces{threads}", threads=threads)
    one, other = (
        {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "faces1", tmp_path / "faces3")
    )
    assert one == other


@pytest.mark.parametrize(
    "damage", [b"7\n", b"[0, [1]]\n", b'["a", []]\n', b"\xff\n", b"\0" * 9, b"[0, [[0, [1], null, 1, 2]]]\n"]
)
def test_a_damaged_log_or_a_lost_crop_makes_a_block_again(tmp_path, damage):
    box, points = (1.0, 2.0, 30.0, 40.0), np.arange(10.0).reshape(5, 2)
    log = open_log(tmp_path / "work", "key")
    faces = [Face(0, box, points, 0.9, 29.0, 5.0, 0.1, reason="small"), Face(1, reason="none")]
    log.append(0, faces)
    log.append(16, [Face(16, box, points, 0.9, 29.0, 5.0, 0.1, path="crops/a.png")])
    with (tmp_path / "work" / "done.jsonl").open("ab") as file:
        file.write(damage)
    cut_off = pytest.warns(UserWarning, match=r"done\.jsonl: the last line was cut off")
    with nullcontext() if damage.endswith(b"\n") else cut_off:
        found = open_log(tmp_path / "work", "key")
    assert list(found.done) == [0], "the crop of the other block is gone"
    assert repr(found.done[0]) == repr(faces)
    assert list(open_log(tmp_path / "work", "key").done) == [0]
    (tmp_path / "work" / "key.txt").write_bytes(b"\xff")
    assert not open_log(tmp_path / "work", "key").done


@pytest.mark.parametrize("cut", [0, 7])
def test_a_killed_alignment_goes_on_where_it_was(tmp_path, photos, monkeypatch, cut):
    """The last line of the log may be cut off too; then its block is made again, and nothing else."""
    monkeypatch.setattr("cdp.faces.align_photos._BLOCK", 2)
    detector = marker_detector(tmp_path / "detector.onnx", RELATIVE)
    whole = align_faces(photos, detector, tmp_path / "whole", AlignSettings())
    done = []

    def stop_at_four(_name, count, _total):
        done.append(count)
        if count == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        align_faces(photos, detector, tmp_path / "faces", AlignSettings(), threads=1, progress=stop_at_four)
    assert not (tmp_path / "faces").exists()
    log = tmp_path / ".faces.aligning" / "done.jsonl"
    log.write_bytes(log.read_bytes()[: -cut or None])
    done.clear()
    cut_off = pytest.warns(UserWarning, match=r"done\.jsonl: the last line was cut off")
    with cut_off if cut else nullcontext():
        again = align_faces(
            photos,
            detector,
            tmp_path / "faces",
            AlignSettings(),
            progress=lambda _, count, __: done.append(count),
        )
    assert done == ([4, 6] if cut else [6])
    assert not log.parent.exists()
    assert again.manifest.locations == whole.manifest.locations
    for name in ("faces.csv", "dropped.csv", "different.csv"):
        assert (tmp_path / "faces" / name).read_text() == (tmp_path / "whole" / name).read_text()
    listed = sorted(one.relative_to(tmp_path / "faces") for one in (tmp_path / "faces").rglob("*"))
    assert listed == sorted(one.relative_to(tmp_path / "whole") for one in (tmp_path / "whole").rglob("*"))

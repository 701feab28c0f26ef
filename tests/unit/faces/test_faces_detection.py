"""Detectors of the known kinds: boxes and landmarks as they were encoded; overlaps; what is no detector."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="detectors need the extra onnx")
pytest.importorskip("onnx")

from tests.onnx_builders import constant_detector, embedder, marker_detector
from tests.refusals import refuses

from cdp.faces.detection_windows import SMALLEST, Window, is_whole, merge_faces, plan_windows
from cdp.faces.detector_outputs import Detections, suppress_overlaps
from cdp.faces.detectors import Detector, fit_into

FACES = [
    (0.9, (10, 12, 30, 36), [(15, 20), (25, 21), (20, 26), (16, 31), (24, 31)]),
    (0.7, (40, 8, 60, 30), [(44, 15), (55, 14), (50, 20), (45, 25), (54, 26)]),
    (0.4, (20, 40, 50, 62), [(27, 47), (41, 48), (34, 53), (29, 58), (40, 57)]),
]


@pytest.mark.parametrize("kind", ["scrfd", "yunet", "retinaface"])
def test_faces_come_out_as_they_were_encoded(tmp_path, kind):
    detector = Detector(constant_detector(tmp_path / "detector.onnx", kind, FACES))
    assert detector.kind.name.lower() == kind
    photo = np.zeros((128, 128, 3), np.uint8)
    # Reduced to the detector's size, and not searched again at a higher resolution.
    found = detector.detect(photo, least=0.5, longest=64)
    assert found.scores.tolist() == pytest.approx([0.9, 0.7])
    for at, (_, box, landmarks) in enumerate(FACES[:2]):
        np.testing.assert_allclose(found.boxes[at], 2 * np.array(box), atol=1e-3)
        np.testing.assert_allclose(found.landmarks[at], 2 * np.array(landmarks), atol=1e-3)
    assert len(detector.detect(photo, least=0.3, longest=64)) == 3


def slow_suppress(boxes, scores, overlap):
    kept = []
    for at in sorted(range(len(boxes)), key=lambda row: -scores[row]):
        clear = True
        for other in kept:
            width = min(boxes[at][2], boxes[other][2]) - max(boxes[at][0], boxes[other][0])
            height = min(boxes[at][3], boxes[other][3]) - max(boxes[at][1], boxes[other][1])
            common = max(width, 0) * max(height, 0)
            areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (boxes[at], boxes[other])]
            clear &= common / (sum(areas) - common) <= overlap
        if clear:
            kept.append(at)
    return kept


@pytest.mark.parametrize("seed", range(5))
def test_of_overlapping_boxes_the_best_is_kept(seed):
    generator = np.random.default_rng(seed)
    low = generator.uniform(0, 50, (40, 2))
    boxes = np.concatenate([low, low + generator.uniform(5, 40, (40, 2))], axis=1).astype(np.float32)
    scores = generator.permutation(40).astype(np.float32)
    faces = Detections(boxes, np.zeros((40, 5, 2), np.float32), scores)
    expected = slow_suppress(boxes.tolist(), scores.tolist(), 0.4)
    assert suppress_overlaps(faces, 0.4).scores.tolist() == scores[expected].tolist()
    assert len(suppress_overlaps(faces.take(np.arange(0)), 0.4)) == 0


def test_photos_are_fitted_into_the_top_left():
    photo = np.full((30, 60, 3), 200, np.uint8)
    square = fit_into(photo, 40 / 60, 40)
    assert square.shape == (40, 40, 3)
    assert (square[:20] == 200).all()
    assert not square[20:].any()
    # As large as it is, in whole strides, where the detector takes any size.
    assert fit_into(photo, 1, None).shape == (32, 64, 3)
    assert fit_into(photo, 1, None)[:30, :60].tobytes() == photo.tobytes()


@pytest.mark.parametrize(
    ("height", "width", "fixed"),
    [
        (250, 250, 640),
        (3000, 4000, 640),
        (3000, 4000, None),
        (12000, 16000, 320),
        (640, 9000, 640),
        (1, 1, 640),
    ],
)
def test_windows_cover_a_photo_and_small_faces_are_large_enough(height, width, fixed):
    windows = plan_windows(height, width, fixed, 24)
    assert all(0 < one.factor <= 1 for one in windows), "small photos are not enlarged"
    first = windows[0]
    assert (first.left, first.top, first.right, first.bottom) == (0, 0, width, height)
    smallest = max(24, 0.01 * max(height, width))
    assert windows[-1].factor >= min(1, SMALLEST / smallest) / 1.2 - 1e-9
    for one in windows:
        side = max(one.right - one.left, one.bottom - one.top) * one.factor
        assert fixed is None or side <= fixed + 1
    covered = np.zeros((-(-height // 10), -(-width // 10)), np.int64)
    for one in windows[1:]:
        covered[one.top // 10 : -(-one.bottom // 10), one.left // 10 : -(-one.right // 10)] += 1
    assert len(windows) == 1 or covered.min() >= 1
    assert len(windows) <= 60


def test_a_given_size_is_the_finest_resolution():
    (only,) = plan_windows(3000, 4000, 640, 24, longest=640)
    assert only.factor == pytest.approx(0.16)
    assert max(one.factor for one in plan_windows(3000, 4000, 640, 24, longest=2000)) == pytest.approx(0.5)


def test_a_face_at_the_border_of_a_window_is_left_to_its_neighbor():
    boxes = np.array([[5, 5, 60, 60], [380, 50, 399.5, 90], [200, 0, 240, 40]], np.float32)
    faces = Detections(boxes, np.zeros((3, 5, 2), np.float32), np.ones(3, np.float32))
    window = Window(0, 0, 400, 400, 1.0)
    assert is_whole(faces, window, 400, 400).all()
    assert is_whole(faces, window, 1000, 1000).tolist() == [True, False, True]
    assert is_whole(faces, Window(4, 0, 404, 400, 1.0), 1000, 1000).tolist() == [False, True, True]


def test_one_face_seen_at_two_resolutions_is_one_face():
    def faces(*rows):
        boxes = np.array([row[:4] for row in rows], np.float32)
        return Detections(
            boxes, np.zeros((len(rows), 5, 2), np.float32), np.array([row[4] for row in rows], np.float32)
        )

    coarse = faces((100, 100, 300, 300, 0.9))
    fine = faces((110, 95, 290, 310, 0.8), (150, 150, 200, 200, 0.7), (500, 500, 540, 540, 0.6))
    assert merge_faces([coarse, fine], 0.4).scores.tolist() == pytest.approx([0.9, 0.6])


def test_a_small_face_on_a_large_photo_is_found_in_its_window(tmp_path):
    """The toy detector looks for marks of 8 pixels, which a large photo reduced to 128 pixels does not show."""
    relative = np.array([[0.35, 0.45], [0.65, 0.45], [0.5, 0.6], [0.38, 0.75], [0.62, 0.75]])
    detector = Detector(marker_detector(tmp_path / "scrfd.onnx", relative))
    assert detector.fixed == 128
    photo = np.full((720, 1024, 3), 60, np.uint8)
    # Large enough to hold a whole cell of 8 pixels wherever the windows begin.
    photo[400:416, 640:656] = (0, 255, 48)
    assert len(detector.detect(photo, longest=128)) == 0
    found = detector.detect(photo, longest=1024)
    assert len(found) == 1
    np.testing.assert_allclose(found.boxes, [[640, 400, 688, 448]], atol=16)


def test_what_is_no_detector_is_refused(tmp_path):
    with refuses("detector-unknown", file=tmp_path / "arcface.onnx"):
        Detector(embedder(tmp_path / "arcface.onnx", batch=1))

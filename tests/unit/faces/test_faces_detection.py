"""Detectors of the known kinds: boxes and landmarks as they were encoded; overlaps; what is no detector."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="detectors need the extra onnx")
pytest.importorskip("onnx")

from tests.onnx_builders import constant_detector, embedder
from tests.refusals import refuses

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
    found = detector.detect(photo, least=0.5)
    assert found.scores.tolist() == pytest.approx([0.9, 0.7])
    for at, (_, box, landmarks) in enumerate(FACES[:2]):
        np.testing.assert_allclose(found.boxes[at], 2 * np.array(box), atol=1e-3)
        np.testing.assert_allclose(found.landmarks[at], 2 * np.array(landmarks), atol=1e-3)
    assert len(detector.detect(photo, least=0.3)) == 3


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
    square, factor = fit_into(photo, 40)
    assert factor == pytest.approx(40 / 60)
    assert (square[:20] == 200).all()
    assert not square[20:].any()
    assert fit_into(photo, 60)[0][:30].tobytes() == photo.tobytes()


def test_what_is_no_detector_is_refused(tmp_path):
    with refuses("detector-unknown", file=tmp_path / "arcface.onnx"):
        Detector(embedder(tmp_path / "arcface.onnx", batch=1))

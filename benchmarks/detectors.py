"""Face detectors on real photos: from which score on detections are faces, and time per photo next to bare onnxruntime.

There are no true boxes, so detectors check each other: a detection that both others make too (intersection over union above 0.4) is taken
for a face. `min_score` of a kind is the lowest score, in steps of 0.1, from which on 98 % are.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.data import data_folder
from cdp.data.images import decode
from cdp.faces.detector_outputs import Detections
from cdp.faces.detectors import Detector

_MODELS = ("face_detection_yunet_2023mar", "scrfd_pypi", "retinaface_mnet25_npm")
_SCORES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SUPPORTED = 0.98


def measure(quick: bool = False) -> dict[str, object]:
    """Score from which on 98 % of the detections are faces, and milliseconds of CPU time per photo, by detector."""
    photos, models = data_folder("lfw_photos"), Path(__file__).resolve().parents[2] / "shared" / "models"
    files = {name: models / f"{name}.onnx" for name in _MODELS}
    if photos is None or not all(file.is_file() for file in files.values()):
        print("skipped: the photos or the models are not there")
        return {}
    encoded = [file.read_bytes() for file in sorted(photos.glob("*.jpg"))[:: 20 if quick else 2]]
    detectors = {name: Detector(file, device="cpu") for name, file in files.items()}
    found = {
        name: [one.detect(decode(data), least=0.2) for data in encoded] for name, one in detectors.items()
    }
    figures: dict[str, object] = {"photos": len(encoded)}
    for name, detector in detectors.items():
        others = [other for other in detectors if other != name]
        scores, is_face = _check(found[name], [found[other] for other in others])
        shares = {
            score: round(float(is_face[scores >= score].mean()), 4)
            for score in _SCORES
            if (scores >= score).any()
        }
        figures[name] = {
            "kind": detector.kind.name,
            "share_of_faces_above_score": shares,
            "lowest_score_with_98_percent": next(
                (score for score, share in shares.items() if share >= _SUPPORTED), None
            ),
            "min_score": detector.kind.min_score,
            "cdp_ms_per_photo": _milliseconds(lambda data, one=detector: one.detect(decode(data)), encoded),
            "bare_ms_per_photo": _milliseconds(lambda data, one=detector: _bare(one, data), encoded),
        }
        print(f"{name:32} {figures[name]}")
    figures["decode_ms_per_photo"] = _milliseconds(decode, encoded)
    print(f"decoding: {figures['decode_ms_per_photo']} ms per photo")
    return figures


def _check(found: list[Detections], others: list[list[Detections]]) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all detections, and whether both others made them too."""
    scores, is_face = [], []
    for at, faces in enumerate(found):
        for box, score in zip(faces.boxes, faces.scores, strict=True):
            scores.append(score)
            is_face.append(all(_overlap(box, other[at].boxes) > 0.4 for other in others))
    return np.array(scores), np.array(is_face)


def _overlap(box: np.ndarray, others: np.ndarray) -> float:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - common
    return float((common / union).max(initial=0))


def _bare(detector: Detector, data: bytes) -> None:
    """What anybody would write: decode, enlarge to 640 x 640, run the model."""
    with Image.open(io.BytesIO(data)) as opened:
        photo = opened.convert("RGB").resize((640, 640), Image.Resampling.BILINEAR)
    values = np.asarray(photo, np.float32).transpose(2, 0, 1)[None]
    detector._session.run(None, {detector._input: np.ascontiguousarray(values)})


def _milliseconds(run: Callable[[bytes], object], encoded: list[bytes]) -> float:
    run(encoded[0])
    started = time.process_time()
    for data in encoded:
        run(data)
    return round(1000 * (time.process_time() - started) / len(encoded), 2)

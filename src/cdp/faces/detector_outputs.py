"""Boxes and five landmarks from the raw outputs of SCRFD, YuNet and RetinaFace: pure functions of arrays.

`size` is (height, width) of what the network saw, in pixels.

Landmarks are in the order of the template: the eye on the left of the picture, the other eye, the tip of the
nose, the corner of the mouth on the left, the other corner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError
from cdp.types.arrays import AnyArray, FloatArray, LongArray

N_LANDMARKS = 5
Size = tuple[int, int]
# data/config.py of biubug6/Pytorch_Retinaface.
_RETINA_STEPS = {8: (16, 32), 16: (64, 128), 32: (256, 512)}
_RETINA_VARIANCE = (0.1, 0.2)


@dataclass(frozen=True, eq=False)
class Detections:
    """Faces of one picture, best score first.

    Attributes:
        boxes: float32 (m, 4): left, top, right, bottom, in pixels; the middle of the first pixel is 0.
        landmarks: float32 (m, 5, 2): x, y.
        scores: float32 (m,), 0..1.
    """

    boxes: FloatArray
    landmarks: FloatArray
    scores: FloatArray

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: AnyArray) -> Detections:
        """Return some of the faces."""
        return Detections(self.boxes[rows], self.landmarks[rows], self.scores[rows])

    def placed(self, factor: float, left: float, top: float) -> Detections:
        """Return the same faces on a photo that this picture is a window of, `factor` times as large."""
        corner = np.array([left, top], np.float32)
        boxes = self.boxes * np.float32(factor) + np.tile(corner, 2)
        return Detections(boxes, self.landmarks * np.float32(factor) + corner, self.scores)


def decode_scrfd(outputs: Sequence[AnyArray], size: Size, least: float) -> Detections:
    """Decode SCRFD and InsightFace RetinaFace outputs: all scores, then boxes, then landmarks.

    Per stride and anchor: a score, the box as distances to left, top, right and bottom, and the landmarks as
    differences, both in strides from the corner of the cell (model_zoo/scrfd.py of deepinsight/insightface).

    Args:
        outputs: arrays whose last dimension is 1, 4 or 10, each kind from the smallest stride to the largest.
        size: height and width that the network saw.
        least: faces with a lower score are left out.
    """
    n_levels = sum(one.shape[-1:] == (1,) for one in outputs)
    found = []
    for level, (scores, boxes, landmarks) in enumerate(_levels(outputs, (1, 4, 10), n_levels)):
        stride = 8 << level
        rows, cells = (-(-side // stride) for side in size)
        n_anchors = max(1, len(scores) // (rows * cells))
        _expect(n_anchors * rows * cells, size, scores, boxes, landmarks)
        kept = np.flatnonzero(scores[:, 0] >= least)
        corners = _cells(kept // n_anchors, cells) * stride
        sides = boxes[kept] * stride
        found.append(
            Detections(
                np.concatenate([corners - sides[:, :2], corners + sides[:, 2:]], axis=1),
                corners[:, None] + landmarks[kept].reshape(-1, N_LANDMARKS, 2) * stride,
                scores[kept, 0],
            )
        )
    return _joined(found)


def decode_yunet(outputs: Mapping[str, AnyArray], size: Size, least: float) -> Detections:
    """Faces from YuNet's outputs `cls_8`, `obj_8`, `bbox_8`, `kps_8` and the same for strides 16 and 32.

    The score is the geometric mean of class and objectness; the box is its middle and the logarithm of its
    sides, in strides (objdetect/src/face_detect.cpp of opencv/opencv). YuNet calls the person's right eye,
    which is on the left of the picture, the first landmark, as the template does.
    """
    found = []
    for stride in (8, 16, 32):
        kind = {name: _as_rows(outputs[f"{name}_{stride}"], width) for name, width in _YUNET_WIDTHS.items()}
        _expect((-(-size[0] // stride)) * (-(-size[1] // stride)), size, *kind.values())
        scores = np.sqrt(np.clip(kind["cls"], 0, 1) * np.clip(kind["obj"], 0, 1))[:, 0]
        kept = np.flatnonzero(scores >= least)
        corners = _cells(kept, -(-size[1] // stride))
        middle = (corners + kind["bbox"][kept, :2]) * stride
        half = np.exp(kind["bbox"][kept, 2:]) * stride / 2
        landmarks = (corners[:, None] + kind["kps"][kept].reshape(-1, N_LANDMARKS, 2)) * stride
        found.append(
            Detections(np.concatenate([middle - half, middle + half], axis=1), landmarks, scores[kept])
        )
    return _joined(found)


_YUNET_WIDTHS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}


def decode_retinaface(outputs: Sequence[AnyArray], size: Size, least: float) -> Detections:
    """Decode PyTorch RetinaFace outputs: boxes (n, 4), scores (n, 2) and landmarks (n, 10).

    Every cell has two prior boxes; differences are in their sides times 0.1, sizes the exponent of 0.2 times
    the output (utils/box_utils.py of biubug6/Pytorch_Retinaface). Scores that are not probabilities yet
    become so by softmax.
    """
    ((boxes, scores, landmarks),) = _levels(outputs, (4, 2, 10), 1)
    if not np.allclose(scores.sum(axis=1), 1, atol=1e-3):
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    middles, sides = _priors(size)
    _expect(len(middles), size, boxes, scores, landmarks)
    kept = np.flatnonzero(scores[:, 1] >= least)
    middle, side = middles[kept], sides[kept, None]
    found = middle + boxes[kept, :2] * _RETINA_VARIANCE[0] * side
    half = side * np.exp(boxes[kept, 2:] * _RETINA_VARIANCE[1]) / 2
    points = (
        middle[:, None]
        + landmarks[kept].reshape(-1, N_LANDMARKS, 2) * np.float32(_RETINA_VARIANCE[0]) * side[:, None]
    )
    return _joined(
        [Detections(np.concatenate([found - half, found + half], axis=1), points, scores[kept, 1])]
    )


def decode_retinaface_maps(outputs: Mapping[str, AnyArray], least: float) -> Detections:
    """Decode MXNet RetinaFace maps: scores, boxes and landmarks at three strides.

    Every cell has two square anchors around the middle of its first 16 pixels. The score map holds the
    background of both anchors, then the faces; boxes and landmarks are differences in sides of the anchor
    (detection/retinaface/retinaface.py of deepinsight/insightface).
    """
    found = []
    for stride, sides in _MAP_ANCHORS.items():
        scores, boxes, landmarks = maps = [
            next(one for name, one in outputs.items() if part in name and name.endswith(f"stride{stride}"))
            for part in ("cls_prob", "bbox_pred", "landmark_pred")
        ]
        n_anchors, (rows, cells) = len(sides), scores.shape[2:]
        wanted = [(1, n_anchors * n, rows, cells) for n in (2, 4, 10)]
        if not scores.size or [one.shape for one in maps] != wanted:
            raise _misfit(maps, "maps of one height and width, with 4, 8 and 20 channels")
        middle = _cells(np.arange(rows * cells), cells) * np.float32(stride) + np.float32(7.5)
        for at, side in enumerate(sides):
            score = scores[0, n_anchors + at].ravel()
            kept = np.flatnonzero(score >= least)
            delta = boxes[0, 4 * at : 4 * at + 4].reshape(4, -1).T[kept]
            points = landmarks[0, 10 * at : 10 * at + 10].reshape(10, -1).T[kept].reshape(-1, N_LANDMARKS, 2)
            center = middle[kept] + delta[:, :2] * np.float32(side)
            half = ((np.exp(delta[:, 2:]) * np.float32(side) - 1) / 2).astype(np.float32)
            corners = np.concatenate([center - half, center + half], axis=1)
            places = (middle[kept][:, None] + points * np.float32(side)).astype(np.float32)
            found.append(Detections(corners, places, score[kept]))
    return _joined(found)


_MAP_ANCHORS = {32: (512, 256), 16: (128, 64), 8: (32, 16)}


def _levels(outputs: Sequence[AnyArray], widths: Sequence[int], n_levels: int) -> list[tuple[AnyArray, ...]]:
    """Return the outputs of every width as rows, level by level."""
    by_width = [[_as_rows(one, width) for one in outputs if one.shape[-1:] == (width,)] for width in widths]
    if not n_levels or any(len(one) != n_levels for one in by_width):
        raise _misfit(outputs, f"{n_levels or 'some'} outputs of each width of {', '.join(map(str, widths))}")
    return list(zip(*by_width, strict=True))


def _as_rows(output: AnyArray, width: int) -> AnyArray:
    if not output.size or output.size % width:
        raise _misfit([output], f"rows of {width} numbers")
    return output.reshape(-1, width)


def _expect(n_rows: int, size: Size, *outputs: AnyArray) -> None:
    """Refuse outputs of another number of places than a picture of this size has."""
    if any(len(one) != n_rows for one in outputs):
        raise _misfit(outputs, f"{n_rows:,} rows of each for {size[0]} x {size[1]} pixels")


def _misfit(outputs: Sequence[AnyArray], wanted: str) -> InputError:
    found = ", ".join(str(list(one.shape)) for one in outputs)
    return InputError(
        f"returns outputs of the shapes {found}, and a detector of its kind returns {wanted}; is it a face "
        "detector?",
        code="detector-outputs-wrong",
        expected=wanted,
        found=tuple(one.shape for one in outputs),
    )


def suppress_overlaps(faces: Detections, overlap: float) -> Detections:
    """Suppress overlapping faces, best first (non-maximum suppression by intersection over union)."""
    order = np.argsort(-faces.scores, kind="stable")
    kept: list[int] = []
    while order.size:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        order = order[_shared(faces.boxes[best], faces.boxes[order]) <= overlap]
    return faces.take(np.array(kept, np.int64))


def _shared(box: FloatArray, others: FloatArray) -> FloatArray:
    """Intersection over union of one box with others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    areas = np.prod(np.maximum(others[:, 2:] - others[:, :2], 0), axis=1)
    union = np.prod(np.maximum(box[2:] - box[:2], 0)) + areas - common
    shared: FloatArray = common / np.maximum(union, 1e-9)
    return shared


def share_of_smaller(box: FloatArray, others: FloatArray) -> FloatArray:
    """Intersection of one box with others, as a share of the smaller of the two."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    areas = np.prod(np.maximum(others[:, 2:] - others[:, :2], 0), axis=1)
    own = np.prod(np.maximum(box[2:] - box[:2], 0))
    share: FloatArray = common / np.maximum(np.minimum(areas, own), 1e-9)
    return share


def _cells(numbers: LongArray, per_row: int) -> FloatArray:
    """Return (column, row) of cells, counted row by row."""
    return np.stack([numbers % per_row, numbers // per_row], axis=1).astype(np.float32)


def _priors(size: Size) -> tuple[FloatArray, FloatArray]:
    """Middles (n, 2) and sides (n,) of RetinaFace's prior boxes, in pixels."""
    middles, sides = [], []
    for step, least_sizes in _RETINA_STEPS.items():
        rows, cells = (-(-side // step) for side in size)
        middle = (_cells(np.arange(rows * cells), cells) + 0.5) * step
        middles.append(np.repeat(middle, len(least_sizes), axis=0))
        sides.append(np.tile(np.array(least_sizes, np.float32), rows * cells))
    return np.concatenate(middles), np.concatenate(sides)


def _joined(found: Sequence[Detections]) -> Detections:
    boxes, landmarks, scores = (
        np.concatenate([getattr(one, name) for one in found]).astype(np.float32)
        for name in ("boxes", "landmarks", "scores")
    )
    sound = np.isfinite(boxes).all(axis=1) & np.isfinite(landmarks).all(axis=(1, 2))
    return Detections(boxes, landmarks, scores).take(np.flatnonzero(sound))

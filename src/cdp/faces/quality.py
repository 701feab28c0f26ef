"""How good a face is, as numbers."""

from __future__ import annotations

import numpy as np

from cdp.types.arrays import AnyArray, ByteArray


def sharpness(crop: ByteArray) -> float:
    """Compute the variance of the Laplacian of a face's gray values."""
    gray = crop.astype(np.float64) @ (0.299, 0.587, 0.114)
    around = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:]
    return float(np.var(around - 4 * gray[1:-1, 1:-1]))


def head_pose(landmarks: AnyArray) -> float:
    """Measure how far the nose is from the middle of the eyes, along their line, in half eye distances."""
    left, right, nose = np.asarray(landmarks[:3], np.float64)
    along = right - left
    squared = float(along @ along)
    return abs(float((nose - (left + right) / 2) @ along)) * 2 / squared if squared > 0 else float("inf")


def face_size(box: AnyArray) -> float:
    """Return the shorter side of a box."""
    return float(min(box[2] - box[0], box[3] - box[1]))

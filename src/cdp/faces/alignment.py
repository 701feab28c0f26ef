"""Faces on the ArcFace template: the similarity transform of five landmarks, and the crop."""

from __future__ import annotations

import numpy as np

from cdp.types.arrays import AnyArray, ByteArray, DoubleArray

CROP_SIZE = 112
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
"""Where the five landmarks lie on a crop of 112 x 112: utils/face_align.py of deepinsight/insightface."""
TEMPLATE.setflags(write=False)


def similarity_transform(landmarks: AnyArray, template: AnyArray = TEMPLATE) -> DoubleArray:
    """Fit the rotation, scale and shift from landmarks to a template, float64 (2, 3), without mirroring.

    Umeyama 1991 for the plane: with points as complex numbers around their mean, the factor c that minimizes
    sum |c z_i - w_i|^2 is sum conj(z_i) w_i / sum |z_i|^2. Its length is the scale, its angle the turn.

    Returns:
        NaN where all landmarks lie in one point.
    """
    points = np.asarray(landmarks, np.float64) @ np.array([1, 1j])
    wanted = np.asarray(template, np.float64) @ np.array([1, 1j])
    middle, goal = points.mean(), wanted.mean()
    spread = float((np.abs(points - middle) ** 2).sum())
    if not spread > 0:
        return np.full((2, 3), np.nan)
    factor = (np.conj(points - middle) * (wanted - goal)).sum() / spread
    shift = goal - factor * middle
    return np.array(
        [[factor.real, -factor.imag, shift.real], [factor.imag, factor.real, shift.imag]], np.float64
    )


def crop_face(photo: ByteArray, transform: DoubleArray, size: int = CROP_SIZE) -> ByteArray:
    """Return the photo seen through a transform, uint8 (size, size, 3); black beyond its border.

    Bilinear. A face more than twice as large as the crop is first averaged over whole blocks of pixels, else
    only some of its pixels would count.
    """
    from PIL import Image

    turn = np.linalg.inv(transform[:, :2])
    # From a crop's pixels to the photo's, where Pillow has the middle of a pixel at one half.
    start = 0.5 - turn @ (transform[:, 2] + 0.5)
    block = max(1, int(np.sqrt(abs(np.linalg.det(turn))) + 1e-6))
    corners = np.array([[0, 0], [size, 0], [0, size], [size, size]]) @ turn.T + start
    height, width = photo.shape[:2]
    low = np.clip(np.floor(corners.min(axis=0)) - block, 0, (width - 1, height - 1)).astype(int)
    high = np.clip(np.ceil(corners.max(axis=0)) + block, low + 1, (width, height)).astype(int)
    part = Image.fromarray(np.ascontiguousarray(photo[low[1] : high[1], low[0] : high[0]]))
    if block > 1:
        part = part.reduce(block)
    (a, b), (d, e) = turn / block
    c, f = (start - low) / block
    crop = part.transform((size, size), Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BILINEAR)
    pixels: ByteArray = np.asarray(crop)
    return pixels

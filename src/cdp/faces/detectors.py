"""Face detectors in ONNX files: which of the known kinds it is, and the faces of a photo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.errors import InputError
from cdp.faces.detection_windows import COARSE, Window, is_whole, merge_faces, plan_windows
from cdp.faces.detector_outputs import (
    Detections,
    Size,
    decode_retinaface,
    decode_retinaface_maps,
    decode_scrfd,
    decode_yunet,
)
from cdp.nets.onnx_sessions import ModelSession, open_any_size, open_session
from cdp.storage.array_files import hash_contents, naming
from cdp.types.arrays import AnyArray, ByteArray, FloatArray

_YUNET = {f"{name}_{stride}" for name in ("cls", "obj", "bbox", "kps") for stride in (8, 16, 32)}


@dataclass(frozen=True)
class Kind:
    """Detectors whose input and outputs mean the same.

    Attributes:
        name: of the kind.
        is_bgr: the order of colors; else RGB.
        mean, std: a pixel of 0..255 becomes (pixel - mean) / std.
        min_score: score from which on nearly all detections are faces (`python -m benchmarks detectors`).
        decode: outputs by name, height and width, least score -> faces.
    """

    name: str
    is_bgr: bool
    mean: tuple[float, float, float]
    std: float
    min_score: float
    decode: Callable[[Mapping[str, AnyArray], Size, float], Detections]


# As the projects that publish them prepare their images: model_zoo/scrfd.py and
# detection/retinaface/retinaface.py of deepinsight/insightface, objdetect/src/face_detect.cpp of
# opencv/opencv, detect.py of biubug6/Pytorch_Retinaface.
SCRFD = Kind(
    "SCRFD",
    False,
    (127.5,) * 3,
    128.0,
    0.6,
    lambda outputs, *rest: decode_scrfd(list(outputs.values()), *rest),
)
YUNET = Kind("YuNet", True, (0.0,) * 3, 1.0, 0.7, decode_yunet)
RETINAFACE = Kind(
    "RetinaFace",
    True,
    (104.0, 117.0, 123.0),
    1.0,
    0.7,
    lambda outputs, *rest: decode_retinaface(list(outputs.values()), *rest),
)
RETINAFACE_MXNET = Kind(
    "RetinaFace (MXNet)",
    False,
    (0.0,) * 3,
    1.0,
    0.5,
    lambda outputs, _, least: decode_retinaface_maps(outputs, least),
)


class Detector:
    """A face detector; several threads may call it at once."""

    def __init__(
        self, file: str | Path, *, device: str = "auto", session: ModelSession | None = None
    ) -> None:
        """Open a detector.

        Args:
            file: SCRFD, YuNet or RetinaFace as .onnx, with landmarks.
            device: `auto`, `cpu`, `cuda` or `cuda:1`.
            session: of the file, if it is open already.

        Raises:
            InputError: it is no detector of a known kind.
        """
        self._session = session or open_session(file, device)
        self.checksum = f"sha256 {hash_contents(file)}"
        taken = next(iter(self._session.inputs), None)
        if taken is None or len(self._session.inputs) > 1 or not _takes_photos(taken):
            raise InputError(
                f"{file}: does not take photos of shape (1, 3, height, width); give a face detector.",
                code="detector-input-wrong",
                file=file,
            )
        sides = {side for side in taken.shape[2:] if isinstance(side, int) and side > 0}
        if max(sides, default=0) > _LARGEST:
            raise InputError(
                f"{file}: takes photos of {max(sides):,} pixels a side; give a face detector.",
                code="detector-input-too-large",
                file=file,
                found=max(sides),
            )
        if len(sides) > 1:
            raise InputError(
                f"{file}: takes photos of {taken.shape[2]} x {taken.shape[3]}; only square inputs are "
                "supported.",
                code="detector-not-square",
                file=file,
                found=(taken.shape[2], taken.shape[3]),
            )
        self._input = taken.name
        self._names = [one.name for one in self._session.outputs]
        side = sides.pop() if sides else COARSE
        blank = np.zeros((1, 3, side, side), np.float32)
        arrays = self._session.run(self._names, {self._input: blank}, "a black photo")
        self.kind = _find_kind(Path(file), self._names, arrays, side)
        self._decode(arrays, (side, side), 1.0)
        self.fixed: int | None = side if sides or isinstance(taken.shape[2], int) else None
        """Side of the only input that it takes; None = any size."""
        if self.fixed is not None:
            opened = open_any_size(file, device)
            if opened is not None and self._takes_any_size(opened):
                self._session, self.fixed = opened, None

    def detect(
        self,
        photo: ByteArray,
        *,
        least: float = 0.5,
        overlap: float = 0.4,
        min_face: float = 24,
        longest: int | None = None,
    ) -> Detections:
        """Find the faces of a photo, in its own pixels, best first.

        Args:
            photo: uint8 (h, w, 3) in RGB.
            least: faces with a lower score are left out.
            overlap: of two boxes that share more than this of their union, the better one is kept.
            min_face: smallest face to find, in pixels.
            longest: pixels of the longer side at the finest resolution; None = as `min_face` needs it.
        """
        height, width = photo.shape[:2]
        found = []
        for window in plan_windows(height, width, self.fixed, min_face, longest):
            faces = self._detect_in(photo, window, least)
            found.append(faces.take(np.flatnonzero(is_whole(faces, window, height, width))))
        return merge_faces(found, overlap)

    def _detect_in(self, photo: ByteArray, window: Window, least: float) -> Detections:
        part = photo[window.top : window.bottom, window.left : window.right]
        fitted = fit_into(part, window.factor, self.fixed)
        values = self._prepare(fitted)
        arrays = self._session.run(self._names, {self._input: values}, "a photo")
        faces = self._decode(arrays, (fitted.shape[0], fitted.shape[1]), least)
        if len(faces) > _MOST_FACES:
            raise InputError(
                f"{self._session.file}: finds {len(faces):,} faces on one photo; is it a face detector?",
                code="detector-finds-too-many",
                file=self._session.file,
                found=len(faces),
            )
        return faces.placed(1 / window.factor, window.left, window.top)

    def _decode(self, arrays: Sequence[AnyArray], size: Size, least: float) -> Detections:
        """Faces from outputs; those that do not fit the kind of the detector are refused."""
        numbers = {
            name: one.astype(np.float32, copy=False) for name, one in zip(self._names, arrays, strict=True)
        }
        # A damaged model gives numbers of any size; faces of such are left out.
        with naming(self._session.file, file=self._session.file), np.errstate(all="ignore"):
            return self.kind.decode(numbers, size, least)

    def stop(self) -> bool:
        """End what other threads compute, soon; they fail. Whether there is anything."""
        return self._session.stop()

    def _prepare(self, fitted: ByteArray) -> FloatArray:
        """Bring pixels into the form that the network takes, float32 (1, 3, h, w)."""
        channels = fitted.transpose(2, 0, 1)
        values = np.empty((1, *channels.shape), np.float32)
        values[0] = channels[::-1] if self.kind.is_bgr else channels
        if any(self.kind.mean):
            values -= np.array(self.kind.mean, np.float32).reshape(1, 3, 1, 1)
        if self.kind.std != 1:
            values /= np.float32(self.kind.std)
        return values

    def _takes_any_size(self, session: ModelSession) -> bool:
        """Test whether a session opened for any size detects properly: the outputs grow with the input."""
        rng = np.random.default_rng(0)
        try:
            shapes = []
            for height, width in _TRIED_SIZES:
                pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
                arrays = session.run(
                    self._names, {self._input: self._prepare(pixels)}, "a picture of any size"
                )
                self._decode(arrays, (height, width), 0.0)
                shapes.append(sum(one.size for one in arrays) / (height * width))
        except InputError:  # it was made for one size only
            return False
        return bool(max(shapes) - min(shapes) < 1e-6)


def _takes_photos(taken: Any) -> bool:
    return len(taken.shape or ()) == 4 and taken.type == "tensor(float)"


_LARGEST = 4096
_MOST_FACES = 10_000
_TRIED_SIZES = ((640, 640), (256, 256), (320, 448))
_STRIDE = 32


def fit_into(photo: ByteArray, factor: float, fixed: int | None) -> ByteArray:
    """Reduce a photo and put it at the top left of a black picture, uint8 (h, w, 3).

    Args:
        photo: or a window of it.
        factor: of its sides, at most 1.
        fixed: side of the square; None = as large as is needed, in whole strides of the detector.
    """
    from PIL import Image

    height, width = photo.shape[:2]
    sides = (max(1, round(width * factor)), max(1, round(height * factor)))
    if fixed is not None:
        sides = (min(sides[0], fixed), min(sides[1], fixed))
    high, wide = (
        (fixed, fixed) if fixed is not None else (-(-side // _STRIDE) * _STRIDE for side in sides[::-1])
    )
    scaled = photo
    if sides != (width, height):
        # Whole blocks of pixels first: a bilinear reduction of a large photo reads every pixel several times.
        scaled = np.asarray(Image.fromarray(photo).resize(sides, Image.Resampling.BILINEAR, reducing_gap=2.0))
    picture = np.zeros((high, wide, 3), np.uint8)
    picture[: sides[1], : sides[0]] = scaled
    return picture


def _find_kind(file: Path, names: Sequence[str], arrays: Sequence[Any], size: int) -> Kind:
    """Return the kind of a detector by the names and shapes of its outputs."""
    widths = Counter(int(one.shape[-1]) if one.ndim else 0 for one in arrays)
    if set(names) >= _YUNET:
        return YUNET
    if _has_maps(names, arrays):
        return RETINAFACE_MXNET
    if widths == Counter({4: 1, 2: 1, 10: 1}):
        return RETINAFACE
    n_levels = widths[1]
    if n_levels in (3, 5) and widths == Counter({1: n_levels, 4: n_levels, 10: n_levels}):
        return SCRFD
    boxes_only = ({4: 1, 2: 1}, {1: widths[4], 4: widths[4]}, {1: 2 * widths[4], 4: widths[4]})
    if widths[4] in (1, 3, 5) and widths in [Counter(one) for one in boxes_only]:
        raise InputError(
            f"{file}: this detector has no landmarks, which alignment needs; use a file that has them "
            "(SCRFD: _bnkps or _kps).",
            code="detector-without-landmarks",
            file=file,
        )
    listed = ", ".join(f"{name} {list(one.shape)}" for name, one in zip(names, arrays, strict=True))
    raise InputError(
        f"{file}: not a supported detector: its outputs at {size} x {size} are {listed}; give "
        "SCRFD, YuNet (2023) or RetinaFace.",
        code="detector-unknown",
        file=file,
    )


def _has_maps(names: Sequence[str], arrays: Sequence[Any]) -> bool:
    """Test for the MXNet RetinaFace layout: scores, boxes and landmarks at three strides."""
    wanted = {"cls_prob": 4, "bbox_pred": 8, "landmark_pred": 20}
    return all(
        any(part in name and name.endswith(f"stride{stride}") and one.ndim == 4 and one.shape[1] == channels
            for name, one in zip(names, arrays, strict=True))
        for part, channels in wanted.items()
        for stride in (8, 16, 32)
    )  # fmt: skip

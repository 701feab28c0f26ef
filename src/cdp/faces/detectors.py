"""Face detectors in ONNX files: which of the known kinds it is, and the faces of a photo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.errors import InputError
from cdp.faces.detector_outputs import (
    Detections,
    decode_retinaface,
    decode_scrfd,
    decode_yunet,
    suppress_overlaps,
)
from cdp.nets.onnx_sessions import hash_file, open_session
from cdp.types.arrays import AnyArray, ByteArray, FloatArray

_YUNET = {f"{name}_{stride}" for name in ("cls", "obj", "bbox", "kps") for stride in (8, 16, 32)}


@dataclass(frozen=True)
class Kind:
    """Detectors whose input and outputs mean the same.

    Attributes:
        name: of the kind.
        is_bgr: the order of colors; else RGB.
        mean, std: a pixel of 0..255 becomes (pixel - mean) / std.
        decode: names, arrays, size, least score -> faces.
    """

    name: str
    is_bgr: bool
    mean: tuple[float, float, float]
    std: float
    decode: Callable[[Sequence[str], Sequence[AnyArray], int, float], Detections]


# As the projects that publish them prepare their images: model_zoo/scrfd.py of deepinsight/insightface,
# objdetect/src/face_detect.cpp of opencv/opencv, detect.py of biubug6/Pytorch_Retinaface.
SCRFD = Kind("SCRFD", False, (127.5,) * 3, 128.0, lambda names, *rest: decode_scrfd(*rest))
YUNET = Kind(
    "YuNet",
    True,
    (0.0,) * 3,
    1.0,
    lambda names, arrays, *rest: decode_yunet(dict(zip(names, arrays, strict=True)), *rest),
)
RETINAFACE = Kind(
    "RetinaFace", True, (104.0, 117.0, 123.0), 1.0, lambda names, *rest: decode_retinaface(*rest)
)


class Detector:
    """A face detector; several threads may call it at once."""

    def __init__(
        self, file: str | Path, *, device: str = "auto", size: int = 640, session: Any = None
    ) -> None:
        """Open a detector.

        Args:
            file: SCRFD, YuNet or RetinaFace as .onnx, with landmarks.
            device: `auto`, `cpu`, `cuda` or `cuda:1`.
            size: pixels a side that photos are brought to, where the model leaves it open.
            session: of the file, if it is open already.

        Raises:
            InputError: it is no detector of a known kind.
        """
        self._session = session or open_session(file, device)
        self.checksum = f"sha256 {hash_file(file)}"
        (taken, *others) = self._session.get_inputs()
        if others or len(taken.shape) != 4 or taken.type != "tensor(float)":
            raise InputError(
                f"{file}: takes something else than photos as (1, 3, height, width); is it a detector?",
                code="detector-input-wrong",
                file=file,
            )
        sides = {side for side in taken.shape[2:] if isinstance(side, int) and side > 0}
        if len(sides) > 1:
            raise InputError(
                f"{file}: takes photos of {taken.shape[2]} x {taken.shape[3]}; only square ones are known here.",
                code="detector-not-square",
                file=file,
                found=(taken.shape[2], taken.shape[3]),
            )
        self.size = sides.pop() if sides else size
        self._input = taken.name
        self._names = [one.name for one in self._session.get_outputs()]
        blank = np.zeros((1, 3, self.size, self.size), np.float32)
        self.kind = _find_kind(Path(file), self._names, self._run(Path(file), blank), self.size)

    def detect(self, photo: ByteArray, *, least: float = 0.5, overlap: float = 0.4) -> Detections:
        """The faces of a photo, uint8 (h, w, 3) in RGB, in its own pixels, best first."""
        fitted, factor = fit_into(photo, self.size)
        colors = fitted[..., ::-1] if self.kind.is_bgr else fitted
        values = (colors.astype(np.float32) - np.array(self.kind.mean, np.float32)) / np.float32(
            self.kind.std
        )
        arrays = self._session.run(
            self._names, {self._input: np.ascontiguousarray(values.transpose(2, 0, 1)[None])}
        )
        faces = self.kind.decode(self._names, arrays, self.size, least)
        return suppress_overlaps(faces.scaled(1 / factor), overlap)

    def _run(self, file: Path, values: FloatArray) -> list[AnyArray]:
        try:
            return list(self._session.run(self._names, {self._input: values}))
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:200]
            raise InputError(
                f"{file}: fails on a black photo ({reason}); is it a face detector?",
                code="detector-fails",
                file=file,
            ) from None


def fit_into(photo: ByteArray, size: int) -> tuple[ByteArray, float]:
    """A photo scaled to fit into a black square, at its top left, uint8 (size, size, 3), and the factor of its sides."""
    from PIL import Image

    height, width = photo.shape[:2]
    factor = size / max(height, width)
    sides = (max(1, round(width * factor)), max(1, round(height * factor)))
    square = np.zeros((size, size, 3), np.uint8)
    scaled = photo
    if sides != (width, height):
        scaled = np.asarray(Image.fromarray(photo).resize(sides, Image.Resampling.BILINEAR))
    square[: sides[1], : sides[0]] = scaled
    return square, factor


def _find_kind(file: Path, names: Sequence[str], arrays: Sequence[Any], size: int) -> Kind:
    """The kind of a detector by the names and shapes of its outputs."""
    widths = Counter(int(one.shape[-1]) if one.ndim else 0 for one in arrays)
    if set(names) >= _YUNET:
        return YUNET
    if widths == Counter({4: 1, 2: 1, 10: 1}):
        return RETINAFACE
    n_levels = widths[1]
    if n_levels in (3, 5) and widths == Counter({1: n_levels, 4: n_levels, 10: n_levels}):
        return SCRFD
    boxes_only = ({4: 1, 2: 1}, {1: widths[4], 4: widths[4]}, {1: 2 * widths[4], 4: widths[4]})
    if widths[4] in (1, 3, 5) and widths in [Counter(one) for one in boxes_only]:
        raise InputError(
            f"{file}: a detector without landmarks, and faces cannot be aligned without them; take a file that has them (SCRFD: "
            "_bnkps or _kps).",
            code="detector-without-landmarks",
            file=file,
        )
    listed = ", ".join(f"{name} {list(one.shape)}" for name, one in zip(names, arrays, strict=True))
    raise InputError(
        f"{file}: not a detector that is known here: its outputs at {size} x {size} are {listed}; give SCRFD, YuNet (2023) or "
        "RetinaFace.",
        code="detector-unknown",
        file=file,
    )

"""Embedding models in ONNX files: what they take and give, and images through them. No torch here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from cdp.errors import InputError, MissingExtraError
from cdp.nets.onnx_inputs import InputConventions, InputFacts, find_conventions, refuse_open
from cdp.nets.onnx_sessions import ModelSession, open_session
from cdp.nets.pixels import PixelFormat
from cdp.nets.torchvision_guard import require
from cdp.storage.array_files import hash_contents
from cdp.types.arrays import AnyArray, ByteArray, FloatArray

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
_BATCH_ON_CPU, _BATCH_ON_GPU = 16, 128
_MOST_DIMENSIONS = 2**16
_MOST_PIXELS = 2**25
"""Of all images that a model takes at once: what is larger is a slip, or there to fill the memory."""


@dataclass(frozen=True)
class OnnxModel:
    """What is known of an embedding model.

    Attributes:
        path: its file.
        conventions: how it wants its images.
        input: name of its input.
        output: name of the output that holds the embeddings.
        dimensions: length of an embedding.
        dtype: of the input: float32, float16 or uint8.
        is_channels_last: (n, height, width, channels) instead of (n, channels, height, width).
        batch: how many images it takes at once, 0 = any number.
        checksum: SHA-256 of the file.
    """

    path: Path
    conventions: InputConventions
    input: str
    output: str
    dimensions: int
    dtype: str
    is_channels_last: bool
    batch: int
    checksum: str

    @property
    def name(self) -> str:
        """Of its embeddings in Views: the file's name without its ending."""
        return self.path.stem


def read_onnx_model(path: str | Path) -> OnnxModel:
    """Read a model's inputs and outputs from its file, its card, its hash, or its family's name.

    Raises:
        InputError: it is no embedding model.
    """
    return open_onnx_model(path, "cpu").model


def open_onnx_model(
    path: str | Path, device: str = "auto", session: ModelSession | None = None
) -> OnnxEmbedder:
    """Open a model for embedding, from its session if that is open already; see `read_onnx_model`.

    What nothing says of its images is left open, and `embed_images` tries it on some of them.
    """
    file = Path(path)
    session = session or open_session(file, device)
    if len(session.inputs) != 1:
        names = ", ".join(one.name for one in session.inputs)
        raise InputError(
            f"{file}: {f'has the inputs {names}' if names else 'has no input'}; an embedding model takes "
            "images and nothing else.",
            code="onnx-inputs-wrong",
            file=file,
        )
    (taken,) = session.inputs
    if taken.type not in _TYPES or len(taken.shape or ()) != 4:
        raise InputError(
            f"{file}: takes {taken.type} of shape {taken.shape}; an embedding model takes (n, 3, size, "
            "size).",
            code="onnx-input-shape-wrong",
            file=file,
            found=tuple(taken.shape or ()),
        )
    sides = [side if isinstance(side, int) and side > 0 else None for side in taken.shape]
    is_channels_last = sides[1] not in (1, 3) and sides[3] in (1, 3)
    channels, height, width = (sides[3], *sides[1:3]) if is_channels_last else sides[1:]
    _check_input_size(file, sides[0] or 1, height or 1, width or 1)
    checksum = hash_contents(file)
    about = InputFacts(
        checksum,
        session.metadata,
        (height, width) if height and width else None,
        channels,
        _TYPES[taken.type] == np.uint8 or _is_scaled_inside(file, taken.name),
    )
    conventions = find_conventions(file, about)
    facts = (taken.name, conventions, _TYPES[taken.type], is_channels_last, sides[0] or 0)
    output, dimensions = _find_output(file, session, *facts)
    model = OnnxModel(
        file,
        conventions,
        taken.name,
        output,
        dimensions,
        np.dtype(_TYPES[taken.type]).name,
        is_channels_last,
        sides[0] or 0,
        checksum,
    )
    return OnnxEmbedder(model, session)


def _check_input_size(file: Path, batch: int, height: int, width: int) -> None:
    if batch * height * width > _MOST_PIXELS:
        raise InputError(
            f"{file}: takes {batch:,} images of {height:,} x {width:,} pixels at once, more than any "
            "embedding model; give one.",
            code="onnx-input-too-large",
            file=file,
            found=(batch, height, width),
        )


@lru_cache(maxsize=16)
def _open_once(path: str, checksum: str, inputs: str) -> OnnxEmbedder:
    """Open a model in a worker process, which serves many blocks."""
    opened = open_onnx_model(path).with_conventions(InputConventions.from_plain(json.loads(inputs)))
    if opened.checksum != checksum:
        raise InputError(
            f"{path}: the model changed since embedding began; start again, with storage that all nodes "
            "see under the same path.",
            code="onnx-model-changed",
            file=path,
        )
    return opened


class OnnxEmbedder:
    """A model and its session; `cdp.nets.embed_images.Embedder` says what it is for."""

    is_concurrent = True

    def __init__(self, model: OnnxModel, session: ModelSession) -> None:
        self.model = model
        self.name, self.checksum, self.dimensions = model.name, f"sha256 {model.checksum}", model.dimensions
        self.device = session.device
        self.batch = _BATCH_ON_CPU if self.device == "cpu" else _BATCH_ON_GPU
        about = model.conventions
        # A model of 112 x 96 pixels wants the middle 96 columns of a face on the template of 112 x 112.
        is_square = about.size[0] == about.size[1]
        self.pixel_format = PixelFormat(
            max(about.size), about.color != "gray", middle=None if is_square else about.size
        )
        self.inputs: Mapping[str, Any] = about.as_plain()
        self.assumed = about.assumed
        self._session = session
        # A GPU computes one batch after the other; others are decoded meanwhile.
        self._turn: AbstractContextManager[Any] = nullcontext() if self.device == "cpu" else Lock()

    def __reduce__(self) -> tuple[Callable[..., OnnxEmbedder], tuple[str, str, str]]:
        """Another process is sent the file's name, not the weights."""
        return _open_once, (str(self.model.path.absolute()), self.checksum, json.dumps(self.inputs))

    def with_conventions(self, conventions: InputConventions) -> OnnxEmbedder:
        """Return the same model with other input conventions."""
        return OnnxEmbedder(replace(self.model, conventions=conventions), self._session)

    def embed(self, pixels: ByteArray, flip: bool = False) -> FloatArray:
        """Embed decoded images (b, channels, height, width) as unit vectors, float32 (b, dimensions).

        Rows that are not finite or of length zero become NaN, for the caller to name.
        """
        rows = self._run(pixels)
        if flip:
            rows = _unit(rows + self._run(pixels[..., ::-1]))
        return rows

    def stop(self) -> bool:
        """End what is being computed, soon; whether there is anything."""
        return self._session.stop()

    def _run(self, pixels: ByteArray) -> FloatArray:
        model = self.model
        prepared = prepare_pixels(pixels, model.conventions, model.dtype, model.is_channels_last)
        batch = model.batch or len(prepared)
        rows = []
        for start in range(0, len(prepared), batch):
            part = prepared[start : start + batch]
            n_images = len(part)
            if n_images < batch:
                part = np.concatenate([part, np.repeat(part[-1:], batch - n_images, axis=0)])
            with self._turn:
                (answer,) = self._session.run([model.output], {model.input: part}, "images")
            if answer.shape[:1] != (batch,) or answer.size != batch * model.dimensions:
                raise InputError(
                    f"{model.path}: output {model.output!r} has shape {list(answer.shape)} for {batch} "
                    f"images, but {model.dimensions} values per image for two; embeddings need one "
                    "fixed length.",
                    code="onnx-output-changes",
                    file=model.path,
                    output=model.output,
                    expected=(batch, model.dimensions),
                    found=answer.shape,
                )
            rows.append(answer.reshape(batch, -1)[:n_images])
        with np.errstate(all="ignore"):  # what is not finite is found below
            return _unit(np.concatenate(rows).astype(np.float32, copy=False))


def prepare_pixels(
    pixels: ByteArray, conventions: InputConventions, dtype: Any = np.float32, is_channels_last: bool = False
) -> AnyArray:
    """Convert decoded images, uint8 (b, channels, h, w) in RGB or gray, to what a model takes."""
    ordered = pixels[:, ::-1] if conventions.color == "BGR" else pixels
    if is_channels_last:
        ordered = ordered.transpose(0, 2, 3, 1)
    if np.dtype(dtype) == np.uint8:
        return np.ascontiguousarray(ordered)
    shape = (1, 1, 1, -1) if is_channels_last else (1, -1, 1, 1)
    mean, std = (np.array(one, np.float32).reshape(shape) for one in (conventions.mean, conventions.std))
    values = np.empty(ordered.shape, np.float32)
    np.subtract(ordered, mean, out=values)
    if np.any(std != 1):
        values /= std
    return values.astype(dtype, copy=False)


def open_models(
    models: Sequence[str | Path], device: str = "auto", *, may_try: bool = True
) -> list[OnnxEmbedder]:
    """Models ready to embed, in the order given; the first is the base.

    Args:
        models: their files.
        device: where they compute.
        may_try: whether what nothing says of a model's images may be tried on some of them; else it is
            refused.

    Raises:
        InputError: two have the same name, or one cannot be used.
    """
    names: dict[str, str | Path] = {}
    for path in models:
        first = names.setdefault(Path(path).stem, path)
        if first is not path:
            raise InputError(
                f"{path} and {first} have the same name; views tell models by it, rename one of the files.",
                code="onnx-names-repeated",
                files=(str(path), str(first)),
            )
    opened = [open_onnx_model(path, device) for path in models]
    for one in () if may_try else opened:
        refuse_open(one.model.path, one.model.conventions)
    return opened


def _unit(rows: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        unit: FloatArray = (rows / length[:, None]).astype(np.float32)
    unit[~np.isfinite(unit).all(axis=1)] = np.nan
    return unit


def _is_scaled_inside(file: Path, input_name: str) -> bool:
    """Test whether the graph begins by subtracting or scaling, as models from MXNet do."""
    try:
        nodes = require("onnx").load(str(file), load_external_data=False).graph.node
    except MissingExtraError:
        raise
    except Exception:  # of protobuf, which refuses what onnxruntime reads
        return False
    name = input_name
    for node in nodes[:8]:
        if name not in node.input:
            continue
        if node.op_type in ("Sub", "Mul", "Div"):
            return True
        if node.op_type not in ("Cast", "Identity", "Transpose"):
            return False
        name = node.output[0]
    return False


def _find_output(
    file: Path,
    session: ModelSession,
    name: str,
    conventions: InputConventions,
    dtype: Any,
    is_last: bool,
    batch: int,
) -> tuple[str, int]:
    """Find the output that holds the embeddings, and their length, from two gray images."""
    n_images = batch or 2
    n_channels = 1 if conventions.color == "gray" else 3
    gray = np.full((n_images, n_channels, *conventions.size), 127, np.uint8)
    names = [one.name for one in session.outputs]
    if conventions.output and conventions.output not in names:
        raise InputError(
            f"{file}: has no output {conventions.output!r}; its outputs are {', '.join(names)}.",
            code="onnx-output-missing",
            file=file,
            output=conventions.output,
        )
    wanted = [conventions.output] if conventions.output else names
    answers = session.run(wanted, {name: prepare_pixels(gray, conventions, dtype, is_last)}, "gray images")
    widths = {
        one: answer.size // n_images
        for one, answer in zip(wanted, answers, strict=True)
        if answer.ndim >= 2
        and answer.shape[0] == n_images
        and 1 < answer.size // n_images <= _MOST_DIMENSIONS
        # (n, d) or (n, d, 1, 1): a map with more places is not one vector per image.
        and max(answer.shape[1:]) == answer.size // n_images
    }
    if len(widths) != 1:
        listed = ", ".join(f"{one} {list(answer.shape)}" for one, answer in zip(wanted, answers, strict=True))
        way_out = (
            f'name one in {file.with_suffix(".toml")}: output = "NAME".'
            if widths
            else "is it an embedding model?"
        )
        raise InputError(
            f"{file}: {len(widths) or 'none'} of its outputs may be the embedding ({listed}); {way_out}",
            code="onnx-output-unclear",
            file=file,
            found=len(widths),
        )
    ((output, width),) = widths.items()
    return output, width

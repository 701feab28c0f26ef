"""How a model wants its images, tried on some of them where nothing says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from cdp.blocks import spans
from cdp.data.images import open_images
from cdp.nets.model_cards import IMAGENET_MEAN, IMAGENET_STD
from cdp.nets.onnx_inputs import TRIAL, InputConventions
from cdp.nets.onnx_models import OnnxEmbedder
from cdp.nets.pixels import PixelFormat, decode_rows, stream_blocks
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import ByteArray, FloatArray
from cdp.types.manifest import Manifest

# As projects prepare their images. (pixel - 127.5) / 128 is not among them: its values differ from those of
# the first by 0.4 %, which changes no embedding that anybody could tell.
_SCALES: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = (
    ((127.5,) * 3, (127.5,) * 3),
    ((0.0,) * 3, (255.0,) * 3),
    ((0.0,) * 3, (1.0,) * 3),
    (IMAGENET_MEAN, IMAGENET_STD),
)
_FEWEST_FACES = 8
_ROUNDS = ((16, 3), (64, 1))
"""Faces that are looked at, and how many conventions stay: all are tried on a few faces, the best on more."""
_BLOCK = 16


def settle_conventions(
    embedder: OnnxEmbedder,
    manifest: Manifest,
    *,
    runtime: Runtime | None = None,
) -> OnnxEmbedder:
    """Choose what is open about a model's images by trying it on some of them; the same images give the same.

    A model that sees images as it was trained on recognizes a face in a changed copy (mirrored, shifted,
    darker, blurred, of few pixels) and tells it from other faces. Under wrong colors and scales both go down.

    Args:
        embedder: the model.
        manifest: aligned faces.
        runtime: how it runs; on threads of this process.
    """
    candidates = list_candidates(embedder.model.conventions)
    if len(candidates) < 2:
        return embedder
    faces = _read_faces(manifest, embedder.pixel_format)
    if len(faces) < _FEWEST_FACES:
        return embedder
    runtime = (runtime or Runtime()).here()
    for n_faces, n_kept in _ROUNDS:
        picked = faces[_spread(len(faces), n_faces)]
        scores = []
        for number, one in enumerate(candidates, 1):
            scores.append(score_conventions(embedder.with_conventions(one), picked, runtime.n_threads))
            runtime.progress(f"try inputs of {embedder.name}, {len(picked)} faces", number, len(candidates))
        # Of two that are as good, the more usual one.
        order = sorted(range(len(candidates)), key=lambda at: -scores[at])
        candidates = [candidates[at] for at in order[:n_kept]]
    return embedder.with_conventions(candidates[0])


def list_candidates(about: InputConventions) -> list[InputConventions]:
    """Return all usual conventions that agree with what is known; the most usual first."""
    if not about.open_keys:
        return [about]
    colors = ("RGB", "BGR") if "color" in about.open_keys else (about.color,)
    known_from = {**about.known_from, **dict.fromkeys(about.open_keys, TRIAL)}
    found: dict[Any, InputConventions] = {}
    for color in colors:
        for mean, std in _SCALES:
            order = slice(None, None, -1 if color == "BGR" else 1)
            count = len(about.mean)
            values: dict[str, Any] = {"mean": mean[order][:count], "std": std[order][:count], "color": color}
            chosen = {key: values[key] for key in about.open_keys}
            one = replace(about, **chosen, known_from=known_from)
            found.setdefault((one.color, one.mean, one.std), one)
    return list(found.values())


def score_conventions(embedder: OnnxEmbedder, faces: ByteArray, threads: int = 1) -> float:
    """Return how far a model tells changed copies of a face from other faces, as a gap of similarities.

    The lower quartile of other faces is compared with, because several of these may show one person.

    Args:
        embedder: the model, under the conventions to score.
        faces: uint8 (n, channels, height, width).
        threads: that compute; the result does not depend on it.
    """
    rows = _embed(embedder, faces, threads)
    same = [np.einsum("ij,ij->i", rows, _embed(embedder, copies, threads)) for copies in change_faces(faces)]
    others = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    gap = float(np.median(np.concatenate(same)) - np.quantile(others, 0.25))
    return gap if np.isfinite(gap) else -np.inf


def change_faces(faces: ByteArray) -> tuple[ByteArray, ByteArray, ByteArray]:
    """Faces mirrored; shifted, darker, blurred and mirrored; and of few pixels."""
    from PIL import Image, ImageFilter

    height, width = faces.shape[2:]
    mirrored = np.ascontiguousarray(faces[..., ::-1])
    shifted = np.pad(mirrored, ((0, 0), (0, 0), (1, 0), (0, 1)), mode="edge")[:, :, :height, 1:]
    darker = np.clip(shifted * 0.75 + 10, 0, 255).astype(np.uint8)
    small = max(1, width * 40 // 112), max(1, height * 40 // 112)

    def blur(image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(1))

    def shrink(image: Image.Image) -> Image.Image:
        bilinear = Image.Resampling.BILINEAR
        return image.resize(small, bilinear).resize((width, height), bilinear)

    return mirrored, _map_channels(darker, blur), _map_channels(faces, shrink)


def _map_channels(faces: ByteArray, change: Callable[[Any], Any]) -> ByteArray:
    from PIL import Image

    changed: ByteArray = np.stack(
        [np.stack([np.asarray(change(Image.fromarray(channel))) for channel in face]) for face in faces]
    )
    return changed


def _embed(embedder: OnnxEmbedder, faces: ByteArray, threads: int) -> FloatArray:
    def compute(start: int, stop: int) -> FloatArray:
        return embedder.embed(faces[start:stop])

    with closing(stream_blocks(list(spans(len(faces), _BLOCK)), compute, threads, embedder.stop)) as stream:
        rows: FloatArray = np.concatenate([block for _, block in stream])
    return rows


def _read_faces(manifest: Manifest, pixel_format: PixelFormat) -> ByteArray:
    """Return some images from all over a manifest that can be read."""
    reader = open_images(manifest)
    read: list[ByteArray] = []
    for row in _spread(len(manifest), _ROUNDS[-1][0]):
        pixels, reasons = decode_rows(reader, pixel_format, row, row + 1, skip_unreadable=True)
        if not reasons:
            read.append(pixels)
    return np.concatenate(read) if read else np.zeros((0, *pixel_format.shape), np.uint8)


def _spread(n_rows: int, most: int) -> Sequence[int]:
    rows: list[int] = np.unique(np.linspace(0, n_rows - 1, min(n_rows, most)).astype(np.int64)).tolist()
    return rows

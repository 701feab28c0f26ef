"""Embedding of images by models: decoded once, streamed, resumable. Without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.lib.format import open_memmap

from cdp.blocks import spans
from cdp.data.check import Unreadable, write_unreadable
from cdp.data.images import open_images
from cdp.data.manifests import without_unreadable
from cdp.errors import CdpError, InputError
from cdp.nets.convention_trial import settle_conventions
from cdp.nets.embedding_checks import odd_embeddings
from cdp.nets.onnx_models import OnnxEmbedder
from cdp.nets.pixels import PixelFormat, decode_rows, stream_blocks
from cdp.runtime.runtime import Runtime
from cdp.storage.array_files import open_npy
from cdp.storage.artifacts import read_json, write_card
from cdp.storage.files import (
    check_output,
    check_room,
    close_work,
    disk_errors,
    open_work,
    put_in_place,
    refuse_link,
    sweep,
    write_text,
)
from cdp.storage.hashes import hash_values
from cdp.types import Views
from cdp.types.arrays import ByteArray, FloatArray
from cdp.types.manifest import Manifest

_READY = "arrays-are-there"
_FLUSH_EVERY = 16
_WRITE_A_CARD = "if that is wrong, write a card next to the model (docs/photos.md)"


class Embedder(Protocol):
    """A model that makes unit vectors of decoded images.

    Attributes:
        name: of its embeddings in Views.
        checksum: of its weights, with the kind of checksum in front.
        dimensions: length of an embedding.
        pixel_format: the form its images take.
        batch: how many images it is best given at once.
        is_concurrent: whether several threads may call it at once; else it is called by one, one block after
            the other.
        device: where it computes, for the record.
        inputs: how it wants its images, for the record, where that is a fact about a file.
        assumed: what of that was not known and had to be assumed, in words; empty = nothing.
    """

    name: str
    checksum: str
    dimensions: int
    pixel_format: PixelFormat
    batch: int
    is_concurrent: bool
    device: str
    inputs: Mapping[str, Any]
    assumed: str

    def stop(self) -> bool:
        """End what other threads compute, soon; they fail. Whether there is anything."""

    def embed(self, pixels: ByteArray, flip: bool) -> FloatArray:
        """Embed uint8 (b, channels, height, width) as float32 (b, dimensions).

        With `flip`, averaged with the mirrored images.
        """


@dataclass(frozen=True, eq=False)
class Embedded:
    """What became of a manifest's images.

    Attributes:
        views: one row per image that could be read.
        manifest: these images, row by row.
        unreadable: those that could not be read, with their rows in the manifest that was given.
        notes: what looks wrong about the embeddings, and what was assumed of models, a sentence each.
    """

    views: Views
    manifest: Manifest
    unreadable: list[Unreadable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_Files: TypeAlias = dict[str, Embedder]
"""The models by the file that each fills, without `.npy`; the base first."""


def embed_images(
    manifest: Manifest,
    embedders: Sequence[Embedder],
    out: str | Path,
    *,
    flip: bool = False,
    batch: int = 0,
    skip_unreadable: bool = False,
    force: bool = False,
    inputs: Iterable[str | Path | None] = (),
    runtime: Runtime | None = None,
) -> Embedded:
    """Embed a manifest's images: one unit vector per image and model; the first model is the base.

    What is half done is kept next to `out` and gone on with when the same command runs again. What nothing
    says about the images that an ONNX model wants is tried on some of them, and the views' card says what was
    taken.

    Args:
        manifest: the images.
        embedders: the models, as `open_models` or `open_networks` give them.
        out: folder of views to write.
        flip: average with the mirrored image.
        batch: images per block, which goes through a model at once; 0 = what suits the models.
        skip_unreadable: leave images out that cannot be read, and list them in `unreadable.csv`, with the
            others in `images.csv`; else the first one is an error, and row = manifest row.
        force: replace views that are at `out`.
        inputs: what else is read and is never replaced.
        runtime: how it runs. Threads decode, and compute where models allow it; workers of Ray open the
            models from their files, once each.

    Raises:
        InputError: an image cannot be read, or a model gives something else than finite embeddings.
    """
    runtime = (runtime or Runtime()).on_gpus()
    if not embedders:
        raise InputError("There is no model to embed with; name one.", code="embedding-models-missing")
    target = Path(out).absolute()
    sweep(target.parent, target.name)
    refuse_link(target, out)
    check_output(out, force=force, kind="Views", inputs=inputs)
    embedders = [
        settle_conventions(one, manifest, runtime=runtime) if isinstance(one, OnnxEmbedder) else one
        for one in embedders
    ]
    files = {f"committee/{one.name}" if at else "base": one for at, one in enumerate(embedders)}
    rows = batch or min(one.batch for one in embedders)
    work = target.with_name(f".{target.name}.embedding")
    checksums = {one.name: (one.checksum, dict(one.inputs)) for one in embedders}
    # The device is not part of the key: half-done work may go on elsewhere.
    key = hash_values(manifest.digest, checksums, list(files), flip, rows, skip_unreadable)
    with disk_errors(out, f"what is done is kept in {work}"):
        _open_work(work, key, files, len(manifest))
        how = _How(flip, rows, skip_unreadable, runtime)
        bad: dict[int, str] = {}
        for pixel_format, group in _by_format(files).items():
            bad |= _embed_group(work, pixel_format, group, manifest, how)
        made = _finish(work, files, manifest, bad, flip)
        put_in_place(work, target, force=force)
    return Embedded(Views.load(target), *made)


@dataclass(frozen=True)
class _How:
    """What all blocks of a run have in common."""

    flip: bool
    batch: int
    skip_unreadable: bool
    runtime: Runtime


def _open_work(work: Path, key: str, files: _Files, n_images: int) -> None:
    """Empty arrays to fill; where they are there for the same key they stay as they are."""
    if open_work(work, key):
        widths = sum(one.dimensions for one in files.values())
        check_room(work.parent, 4 * n_images * widths, "the embeddings")
    if (work / _READY).is_file() and _are_whole(work, files, n_images):
        return
    for note in work.glob("done-*.json"):
        note.unlink()
    (work / "committee").mkdir(exist_ok=True)
    for file, one in files.items():
        open_memmap(work / f"{file}.npy", "w+", np.float32, (n_images, one.dimensions)).flush()
    (work / _READY).touch()


def _are_whole(work: Path, files: _Files, n_images: int) -> bool:
    """Check whether half-filled arrays are unchanged."""
    try:
        return all(
            open_npy(work / f"{file}.npy").shape == (n_images, one.dimensions) for file, one in files.items()
        )
    except (InputError, OSError):
        return False


def _by_format(files: _Files) -> dict[PixelFormat, _Files]:
    """Models that see the images in the same form share the decoding."""
    groups: dict[PixelFormat, _Files] = {}
    for file, one in files.items():
        groups.setdefault(one.pixel_format, {})[file] = one
    return groups


def _embed_group(
    work: Path, pixel_format: PixelFormat, files: _Files, manifest: Manifest, how: _How
) -> dict[int, str]:
    """Fill the arrays of models with equal input; return row -> reason for unreadable images."""
    done_file = work / f"done-{hash_values(pixel_format)}.json"
    done, bad = _read_done(done_file, len(manifest))
    arrays = {file: np.load(work / f"{file}.npy", mmap_mode="r+") for file in files}
    blocks = [span for span in spans(len(manifest), how.batch) if span[0] >= done]
    embed = _embed_here if how.runtime.pool is None else _embed_on_pool
    with closing(embed(pixel_format, files, manifest, how, blocks)) as stream:
        for start, (reasons, rows) in zip((start for start, _ in blocks), stream, strict=True):
            bad |= {str(row): reason for row, reason in reasons.items()}
            for file, one in files.items():
                done = start + len(rows[file])
                _refuse_not_finite(rows[file], start, reasons, one, manifest)
                arrays[file][start:done] = rows[file]
            if (start // how.batch + 1) % _FLUSH_EVERY == 0 or done == len(manifest):
                for array in arrays.values():
                    array.flush()
                write_text(done_file, json.dumps([done, bad]))
            _, height, width = pixel_format.shape
            how.runtime.progress(f"embed {height} x {width}", done, len(manifest))
    return {int(row): reason for row, reason in bad.items()}


def _read_done(file: Path, n_images: int) -> tuple[int, dict[str, str]]:
    """Read how many images are done and which of them are unreadable; none if this is unknown."""
    if not file.exists():
        return 0, {}
    try:
        done, bad = read_json(file, tuple[int, dict[str, str]])
    except CdpError:
        return 0, {}
    is_sound = 0 <= done <= n_images and all(row.isdecimal() and int(row) < done for row in bad)
    return (done, bad) if is_sound else (0, {})


_Block: TypeAlias = tuple[dict[int, str], dict[str, FloatArray]]
"""Row -> reason of what cannot be read, and the embeddings by file."""


def _embed_here(
    pixel_format: PixelFormat, files: _Files, manifest: Manifest, how: _How, blocks: Sequence[tuple[int, int]]
) -> Generator[_Block, None, None]:
    """Yield the blocks in order, decoded on threads; models that are not concurrent compute here."""
    reader = open_images(manifest)

    def compute(start: int, stop: int) -> tuple[ByteArray, dict[int, str], dict[str, FloatArray]]:
        pixels, reasons = decode_rows(reader, pixel_format, start, stop, skip_unreadable=how.skip_unreadable)
        together = {file: one.embed(pixels, how.flip) for file, one in files.items() if one.is_concurrent}
        return pixels, reasons, together

    def stop() -> bool:
        return sum(one.stop() for one in files.values()) > 0  # all of them

    with closing(stream_blocks(blocks, compute, how.runtime.n_threads, stop)) as stream:
        for _, (pixels, reasons, rows) in stream:
            here = {file: one.embed(pixels, how.flip) for file, one in files.items() if file not in rows}
            yield reasons, rows | here


def _embed_on_pool(
    pixel_format: PixelFormat, files: _Files, manifest: Manifest, how: _How, blocks: Sequence[tuple[int, int]]
) -> Generator[_Block, None, None]:
    """Yield the blocks in order; each is sent the locations of its images only."""
    parts = (
        (
            start,
            Manifest(
                manifest.locations[start:stop],
                manifest.identities[start:stop],
                root=os.path.abspath(manifest.root),
                turns=None if manifest.turns is None else manifest.turns[start:stop],
            ),
        )
        for start, stop in blocks
    )
    yield from how.runtime.map(_embed_part, (pixel_format, files, how.flip, how.skip_unreadable), parts)


def _embed_part(shared: tuple[PixelFormat, _Files, bool, bool], block: tuple[int, Manifest]) -> _Block:
    pixel_format, files, flip, skip_unreadable = shared
    start, part = block
    try:
        pixels, reasons = decode_rows(
            open_images(part), pixel_format, 0, len(part), skip_unreadable=skip_unreadable
        )
    except InputError as error:  # it names the row of the part
        named = {part.describe(row): f"row {start + row} ({part.locations[row]})" for row in range(len(part))}
        own = next((name for name in named if str(error).startswith(f"{name}:")), "")
        raise InputError(
            named.get(own, "") + str(error).removeprefix(own),
            **(error.details() | ({"row": start + error.fields["row"]} if own else {})),
        ) from None
    embedded = {file: one.embed(pixels, flip) for file, one in files.items()}
    return {start + row: reason for row, reason in reasons.items()}, embedded


def _refuse_not_finite(
    block: FloatArray, start: int, reasons: Mapping[int, str], one: Embedder, manifest: Manifest
) -> None:
    for at in np.flatnonzero(~np.isfinite(block).all(axis=1)).tolist():
        if start + at not in reasons:
            raise InputError(
                f"{one.name}: the embedding of {manifest.describe(start + at)} is not finite or has "
                "length zero; check the model file and its input settings (mean, std).",
                code="embedding-not-finite",
                model=one.name,
                row=start + at,
            )


def _finish(
    work: Path, files: _Files, manifest: Manifest, bad: Mapping[int, str], flip: bool
) -> tuple[Manifest, list[Unreadable], list[str]]:
    """Complete a folder of views from the filled arrays; unreadable images are listed next to them."""
    unreadable = [Unreadable(row, manifest.locations[row], bad[row]) for row in sorted(bad)]
    kept = without_unreadable(manifest, sorted(bad))
    notes = _finish_arrays(work, files, kept, sorted(bad))
    base, *committee = files.values()
    notes += [f"{one.name}: {one.assumed}; {_WRITE_A_CARD}." for one in files.values() if one.assumed]
    settings = {
        "committee": [one.name for one in committee],
        "base": base.name,
        "flip": flip,
        "device": base.device,
        "inputs": {one.name: dict(one.inputs) for one in files.values() if one.inputs},
        "notes": notes,
    }
    _write_views(work, kept, files, settings)
    if unreadable:
        write_unreadable(manifest, unreadable, work / "unreadable.csv")
        kept.save(work / "images.csv")
    return kept, unreadable, notes


def _finish_arrays(work: Path, files: _Files, kept: Manifest, bad: Sequence[int]) -> list[str]:
    """Take out the rows of images that could not be read; answers with what looks wrong about the others."""
    notes = []
    for file, one in files.items():
        path = work / f"{file}.npy"
        array = np.load(path, mmap_mode="r")
        if len(array) != len(kept):
            shorter = open_memmap(work / "shorter.npy", "w+", np.float32, (len(kept), one.dimensions))
            rows = np.delete(np.arange(len(array)), bad)
            for start, stop in spans(len(rows), 4096):
                shorter[start:stop] = array[rows[start:stop]]
            shorter.flush()
            (work / "shorter.npy").replace(path)
            array = shorter
        notes += [f"{one.name}: {note}" for note in odd_embeddings(array, kept.identities)]
    return notes


def _write_views(work: Path, manifest: Manifest, files: _Files, settings: Mapping[str, Any]) -> None:
    """Write the folder of views around the filled arrays."""
    arrays = {file: np.load(work / f"{file}.npy", mmap_mode="r") for file in files}
    np.save(work / "identities.npy", manifest.identities)
    paths = "".join(f"{location}\n" for location in manifest.locations)
    (work / "paths.txt").write_text(paths, encoding="utf-8")
    write_card(
        work,
        "Views",
        f"Views: {len(manifest):,} images, base {settings['base']}, committee of {len(files) - 1}",
        settings,
        {"manifest": manifest.digest} | {f"network/{one.name}": one.checksum for one in files.values()},
        {**arrays, "identities": manifest.identities},
    )
    close_work(work, work / _READY, *work.glob("done-*.json"))

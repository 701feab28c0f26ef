"""Embedding: a manifest seen by trained networks, streamed into a folder of views; resumable mid-file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch.nn import functional

from cdp.devices import resolve_device
from cdp.errors import InputError
from cdp.files import check_output, disk_errors, put_in_place, refuse_link, sweep, write_text
from cdp.nets.augment import center_crop
from cdp.nets.pixels import PixelFormat, check_free_space, fingerprint, stream_pixels
from cdp.nets.recipe import key_of
from cdp.nets.weights import TrainedNetwork, load_network
from cdp.parallel import spans
from cdp.progress import Progress, no_progress
from cdp.store import write_card
from cdp.types import Views
from cdp.types.arrays import ByteArray, FloatArray
from cdp.types.manifest import Manifest

_Files: TypeAlias = dict[str, TrainedNetwork]
"""The networks by the file that each fills, without `.npy`; the base first."""

_FLUSH_EVERY = 16


def extract_views(
    networks: str | Path,
    manifest: Manifest,
    out: str | Path,
    *,
    base: str,
    members: Sequence[str] | None = None,
    flip: bool = False,
    batch: int = 256,
    threads: int = 0,
    force: bool = False,
    inputs: Iterable[str | Path | None] = (),
    device: str = "auto",
    progress: Progress = no_progress,
) -> Views:
    """Views of a manifest's images, row = manifest row, one unit vector per image and network.

    What is half done is kept beside `out` and gone on with when the same command runs again.

    Args:
        networks: folder with one folder per trained network.
        manifest: the images.
        out: folder of views to write.
        base: which network is the base.
        members: committee, in order; None = all others, by name.
        flip: average with the mirrored image.
        batch: images per forward pass; the rows of a file are cut into such blocks.
        threads: decoding threads.
        force: replace views that are at `out`.
        inputs: what else is read, beside the networks, and is never replaced.
        device: where to compute: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
        progress: called with how many images are done.
    """
    target = Path(out).absolute()
    sweep(target.parent, target.name)
    refuse_link(target, out)
    check_output(out, force=force, kind="Views", inputs=[networks, *inputs])
    on = resolve_device(device)
    names = [base, *choose_members(Path(networks), base, members)]
    files = {
        f"committee/{name}" if name != base else "base": load_network(Path(networks) / name, on)
        for name in names
    }
    work = target.with_name(f".{target.name}.embedding")
    checksums = {network.name: network.checksum for network in files.values()}
    # The device is not part of the key: half-done work may go on elsewhere.
    key = key_of(fingerprint(manifest), checksums, list(files), flip, batch)
    with disk_errors(out, f"what is done is kept in {work}"):
        _open_work(work, key, files, len(manifest))
        for pixel_format, group in _by_format(files).items():
            _embed_group(work, pixel_format, group, manifest, flip, batch, threads, progress)
        settings = {"committee": names[1:], "base": base, "flip": flip, "device": str(on)}
        _write_views(work, manifest, files, settings)
        put_in_place(work, target, force=force)
    return Views.load(target)


def choose_members(networks: Path, base: str, members: Sequence[str] | None) -> list[str]:
    """Names of the committee: those asked for, or every trained network except the base."""
    if not networks.is_dir():
        raise InputError(f"{networks}: there is no such folder; give the --out of cdp train.")
    trained = sorted(card.parent.name for card in networks.glob("*/card.json"))
    wanted = [name for name in trained if name != base] if members is None else list(members)
    for name in [base, *wanted]:
        if name not in trained:
            half = " (its training is not finished)" if (networks / name).is_dir() else ""
            listed = ", ".join(trained) or "none"
            raise InputError(f"{networks}: no trained network {name!r}{half}; trained are {listed}.")
    return wanted


def embed_block(trained: TrainedNetwork, pixels: ByteArray, flip: bool) -> FloatArray:
    """Unit vectors of decoded images, float32 (b, dimensions), computed where the network is."""
    device = next(trained.network.parameters()).device
    with torch.inference_mode():
        images = center_crop(torch.from_numpy(pixels), trained.recipe.size).to(device)
        if trained.recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        vectors = functional.normalize(trained.network(images))
        if flip:
            vectors = functional.normalize(vectors + functional.normalize(trained.network(images.flip(-1))))
        on_cpu: FloatArray = vectors.cpu().numpy()
    return on_cpu


def _open_work(work: Path, key: str, files: _Files, n_images: int) -> None:
    """Empty arrays to fill; where they are there for the same key they stay as they are."""
    if (work / "key.txt").exists() and (work / "key.txt").read_text() == key:
        return
    shutil.rmtree(work, ignore_errors=True)
    widths = {file: network.network.dimensions for file, network in files.items()}
    work.parent.mkdir(parents=True, exist_ok=True)
    check_free_space(work.parent, 4 * n_images * sum(widths.values()), "the embeddings")
    (work / "committee").mkdir(parents=True)
    for file, width in widths.items():
        open_memmap(work / f"{file}.npy", "w+", np.float32, (n_images, width)).flush()
    (work / "key.txt").write_text(key)


def _by_format(files: _Files) -> dict[PixelFormat, _Files]:
    """Networks that see the images in the same form share the decoding."""
    groups: dict[PixelFormat, _Files] = {}
    for file, network in files.items():
        groups.setdefault(PixelFormat.of(network.recipe), {})[file] = network
    return groups


def _embed_group(
    work: Path,
    pixel_format: PixelFormat,
    files: _Files,
    manifest: Manifest,
    flip: bool,
    batch: int,
    threads: int,
    progress: Progress,
) -> None:
    done_file = work / f"done-{key_of(pixel_format)}.json"
    done = json.loads(done_file.read_text()) if done_file.exists() else 0
    arrays = [np.load(work / f"{file}.npy", mmap_mode="r+") for file in files]
    blocks = [span for span in spans(len(manifest), batch) if span[0] >= done]
    with closing(stream_pixels(manifest, pixel_format, blocks, threads)) as stream:
        for start, pixels in stream:
            done = start + len(pixels)
            for network, array in zip(files.values(), arrays, strict=True):
                array[start:done] = embed_block(network, pixels, flip)
            if (start // batch + 1) % _FLUSH_EVERY == 0 or done == len(manifest):
                for array in arrays:
                    array.flush()
                write_text(done_file, json.dumps(done))
            progress(f"embed {pixel_format.size} x {pixel_format.size}", done, len(manifest))


def _write_views(work: Path, manifest: Manifest, files: _Files, settings: Mapping[str, Any]) -> None:
    """All that makes a folder of views of the filled arrays."""
    arrays = {file: np.load(work / f"{file}.npy", mmap_mode="r") for file in files}
    np.save(work / "identities.npy", manifest.identities)
    paths = "".join(f"{location}\n" for location in manifest.locations)
    (work / "paths.txt").write_text(paths, encoding="utf-8")
    write_card(
        work,
        "Views",
        f"Views: {len(manifest):,} images, base {settings['base']}, committee of {len(files) - 1}",
        settings,
        {"manifest": fingerprint(manifest)}
        | {f"network/{network.name}": f"crc32 {network.checksum}" for network in files.values()},
        {**arrays, "identities": manifest.identities},
    )
    for left in [*work.glob("done-*.json"), work / "key.txt"]:
        left.unlink()

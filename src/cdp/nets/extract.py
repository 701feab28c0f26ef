"""Embedding: a manifest seen by trained networks, streamed into a folder of views; resumable mid-file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch.nn import functional

from cdp.errors import InputError, OutputExistsError, StoreError
from cdp.files import disk_errors, put_in_place, refuse_link, sweep, write_text
from cdp.nets.augment import center_crop
from cdp.nets.pixels import Look, fingerprint, stream_pixels
from cdp.nets.recipe import key_of
from cdp.nets.weights import TrainedNetwork, load_network
from cdp.parallel import spans
from cdp.progress import Progress, no_progress
from cdp.store import write_card
from cdp.types import Views
from cdp.types.arrays import ByteArray, FloatArray
from cdp.types.manifest import Manifest


@dataclass(frozen=True)
class _Job:
    """One network and the file it fills."""

    trained: TrainedNetwork
    file: str


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
    device: torch.device | None = None,
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
        force: replace `out` if it is there.
        device: where to compute.
        progress: told how many images are done.
    """
    target = Path(out).absolute()
    sweep(target.parent, target.name)
    refuse_link(target, out)
    if target.exists() and not force:
        raise OutputExistsError(f"{out} is there already; choose another folder or replace it with --force.")
    names = [base, *choose_members(Path(networks), base, members)]
    jobs = [
        _Job(load_network(Path(networks) / name), f"committee/{name}" if name != base else "base")
        for name in names
    ]
    work = target.with_name(f".{target.name}.embedding")
    checksums = {job.trained.name: job.trained.checksum for job in jobs}
    key = key_of(fingerprint(manifest), checksums, [job.file for job in jobs], flip, batch)
    with disk_errors(out, f"what is done is kept in {work}"):
        _open_work(work, key, jobs, len(manifest))
        for look, group in _by_look(jobs).items():
            _fill_group(work, look, group, manifest, flip, batch, threads, device, progress)
        _finish(work, target, manifest, jobs, checksums, flip, force)
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
    """Unit vectors of decoded images, float32 (b, dimensions)."""
    device = next(trained.network.parameters()).device
    with torch.inference_mode():
        images = center_crop(torch.from_numpy(pixels), trained.recipe.size).to(device)
        if trained.recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        vectors = functional.normalize(trained.network(images))
        if flip:
            vectors = functional.normalize(vectors + functional.normalize(trained.network(images.flip(-1))))
        answer: FloatArray = vectors.cpu().numpy()
    return answer


def _open_work(work: Path, key: str, jobs: Sequence[_Job], n_images: int) -> None:
    if (work / "key.txt").exists() and (work / "key.txt").read_text() == key:
        return
    shutil.rmtree(work, ignore_errors=True)
    (work / "committee").mkdir(parents=True)
    n_bytes = sum(4 * n_images * job.trained.network.dimensions for job in jobs)
    free = shutil.disk_usage(work).free
    if free < n_bytes:
        shutil.rmtree(work, ignore_errors=True)
        raise StoreError(
            f"{work.parent}: the embeddings need {n_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; free space "
            "or choose another --out."
        )
    for job in jobs:
        shape = (n_images, job.trained.network.dimensions)
        open_memmap(work / f"{job.file}.npy", "w+", np.float32, shape).flush()
    (work / "key.txt").write_text(key)


def _by_look(jobs: Sequence[_Job]) -> dict[Look, list[_Job]]:
    """Networks that see the images in the same form share the decoding."""
    groups: dict[Look, list[_Job]] = {}
    for job in jobs:
        groups.setdefault(Look.of(job.trained.recipe), []).append(job)
    return groups


def _fill_group(
    work: Path,
    look: Look,
    jobs: Sequence[_Job],
    manifest: Manifest,
    flip: bool,
    batch: int,
    threads: int,
    device: torch.device | None,
    progress: Progress,
) -> None:
    done_file = work / f"done-{key_of(look)}.json"
    done = json.loads(done_file.read_text()) if done_file.exists() else 0
    arrays = [np.load(work / f"{job.file}.npy", mmap_mode="r+") for job in jobs]
    for job in jobs:
        if device is not None:
            job.trained.network.to(device)
    blocks = [span for span in spans(len(manifest), batch) if span[0] >= done]
    with closing(stream_pixels(manifest, look, blocks, threads)) as stream:
        for start, pixels in stream:
            for job, array in zip(jobs, arrays, strict=True):
                array[start : start + len(pixels)] = embed_block(job.trained, pixels, flip)
            done = start + len(pixels)
            if (start // batch) % 16 == 15 or done == len(manifest):
                for array in arrays:
                    array.flush()
                write_text(done_file, json.dumps(done))
            progress(f"embed {look.size} x {look.size}", done, len(manifest))


def _finish(
    work: Path,
    target: Path,
    manifest: Manifest,
    jobs: Sequence[_Job],
    checksums: Mapping[str, str],
    flip: bool,
    force: bool,
) -> None:
    arrays = {job.file: np.load(work / f"{job.file}.npy", mmap_mode="r") for job in jobs}
    np.save(work / "identities.npy", manifest.identities)
    arrays["identities"] = manifest.identities
    (work / "paths.txt").write_text("".join(f"{place}\n" for place in manifest.locations), encoding="utf-8")
    members = [job.trained.name for job in jobs[1:]]
    write_card(
        work,
        "Views",
        f"Views: {len(manifest):,} images, base {jobs[0].trained.name}, committee of {len(members)}",
        {"committee": members, "base": jobs[0].trained.name, "flip": flip},
        {"manifest": fingerprint(manifest)}
        | {f"network/{name}": f"crc32 {checksum}" for name, checksum in checksums.items()},
        arrays,
    )
    del arrays
    for left in [*work.glob("done-*.json"), work / "key.txt"]:
        left.unlink()
    put_in_place(work, target, force=force)

"""The scan for images that cannot be read, before anything is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

from cdp.data.check_worker import CheckWorker, find_unreadable
from cdp.data.images import Source
from cdp.data.manifest_tables import locations_from, write_csv, writing_file
from cdp.errors import InputError
from cdp.parallel import count_threads, map_blocks, spans
from cdp.progress import Progress, no_progress
from cdp.types.manifest import Manifest

_PICTURES_PER_BLOCK = 256


class Unreadable(NamedTuple):
    """An image that cannot be read, and why."""

    row: int
    location: str
    reason: str


def check_images(manifest: Manifest, threads: int = 0, progress: Progress = no_progress) -> list[Unreadable]:
    """All images of a manifest that cannot be read or decoded, by row; every picture is decoded in full, once.

    Args:
        manifest: the images.
        threads: processes to decode with; 0 = as many as there are cores.
        progress: told of the progress.
    """
    pictures = list(dict.fromkeys(manifest.locations))
    n_workers = min(count_threads(threads), -(-len(pictures) // _PICTURES_PER_BLOCK))
    found: dict[str, str] = {}
    # Python threads would wait for each other: most of the time on small images is spent outside the decoder.
    with _scanners(manifest.root, n_workers) as scan:
        blocks = spans(len(pictures), _PICTURES_PER_BLOCK)
        scanned = map_blocks(lambda span: scan(pictures[span[0] : span[1]]), blocks, n_workers)
        for (_, done), reasons in zip(blocks, scanned, strict=True):
            found |= reasons
            progress("images", done, len(pictures))
    return [
        Unreadable(row, location, found[location])
        for row, location in enumerate(manifest.locations)
        if location in found
    ]


@contextmanager
def _scanners(root: str, n_workers: int) -> Iterator[Callable[[list[str]], dict[str, str]]]:
    """A function that scans a block, in this process or in whichever worker process is free."""
    if n_workers < 2:
        source = Source(root)
        yield lambda block: find_unreadable(source, block)
        return
    idle: Queue[CheckWorker] = Queue()
    workers = [CheckWorker(root) for _ in range(n_workers)]
    for worker in workers:
        idle.put(worker)

    def scan(block: list[str]) -> dict[str, str]:
        worker = idle.get()
        try:
            return worker.scan(block)
        finally:
            idle.put(worker)

    try:
        yield scan
    finally:
        for worker in workers:
            worker.stop()


def write_unreadable(
    manifest: Manifest, unreadable: Sequence[Unreadable], path: str | Path, *, force: bool = False
) -> None:
    """Write `row,path,reason` as CSV; `read_manifest(..., skip=path)` leaves these images out."""
    file = Path(path)
    if file.suffix.lower() != ".csv":
        raise InputError(f"{file}: the list of unreadable images is written as .csv; choose this ending.")
    seen = locations_from(manifest, file.parent)
    columns: dict[str, Sequence[Any]] = {
        "row": [one.row for one in unreadable],
        "path": [seen[one.row] for one in unreadable],
        "reason": [one.reason for one in unreadable],
    }
    with writing_file(file, force=force) as partial:
        write_csv(partial, columns)

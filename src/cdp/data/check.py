"""The scan of images before anything is computed from them: how large they are, and which cannot be read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple, TypeAlias

from cdp.blocks import spans
from cdp.data.images import Source, decode
from cdp.data.manifest_tables import locations_from, write_csv
from cdp.errors import InputError
from cdp.runtime.parallel import count_threads, map_blocks
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import writing_file
from cdp.types.manifest import Manifest

_PICTURES_PER_BLOCK = 256

Seen: TypeAlias = tuple[int, int] | str
"""Width and height of an image; or, of one that cannot be read, the reason."""


class Unreadable(NamedTuple):
    """An image that cannot be read, and why."""

    row: int
    location: str
    reason: str


def check_images(manifest: Manifest, threads: int = 0, progress: Progress = no_progress) -> list[Unreadable]:
    """Decode every image of a manifest once and return the unreadable ones by row.

    As many processes decode as `threads` says; 0 = as many as there are cores.
    """
    seen = look_at_images(manifest.root, manifest.locations, threads, progress)
    return [
        Unreadable(row, location, reason)
        for row, location in enumerate(manifest.locations)
        if isinstance(reason := seen[location], str)
    ]


def look_at_images(
    root: str, locations: Iterable[str], threads: int = 0, progress: Progress = no_progress
) -> dict[str, Seen]:
    """Decode every image in full, once; location -> its size, or why it cannot be read.

    Headers alone would be faster, but a file that is cut off has a good one, and would stop a run hours
    later.
    """
    pictures = list(dict.fromkeys(locations))
    n_workers = min(count_threads(threads), -(-len(pictures) // _PICTURES_PER_BLOCK))
    found: dict[str, Seen] = {}
    # Python threads would wait for each other: most of the time on small images is spent outside the decoder.
    with _scanners(root, n_workers) as scan:
        blocks = spans(len(pictures), _PICTURES_PER_BLOCK)
        scanned = map_blocks(lambda span: scan(pictures[span[0] : span[1]]), blocks, n_workers)
        for (_, done), seen in zip(blocks, scanned, strict=True):
            found |= seen
            progress("images", done, len(pictures))
    return found


@contextmanager
def _scanners(root: str, n_workers: int) -> Iterator[Callable[[list[str]], dict[str, Seen]]]:
    """Provide a function that scans a block, in this process or in a free worker process."""
    if n_workers < 2:
        source = Source(root)
        yield lambda block: look_at_block(source, block)
        return
    idle: Queue[CheckWorker] = Queue()
    workers = [CheckWorker(root) for _ in range(n_workers)]
    for worker in workers:
        idle.put(worker)

    def scan(block: list[str]) -> dict[str, Seen]:
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
    manifest: Manifest,
    unreadable: Sequence[Unreadable],
    path: str | Path,
    *,
    force: bool = False,
    inputs: Iterable[str | Path | None] = (),
) -> None:
    """Write `row,path,reason` as CSV; `read_manifest(..., skip=path)` leaves these images out."""
    file = Path(path)
    if file.suffix.lower() != ".csv":
        raise InputError(
            f"{file}: the list of unreadable images is written as .csv; choose this ending.",
            code="unreadable-list-ending-wrong",
            file=file,
        )
    seen = locations_from(manifest, file.parent)
    columns: dict[str, Sequence[Any]] = {
        "row": [one.row for one in unreadable],
        "path": [seen[one.row] for one in unreadable],
        "reason": [one.reason for one in unreadable],
    }
    with writing_file(file, force=force, inputs=inputs) as partial:
        write_csv(partial, columns)


def look_at_block(source: Source, locations: Sequence[str]) -> dict[str, Seen]:
    """`look_at_images` for some of them, in this process."""
    seen: dict[str, Seen] = {}
    for location in locations:
        try:
            height, width = decode(source.read(location)).shape[:2]
            seen[location] = (width, height)
        except InputError as error:
            seen[location] = str(error)
    return seen


class CheckWorker:
    """A process of its own that decodes images; a decoder that crashes takes down only this process.

    It is asked and answers in lines of JSON; not to be shared between threads.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._process: subprocess.Popen[str] | None = None

    def scan(self, locations: Sequence[str]) -> dict[str, Seen]:
        """`look_at_block` in the worker; where that kills it, the image that does so is found by halving."""
        answer = self._ask(locations)
        if answer is not None:
            return answer
        if len(locations) == 1:
            return {locations[0]: "the image makes its decoder crash; leave it out."}
        middle = len(locations) // 2
        return self.scan(locations[:middle]) | self.scan(locations[middle:])

    def _ask(self, locations: Sequence[str]) -> dict[str, Seen] | None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cdp.data.check", self._root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers.
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(list(locations)) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            self.stop()
            return None
        return {name: one if isinstance(one, str) else (one[0], one[1]) for name, one in answer.items()}

    def stop(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


if __name__ == "__main__":  # the worker process: answer one line of standard input after the other
    images = Source(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(look_at_block(images, json.loads(line))), flush=True)

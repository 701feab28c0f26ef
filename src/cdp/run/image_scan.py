"""The scan of a run's images before anything is trained: which cannot be read, and how large the others are.

What was seen of a file is remembered with its size and time, so that a run that goes on does not decode every
image again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.data.check import Seen, Unreadable, look_at_images
from cdp.data.manifest_tables import write_csv
from cdp.data.manifests import without_unreadable
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import replacing, write_bytes
from cdp.types.manifest import Manifest

UNREADABLE = "unreadable.csv"
"""The table of the images that are left out, in the run's folder."""

_Memory = dict[str, tuple[int, int, Seen]]
"""Absolute location -> size and time of its file, and what was seen there."""


@dataclass(frozen=True)
class ImageScan:
    """What was seen of all images of a run.

    Attributes:
        unreadable: source -> its images that cannot be read, by row.
        roots: source -> what the locations of its images start from.
        sides: shorter side in pixels -> number of readable images.
        memory: for the next scan.
    """

    unreadable: Mapping[str, list[Unreadable]]
    roots: Mapping[str, str]
    sides: Mapping[int, int]
    memory: _Memory

    @property
    def n_images(self) -> int:
        """Images that can be read."""
        return sum(self.sides.values())

    @property
    def n_unreadable(self) -> int:
        """Images that cannot."""
        return sum(len(rows) for rows in self.unreadable.values())

    @property
    def median_side(self) -> int:
        """Half of the images have a shorter side of this many pixels or more."""
        sides = sorted(self.sides)
        counts = np.cumsum([self.sides[side] for side in sides])
        return sides[int(np.searchsorted(counts, (counts[-1] + 1) // 2))]

    def count_below(self, size: int) -> int:
        """Count images whose shorter side has fewer pixels."""
        return sum(count for side, count in self.sides.items() if side < size)

    def readable(self, name: str, manifest: Manifest) -> Manifest:
        """Return the images of a source that can be read."""
        return without_unreadable(manifest, [one.row for one in self.unreadable.get(name, [])])

    def save(self, memory: Path, folder: Path) -> None:
        """Save the scan for the next run, and list excluded images as `cdp data check --list` does."""
        write_bytes(memory, msgspec.json.encode(self.memory))
        rows = [(name, one) for name, found in self.unreadable.items() for one in found]
        if not rows:
            (folder / UNREADABLE).unlink(missing_ok=True)
            return
        columns: dict[str, Sequence[Any]] = {
            "row": [one.row for _, one in rows],
            "path": [_stored(os.path.join(self.roots[name], one.location), folder) for name, one in rows],
            "reason": [one.reason for _, one in rows],
            "source": [name for name, _ in rows],
        }
        with replacing(folder / UNREADABLE) as partial:
            write_csv(partial, columns)


def scan_images(
    sources: Mapping[str, Manifest],
    memory: Path | None = None,
    threads: int = 0,
    progress: Progress = no_progress,
) -> ImageScan:
    """Look at every image once; what is remembered of files that did not change since is not looked at again.

    Args:
        sources: manifests by name.
        memory: file that an earlier scan was saved to; nothing is written there.
        threads: processes that decode; 0 = as many as there are cores.
    """
    before = _read(memory)
    found: _Memory = {}
    unreadable: dict[str, list[Unreadable]] = {}
    sides: dict[int, int] = {}
    for name, manifest in sources.items():
        files = {one: os.path.abspath(os.path.join(manifest.root, one)) for one in manifest.locations}
        looks = _Looks()
        now = {one: looks.of(path) for one, path in files.items()}
        new = [one for one, path in files.items() if before.get(path, (-2, -2, ""))[:2] != now[one]]
        fresh = look_at_images(manifest.root, new, threads, _under(f"look at {name}", progress))
        seen = {one: fresh[one] if one in fresh else before[path][2] for one, path in files.items()}
        found |= {path: (*now[one], seen[one]) for one, path in files.items()}
        unreadable[name] = []
        for row, location in enumerate(manifest.locations):
            one = seen[location]
            if isinstance(one, str):
                unreadable[name].append(Unreadable(row, location, one))
            else:
                sides[min(one)] = sides.get(min(one), 0) + 1
    return ImageScan(unreadable, {name: one.root for name, one in sources.items()}, sides, found)


def _stored(path: str, run: Path) -> str:
    """Return a path as a run's table names it: relative to the table if inside the collection."""
    found = os.path.abspath(path)
    return os.path.relpath(found, run) if found.startswith(f"{run.parent}{os.sep}") else found


class _Looks:
    """Size and time of files, each asked for once; an entry of an archive has those of the archive."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def of(self, path: str) -> tuple[int, int]:
        """Return size and time of a file, (-1, -1) if it does not exist."""
        for name in (path, path.partition("!")[0]):
            if name not in self._known:
                try:
                    state = os.stat(name)
                    self._known[name] = (state.st_size, state.st_mtime_ns)
                except (OSError, ValueError):
                    self._known[name] = (-1, -1)
            if self._known[name] != (-1, -1):
                return self._known[name]
        return (-1, -1)


def _read(memory: Path | None) -> _Memory:
    if memory is None:
        return {}
    try:
        return msgspec.json.decode(memory.read_bytes(), type=_Memory)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Only a shortcut: without it everything is looked at once more.
        return {}


def _under(name: str, progress: Progress) -> Progress:
    """Return the same progress under another name of the step."""
    return lambda step, done, total: progress(name, done, total)

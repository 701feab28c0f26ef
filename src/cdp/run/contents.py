"""What files hold, as hashes: freshness is a question of contents, never of names or times.

Reading everything again before every run would be slow. So the hash of a file is remembered together with its
size, time and inode; where these differ the file is read again, and only what is then found in it counts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cdp.errors import InputError
from cdp.storage.files import write_text
from cdp.types.manifest import Manifest

# Cards say when and how, logs how fast, tables of labels where images are stored: none is what a later stage
# reads.
_NOT_CONTENTS = ("card.json", "log.jsonl", "meta.txt", "labels.csv", "labels.parquet")


_Known = dict[str, tuple[int, int, int, str]]
"""Path -> size, time, inode and hash."""


class ContentHashes:
    """SHA-256 of files, remembered in one file from run to run."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._known: _Known = {}
        try:
            self._known = msgspec.json.decode(memory.read_bytes(), type=_Known)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Only a shortcut: without it everything is read once more.
            self._known = {}

    def of_file(self, file: Path) -> str:
        """SHA-256 of a file's bytes; of its tensors where it holds weights."""
        try:
            state = file.stat()
        except OSError as error:
            raise InputError(
                f"{file}: cannot be read ({error.strerror}); it may have been moved while cdp was running.",
                code="input-unreadable",
                file=file,
            ) from None
        path, looks = str(file.absolute()), (state.st_size, state.st_mtime_ns, state.st_ino)
        known = self._known.get(path)
        if known is None or known[:3] != looks:
            known = (*looks, _read_hash(file))
            self._known[path] = known
        return str(known[3])

    def of_path(self, path: Path, ignored: Collection[str] = _NOT_CONTENTS) -> str | None:
        """Hash an artifact: a file, a table of images or a folder; None if it does not exist."""
        if path.suffix == ".csv" and path.is_file():
            return self.of_manifest(Manifest.load(path))
        if path.is_file():
            return self.of_file(path)
        if not path.is_dir():
            return None
        digest = hashlib.sha256()
        for file in _files_within(path, ignored):
            digest.update(f"{file.relative_to(path).as_posix()}\0{self.of_file(file)}\0".encode())
        return digest.hexdigest()

    def of_manifest(self, manifest: Manifest) -> str:
        """Pictures, identities and turns of a manifest, whatever the paths of its files."""
        known: dict[str, str] = {}
        contents = []
        for location in manifest.locations:
            container, inside, entry = location.partition("!")
            if container not in known:
                known[container] = self.of_file(Path(manifest.root) / container)
            contents.append(f"{known[container]}{inside}{entry}")
        return Manifest(tuple(contents), manifest.identities, turns=manifest.turns).digest

    def save(self) -> None:
        """Remember for the next run."""
        write_text(self._memory, json.dumps(self._known))


def flatten(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings as `a.b` -> value, to say which one changed."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = value
    return flat


def _files_within(folder: Path, ignored: Collection[str]) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and name not in ignored:
                yield Path(parent) / name


def _read_hash(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        if file.suffix == ".safetensors":
            # The header repeats where the images were; the tensors behind it are what was learned.
            handle.seek(8 + int.from_bytes(handle.read(8), "little"))
        while block := handle.read(2**22):
            digest.update(block)
    return digest.hexdigest()

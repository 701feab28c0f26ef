"""A collection's folder: what is where, and how its parts come and go.

card.json            which parts count now; replaced by one rename, so a killed command changes nothing
batches/0001/        where the embeddings of a batch lie, their hashes, and the images' paths
judged/0002/         graphs, candidate pairs, what judged them and what it said; written by create and extend
groups/0003/         identity, fate and confidence of every image, names; written by whatever makes groups
events/0003.jsonl    what changed then
corrections.jsonl    what people said; see corrections.py
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import msgspec
import numpy as np

from cdp.collection.collection_settings import GrowthSettings
from cdp.data.array_files import open_npy
from cdp.data.views import read_views
from cdp.errors import InputError, StoreError
from cdp.files import writing_folder
from cdp.settings import settings_of
from cdp.store import fill, hash_views, read_card, read_settings, write_card
from cdp.types import Views
from cdp.types.arrays import ByteArray, LongArray

KIND = "Collection"
_LOCK = ".lock"


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What of a collection's folder counts now: the settings of its card.

    Attributes:
        batches: numbers of batches of images, in order.
        known: numbers of batches of images with known identities.
        judged: number of what judged the pairs.
        groups: number of the groups.
        next_identity: the number that the next new identity gets.
        consensus: settings, with the bar that is used.
        seed: of everything random.
        n_trained: images among which trees were trained, known ones not counted.
        known_names: identity number of a known person -> name; the number itself where there is none.
        growth: settings of how it grows; those that are not there have their defaults.
        notes: what labeling said when the collection was made, such as how the bar was chosen and how sure that is.
        bar_is_chosen: whether the bar was chosen without labels; then it is chosen anew when the collection has grown.
    """

    batches: tuple[int, ...]
    known: tuple[int, ...]
    judged: int
    groups: int
    next_identity: int
    consensus: dict[str, Any]
    seed: int
    n_trained: int
    known_names: dict[str, str] = {}
    growth: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    bar_is_chosen: bool = False

    @property
    def growth_settings(self) -> GrowthSettings:
        """How it grows; what earlier versions had, such as `merge_above`, is passed over."""
        known = settings_of(GrowthSettings)
        return GrowthSettings(**{name: value for name, value in self.growth.items() if name in known})

    @property
    def newest(self) -> int:
        """The greatest number that any part has."""
        return max(*self.batches, *self.known, self.judged, self.groups)


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the card of a batch says: where its embeddings lie, from the batch's folder and from the root; and what they were.

    `models` has the hash of every model's embeddings, `files` the size and the time of change of every file they lie in: as long as
    these are the same, nothing is read to compare hashes. `images_near` is where relative paths of images start, from the batch's
    folder; empty = that is looked for.
    """

    n_images: int
    near: str
    far: str
    has_paths: bool = False
    images_near: str = ""
    models: dict[str, str]
    files: dict[str, tuple[int, int]] = {}


class Lines(Sequence[str]):
    """Lines of text that are read from disk when they are asked for: opening a million of them takes no time."""

    def __init__(self, folder: Path, start: str = "") -> None:
        self._start = start
        self._ends: LongArray = open_npy(folder / "path_ends.npy")
        self._bytes: ByteArray = open_npy(folder / "path_bytes.npy")

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        start = int(self._ends[row - 1]) if row else 0
        return os.path.join(self._start, bytes(self._bytes[start : int(self._ends[row])]).decode())


class Chain(Sequence[str]):
    """Sequences of lines one after the other."""

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        part = int(np.searchsorted(self._ends, row, side="right"))
        return self._parts[part][row - (int(self._ends[part - 1]) if part else 0)]


def numbered(folder: Path, part: str, number: int) -> Path:
    """Where a part of a collection lies."""
    return folder / part / f"{number:04d}"


def read_parts(folder: str | Path) -> Parts:
    """What of a folder counts now.

    Raises:
        InputError: this is no collection.
        StoreError: its card is damaged.
    """
    return read_settings(folder, read_card(folder, KIND), Parts)


def switch_to(folder: Path, parts: Parts, summary: str) -> None:
    """Make other parts count: one rename. Groups and graphs that no longer count, but for the last ones, are removed."""
    write_card(folder, KIND, summary, msgspec.to_builtins(parts), {})
    for part, number in (("judged", parts.judged), ("groups", parts.groups)):
        old = sorted(
            one for one in (folder / part).iterdir() if one.name.isdigit() and int(one.name) < number
        )
        for one in old[:-1]:
            shutil.rmtree(one, ignore_errors=True)


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """One change at a time; the lock goes with the process, so a killed command leaves none.

    Raises:
        StoreError: another process changes the collection now.
    """
    with (folder / _LOCK).open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{folder} is being changed by another process; wait until it is done and try again."
            ) from None
        yield


@dataclass(frozen=True)
class Batch:
    """Images that came together: where their embeddings lie, and their paths."""

    folder: Path
    facts: BatchFacts

    @property
    def paths(self) -> Lines | None:
        """Where the images lie, if known."""
        near = self.facts.images_near
        start = os.path.normpath(os.path.join(os.path.realpath(self.folder), near)) if near else ""
        return Lines(self.folder, start) if self.facts.has_paths else None

    @property
    def source(self) -> Path:
        """Where the embeddings lie; where they lay, if they are gone."""
        near = self.folder / self.facts.near
        return near.resolve() if near.exists() or not self.facts.far else Path(self.facts.far)

    def read(self, *, check: bool = False) -> Views:
        """The embeddings; compared with their hashes if their files are not those that were seen, or always with `check`.

        Raises:
            InputError: they are gone, or not what they were.
        """
        source = self.source
        if not source.exists():
            raise InputError(
                f"{source}: embeddings of this collection were there and are gone; put them back, or "
                "link them there."
            )
        views = read_views(source)
        is_same = list(views.names) == list(self.facts.models) and views.n_images == self.facts.n_images
        check = check or _stamps(source) != self.facts.files
        if not is_same or (check and hash_views(views) != self.facts.models):
            raise InputError(
                f"{source}: these embeddings are not those that the collection was made of; put the old ones back, or "
                "collect the images anew."
            )
        return views


def write_batch(
    folder: Path, number: int, views: Views, source: Path | None, images: Path | None = None
) -> Batch:
    """Remember a batch: where it lies; views that lie nowhere are written into the collection.

    Args:
        folder: of the collection.
        number: of the batch.
        views: its embeddings.
        source: where they lie.
        images: the folder that relative paths of its images start from; they are found from the collection then, and may move with it.
    """
    place = numbered(folder, "batches", number)
    here = os.path.realpath(place)
    with writing_folder(place, force=True) as partial:
        if source is None:
            fill(partial / "views", views)
        arrays: dict[str, Any] = {}
        if views.paths is not None:
            encoded = [path.encode() for path in views.paths]
            arrays["path_ends"] = np.cumsum([len(one) for one in encoded])
            arrays["path_bytes"] = np.frombuffer(b"".join(encoded), np.uint8)
            for name, array in arrays.items():
                np.save(partial / f"{name}.npy", array)
        facts = BatchFacts(
            n_images=views.n_images,
            near="views" if source is None else os.path.relpath(os.path.realpath(source), here),
            far="" if source is None else os.path.realpath(source),
            has_paths=views.paths is not None,
            images_near="" if images is None else os.path.relpath(os.path.realpath(images), here),
            models=hash_views(views),
            files=_stamps(partial / "views" if source is None else source),
        )
        settings: Mapping[str, Any] = msgspec.to_builtins(facts)
        write_card(partial, "CollectionBatch", repr(views), settings, facts.models, arrays)
    return Batch(place, facts)


def _stamps(source: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file of embeddings."""
    files = sorted(one for one in source.rglob("*") if one.is_file()) if source.is_dir() else [source]
    stamps = {}
    for file in files:
        about = file.stat()
        name = file.relative_to(source).as_posix() if source.is_dir() else file.name
        stamps[name] = (about.st_size, about.st_mtime_ns)
    return stamps


def open_batch(folder: Path, number: int) -> Batch:
    """A batch of a collection; its embeddings are not read yet."""
    place = numbered(folder, "batches", number)
    return Batch(place, read_settings(place, read_card(place, "CollectionBatch"), BatchFacts))

"""A collection's folder: its layout, its state, and its batches of embeddings.

card.json            the current state; replaced by one rename, so a killed command changes nothing
embeddings/0001/     where the embeddings of a batch are stored, their hashes, and the images' paths
scored/0002/         candidate pairs, what scored them and how; scored_files.py
groups/0003/         identity, status and confidence of every image, names; written by whatever makes groups
events/0003.jsonl    what changed then
corrections.jsonl    what people said; see corrections.py
labels.csv, labels.parquet, report.html, metrics.json, mixed_groups.csv, split_groups.csv
                     for people and other programs; outputs.py
faces/0001/          crops of a batch of photos, and faces/0001-embeddings/, if it was made from photos
run/                 recipe, stages and networks, if `cdp run` made it
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, overload

import msgspec
import numpy as np

from cdp.collection.collection_settings import GrowthSettings
from cdp.data.views import read_view_identities, read_views
from cdp.errors import InputError, StoreError
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import MOST_IMAGES, did_you_mean, settings_of
from cdp.storage.array_files import naming, open_npy
from cdp.storage.artifacts import (
    CARD,
    fill,
    fill_arrays,
    hash_array,
    hash_views,
    read_array,
    read_card,
    read_settings,
    write_card,
)
from cdp.storage.files import write_json, writing_folder
from cdp.types import Views
from cdp.types.arrays import AnyArray, ByteArray, LongArray

KIND = "Collection"
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_IMAGES)]
_SAMPLE = 16
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
"""Bytes of a file's name, and of its path, beyond which systems refuse even to look for it."""
_SAVED = (
    "Groups, names and corrections do not depend on them: cdp show, review, regroup and export work without."
)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a collection, stored as the settings of its card.

    Attributes:
        batches: numbers of batches of images, in order.
        labeled: numbers of batches of labeled images.
        scored: number of what scored the pairs.
        groups: number of the groups.
        next_identity: the number that the next new identity gets.
        consensus: settings of section 3.1.
        threshold: given, chosen or estimated.
        seed: of everything random.
        n_trained: images among which trees were trained or the threshold was estimated, labeled ones not
            counted.
        labeled_names: number of a labeled identity -> name; the number itself where there is none.
        growth: settings of how it grows; those that are not there have their defaults.
        notes: what labeling said when the collection was made, such as how the threshold was chosen.
        made_from: hash of the labels that a run made it from; empty = no run did.
        models: folder of the models that embedded faces on photos; empty = it was not made from photos.
    """

    batches: Annotated[tuple[_Count, ...], msgspec.Meta(min_length=1)]
    labeled: tuple[_Count, ...]
    scored: _Count
    groups: _Count
    next_identity: _Count
    consensus: dict[str, Any]
    threshold: float
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    n_trained: _Count
    labeled_names: dict[str, str] = {}
    growth: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    made_from: str = ""
    models: str = ""

    @property
    def growth_settings(self) -> GrowthSettings:
        """How it grows; unknown keys are ignored."""
        known = settings_of(GrowthSettings)
        return GrowthSettings(**{name: value for name, value in self.growth.items() if name in known})

    @property
    def consensus_settings(self) -> ConsensusSettings:
        """How pairs are scored and grouped."""
        known = settings_of(ConsensusSettings)
        for name in self.consensus:
            if name not in known:
                raise InputError(
                    f"there is no setting {name!r}; a newer cdp wrote this folder, or its card is damaged."
                    + did_you_mean(name, known),
                    code="card-setting-unknown",
                    key=name,
                )
        return ConsensusSettings(**self.consensus)

    @property
    def newest(self) -> int:
        """The greatest number that any part has."""
        return max(*self.batches, *self.labeled, self.scored, self.groups)


class HowRead(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What `read_views` needs besides the place: dimensions of bare numbers, and the name of the base."""

    dim: int | None = None
    base: str | None = None


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Card of a batch: locations and hashes of its embeddings and images.

    Locations are relative to the batch's folder and to the root.

    Attributes:
        n_images: in the batch.
        near, far: where the embeddings are stored.
        how: what a reader needs besides the place.
        members: model -> its own embeddings, from the batch's folder, where each model's are stored by
            themselves.
        has_paths: whether the images' paths are known.
        images_near, images_far: where these paths start; empty = that is looked for.
        models: the hash of every model's embeddings.
        files: size and time of change of every file of embeddings: as long as these are the same, nothing is
            read to compare hashes.
    """

    n_images: int
    near: str = ""
    far: str = ""
    how: HowRead = HowRead()
    members: dict[str, str] = {}
    has_paths: bool = False
    images_near: str = ""
    images_far: str = ""
    models: dict[str, str]
    files: dict[str, tuple[int, int]] = {}


class Lines(Sequence[str]):
    """Lines of text read from disk on access, so a file of a million lines opens at once."""

    def __init__(self, folder: Path, start: str = "") -> None:
        self._start = start
        card = read_card(folder)
        self._ends: LongArray = read_array(folder, "path_ends", card)
        self._bytes: ByteArray = read_array(folder, "path_bytes", card)

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
    """Folder of a numbered part of a collection."""
    return folder / part / f"{number:04d}"


def read_state(folder: str | Path) -> State:
    """Read the current state of a collection's folder.

    Raises:
        InputError: this is no collection.
        StoreError: its card is damaged.
    """
    state = read_settings(folder, read_card(folder, KIND), State)
    with naming(Path(folder) / CARD, file=Path(folder) / CARD):
        state.consensus_settings  # noqa: B018  # refuses what no version of cdp has written
        state.growth_settings  # noqa: B018
    return state


def switch_to(folder: Path, state: State, summary: str) -> None:
    """Write a new state with one rename, and remove all but the last of the groups and graphs it replaces."""
    write_card(folder, KIND, summary, msgspec.to_builtins(state), {})
    for part, number in (("scored", state.scored), ("groups", state.groups)):
        old = sorted(
            one for one in (folder / part).iterdir() if one.name.isdigit() and int(one.name) < number
        )
        for one in old[:-1]:
            shutil.rmtree(one, ignore_errors=True)


ENTRIES = frozenset(
    ("card.json", "embeddings", "scored", "groups", "events", "corrections.jsonl", "faces", "run",
     "labels.csv", "labels.parquet",
     "report.html", "metrics.json", "mixed_groups.csv", "split_groups.csv", "soft_labels.npz")
)  # fmt: skip
"""What a collection's folder may hold; hidden files are its own too."""


def copy_collection(source: Path, partial: Path, target: Path) -> None:
    """Copy a collection into a folder that is being written; what it refers to is found from `target`."""
    shutil.copytree(source, partial, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    for card in sorted((partial / "embeddings").glob("*/card.json")):
        before = Batch(source / "embeddings" / card.parent.name, _facts_of(card.parent))
        facts = before.facts
        here = os.path.realpath(target / "embeddings" / card.parent.name)

        def moved(near: str, far: str = "", before: Batch = before, here: str = here) -> str:
            place = before._resolve(near, far)
            inside = place.is_relative_to(os.path.realpath(source))
            return near if inside or not near else os.path.relpath(place, here)

        facts = msgspec.structs.replace(
            facts,
            near=moved(facts.near, facts.far),
            members={name: moved(near) for name, near in facts.members.items()},
            images_near=moved(facts.images_near, facts.images_far),
        )
        old = read_card(card.parent)
        write_json(card, {**old.as_dict(), "settings": msgspec.to_builtins(facts)})


@dataclass(frozen=True)
class Batch:
    """Images that came together: where their embeddings are, and their paths."""

    folder: Path
    facts: BatchFacts

    @property
    def paths(self) -> Lines | None:
        """Where the images are, if known."""
        facts = self.facts
        if not facts.has_paths:
            return None
        if not facts.images_near:
            return Lines(self.folder)
        near = os.path.normpath(os.path.join(os.path.realpath(self.folder), facts.images_near))
        moved = Lines(self.folder, near)
        # The folder that they start from may be there, and the images not in it.
        sample = moved[:: max(1, len(moved) // _SAMPLE)]
        is_near = any(os.path.exists(one.partition("!")[0]) for one in sample)
        return moved if is_near or not facts.images_far else Lines(self.folder, facts.images_far)

    @property
    def source(self) -> Path:
        """Where the embeddings are; where they were, if they are gone."""
        return self._resolve(self.facts.near, self.facts.far)

    @property
    def images(self) -> Path | None:
        """The folder that relative paths of its images start from, if one was given."""
        return (
            self._resolve(self.facts.images_near, self.facts.images_far) if self.facts.images_near else None
        )

    def _resolve(self, near: str, far: str) -> Path:
        """Return a path from the batch's folder, which may have moved with it; else from the root."""
        place = Path(os.path.normpath(os.path.join(os.path.realpath(self.folder), near)))
        found = place if os.path.exists(place) or not far else Path(far)
        names = [str(found), *found.parts]
        lengths = [len(one.encode("utf-8", "replace")) for one in names]
        if lengths[0] > _LONGEST_PATH or max(lengths[1:]) > _LONGEST_NAME:
            card = self.folder / CARD
            raise StoreError(
                f"{card}: names a file by {len(str(found)):,} characters, which cannot be; restore it from a "
                "copy, or label the images again.",
                code="card-path-impossible",
                file=card,
            )
        return found

    @property
    def _sources(self) -> dict[str, Path]:
        """Every folder or file that embeddings are read from."""
        members = {name: self._resolve(near, "") for name, near in self.facts.members.items()}
        return members or {"": self.source}

    @property
    def identities(self) -> LongArray | None:
        """True identities, where the embeddings carry them."""
        self._check_sources()
        if not self.facts.members:
            return read_view_identities(self.source, **msgspec.to_builtins(self.facts.how))
        return self._stored_identities()

    def read(self, *, check: bool = False) -> Views:
        """Return the embeddings; hashes are checked if the files changed, or always with `check`.

        Raises:
            InputError: they are gone, or not what they were.
        """
        self._check_sources()
        views = self._open()
        is_same = list(views.names) == list(self.facts.models) and views.n_images == self.facts.n_images
        check = check or _stamps(self._sources) != self.facts.files
        if not is_same or (check and hash_views(views) != self.facts.models):
            raise InputError(
                f"{next(iter(self._sources.values()))}: not the embeddings of this collection; restore "
                f"them, or label the images again. {_SAVED}",
                code="collection-embeddings-changed",
                file=next(iter(self._sources.values())),
            )
        return views

    def _check_sources(self) -> None:
        for source in self._sources.values():
            if not source.exists():
                raise InputError(
                    f"{source}: embeddings of this collection are missing; put them back, or link them "
                    f"there. {_SAVED}",
                    code="collection-embeddings-gone",
                    file=source,
                )

    def _open(self) -> Views:
        if not self.facts.members:
            return read_views(self.source, **msgspec.to_builtins(self.facts.how))
        base, *others = [read_views(source).base for source in self._sources.values()]
        members = dict(zip(list(self.facts.members)[1:], others, strict=True))
        return Views(base, members, self._stored_identities())

    def _stored_identities(self) -> AnyArray | None:
        """Return the identities that the batch keeps itself, where models are stored in several places."""
        truth = self.folder / "identities.npy"
        return open_npy(truth) if truth.is_file() else None


def write_batch(
    folder: Path,
    number: int,
    views: Views,
    source: Path | Mapping[str, Path] | None,
    images: Path | None = None,
    how: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
) -> Batch:
    """Remember a batch by reference; views that are stored nowhere are written into the collection.

    Args:
        folder: of the collection.
        number: of the batch.
        views: its embeddings.
        source: where they are stored, or where those of every model are.
        images: the folder that relative paths of its images start from.
        how: what `read_views` needs to read them again.
        runtime: how hashes are computed.
    """
    place = numbered(folder, "embeddings", number)
    here = os.path.realpath(place)
    members = source if isinstance(source, Mapping) else {}
    single = Path("views") if source is None else None if isinstance(source, Mapping) else source
    with writing_folder(place, force=True) as partial:
        if source is None:
            fill(partial / "views", views)
        arrays: dict[str, Any] = {}
        root = images
        if views.paths is not None:
            root, paths = _from_root(views.paths, images)
            encoded = [path.encode() for path in paths]
            arrays["path_ends"] = np.cumsum([len(one) for one in encoded])
            arrays["path_bytes"] = np.frombuffer(b"".join(encoded), np.uint8)
        if members and views.identities is not None:
            arrays["identities"] = views.identities
        seen = dict(members) or {"": partial / "views" if source is None else Path(str(single))}
        facts = BatchFacts(
            n_images=views.n_images,
            near="" if single is None else "views" if source is None else _from(here, single),
            far="" if source is None or single is None else os.path.realpath(single),
            how=HowRead(**(how or {})),
            members={name: _from(here, one) for name, one in members.items()},
            has_paths=views.paths is not None,
            images_near="" if root is None else _from(here, root),
            images_far="" if root is None else os.path.realpath(root),
            models=_hash_models(views, runtime or Runtime()),
            files=_stamps(seen),
        )
        settings: Mapping[str, Any] = msgspec.to_builtins(facts)
        fill_arrays(partial, "CollectionBatch", repr(views), settings, arrays, facts.models)
    return Batch(place, facts)


def _hash_models(views: Views, runtime: Runtime) -> dict[str, str]:
    """Hash every model's embeddings, one task per model."""
    hashes = runtime.map(_hash_model, None, [model.source for model in views])
    return dict(zip(views.names, hashes, strict=True))


def _hash_model(_: None, source: AnyArray) -> str:
    return hash_array(source)


def _from(here: str, path: Path) -> str:
    return os.path.relpath(os.path.realpath(path), here)


def _from_root(paths: Sequence[str], images: Path | None) -> tuple[Path | None, Sequence[str]]:
    """Return the root folder of the paths, and the paths relative to it.

    Absolute paths are relative to the folder that all of them share.
    """
    if images is not None or not paths or not all(map(os.path.isabs, paths)):
        return images, paths
    containers = [path.partition("!")[0] for path in paths]
    first, last = min(containers), max(containers)
    root = os.path.commonpath([os.path.dirname(first), os.path.dirname(last)])
    start = root.rstrip(os.sep) + os.sep
    if not all(path.startswith(start) for path in paths):
        return images, paths
    return Path(root), [path[len(start) :] for path in paths]


def _stamps(sources: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file of embeddings."""
    stamps = {}
    for member, source in sources.items():
        files = sorted(one for one in source.rglob("*") if one.is_file()) if source.is_dir() else [source]
        for file in files:
            about = file.stat()
            name = file.relative_to(source).as_posix() if source.is_dir() else file.name
            stamps[f"{member}/{name}" if member else name] = (about.st_size, about.st_mtime_ns)
    return stamps


def open_batch(folder: Path, number: int) -> Batch:
    """Return a batch of a collection; its embeddings are not read yet."""
    place = numbered(folder, "embeddings", number)
    return Batch(place, _facts_of(place))


def _facts_of(place: Path) -> BatchFacts:
    return read_settings(place, read_card(place, "CollectionBatch"), BatchFacts)

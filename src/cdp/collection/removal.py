"""Remove images from a collection for good: their embeddings, pairs, corrections and history go with them.

The collection is written again without them and takes the place of the old one by one rename, so a killed
command changes nothing. Groups of the other images stay as they are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from collections.abc import Collection as AnyCollection
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from cdp.collection.collection import Collection, open_collection, read_groups_facts
from cdp.collection.collection_folder import KIND, Batch, numbered, open_batch, write_batch
from cdp.collection.corrections import JOURNAL, Correction, locked_journal, read_journal
from cdp.collection.numbering import Event
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.scored_files import keep_scored_rows
from cdp.errors import InputError
from cdp.storage.files import link_tree, locked, write_bytes, writing_folder
from cdp.types import Labels, Views
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.labels import first_rows, number_by_first_appearance

_COPIED = ("run",)


@dataclass(frozen=True)
class Rewritten:
    """What a batch is stored as after images were removed.

    Attributes:
        views: embeddings of the images that stay.
        source: where these are stored; None = in the collection.
        images: the folder that the images' paths start from.
    """

    views: Views
    source: Path | None = None
    images: Path | None = None


Rewrite = Callable[[Path, int, Batch, LongArray], Rewritten]
"""(folder being written, number of the batch, batch, rows that stay) -> how it is stored."""


def remove_images(
    collection: Collection,
    removed: BoolArray,
    *,
    names: AnyCollection[str] = (),
    rewrite: Rewrite | None = None,
    finish: Callable[[Path], None] | None = None,
) -> Collection:
    """Remove images and all that is known of them.

    Args:
        collection: whose folder is written again.
        removed: bool (n,), images to remove.
        names: people whose names go from the history too.
        rewrite: how a batch is stored of which images go; unless given, its embeddings are written into the
            collection.
        finish: called with the folder that is being written, before it counts.

    Raises:
        InputError: no image would be left.
    """
    if removed.all():
        raise InputError(
            f"No image would be left in {collection.folder}; delete the folder instead.",
            code="no-image-left",
            folder=collection.folder,
        )
    with locked(collection.folder), locked_journal(collection.folder):
        now = open_collection(collection.folder)
        # The lock's file goes with the old folder; whoever waits for it opens the new one.
        with writing_folder(now.folder, force=True, kind=KIND) as partial:
            _write_without(now, removed, partial, set(names), rewrite or _store_inside)
            if finish is not None:
                finish(partial)
            write_outputs(open_collection(partial))
    return open_collection(collection.folder)


def _store_inside(_folder: Path, _number: int, batch: Batch, rows: LongArray) -> Rewritten:
    return Rewritten(batch.read().take(rows), images=batch.images)


def _write_without(
    now: Collection, removed: BoolArray, folder: Path, names: set[str], rewrite: Rewrite
) -> None:
    state, numbers = now.state, []
    start, number = 0, 0
    for batch in now.batches:
        rows = np.flatnonzero(~removed[start : start + batch.facts.n_images])
        start += batch.facts.n_images
        if not len(rows):
            continue
        number += 1
        numbers.append(number)
        if len(rows) == batch.facts.n_images and not _is_inside(batch, now.folder):
            _copy_batch(batch, folder, number)
            continue
        stored = rewrite(folder, number, batch, rows)
        write_batch(folder, number, stored.views, stored.source, stored.images)
    labeled = []
    for old in state.labeled:
        number += 1
        labeled.append(number)
        _copy_batch(open_batch(now.folder, old), folder, number)
    number += 1
    keep_scored_rows(now.scored_place, numbered(folder, "scored", number), ~removed)
    _write_journal(now, removed, folder, names)
    gone = set(np.unique(now.identity[removed]).tolist()) - set(now.identity[~removed].tolist())
    _write_history(now, folder, gone, names)
    for name in _COPIED:
        link_tree(now.folder / name, folder / name)
    state = msgspec.structs.replace(
        state, batches=tuple(numbers), labeled=tuple(labeled), scored=number, groups=0
    )
    named = {one: name for one, name in now.named.items() if one not in gone}
    before = now.identity[~removed]
    labels = _kept_labels(now, removed)
    alone = (labels.labels < 0) & (before >= 0)
    given = (labels, read_groups_facts(now).expected)
    write_groups(folder, state, np.where(alone, -1, before).astype(np.int32), named, "removed", given=given)


def _is_inside(batch: Batch, folder: Path) -> bool:
    """Return whether crops of a batch are stored in the collection, so that they move with it."""
    return batch.images is not None and batch.images.is_relative_to(os.path.realpath(folder))


def _copy_batch(batch: Batch, folder: Path, number: int) -> None:
    """Copy a batch; its references stay valid in the new folder."""
    shutil.copytree(batch.folder, numbered(folder, "embeddings", number))


def _kept_labels(now: Collection, removed: BoolArray) -> Labels:
    """Return the labels of the remaining images; a lone image without a name is in no group."""
    kept = ~removed
    labels = Labels(number_by_first_appearance(now.identity[kept]), now.status[kept], now.confidence[kept])
    named = np.flatnonzero(np.isin(now.identity[kept], list(now.named)))
    return first_rows(labels, int(kept.sum()), named.tolist())


def _write_journal(now: Collection, removed: BoolArray, folder: Path, names: set[str]) -> None:
    """Write the journal without what it says of images that go, and of people who go."""
    entries = read_journal(now.folder)
    if not entries:
        return
    row_of = np.cumsum(~removed) - 1
    number_of: dict[int, int] = {}
    kept: list[Correction] = []
    for entry in entries:
        fresh = _without_images(entry, removed, row_of, names, number_of)
        if fresh is not None:
            number_of[entry.id] = len(kept)
            kept.append(msgspec.structs.replace(fresh, id=len(kept)))
    write_bytes(folder / JOURNAL, b"".join(msgspec.json.encode(one) + b"\n" for one in kept))


def _without_images(
    entry: Correction, removed: BoolArray, row_of: LongArray, names: set[str], number_of: dict[int, int]
) -> Correction | None:
    """One entry as it reads afterwards; None if nothing is left of it."""
    if entry.kind == "undo":
        undone = number_of.get(entry.undoes)
        return None if undone is None else msgspec.structs.replace(entry, undoes=undone)
    if entry.name in names:
        return None
    images = tuple(int(row_of[row]) for row in entry.images if row < len(removed) and not removed[row])
    fewest = 2 if entry.kind in ("same", "different") else 1
    return None if len(images) < fewest else msgspec.structs.replace(entry, images=images)


def _write_history(now: Collection, folder: Path, gone: set[int], names: set[str]) -> None:
    """Write the event history without deleted identities and people."""
    kept = [
        event
        for event in now.events
        if event.identity not in gone and event.other not in gone and event.name not in names
    ]
    (folder / "events").mkdir(exist_ok=True)
    write_bytes(folder / "events" / "0000.jsonl", _as_lines(kept))


def _as_lines(events: Sequence[Event]) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)

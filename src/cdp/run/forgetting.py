"""Forget people, and faces of photos that are gone: nothing of them stays in the collection.

Faces, crops, embeddings, pairs, thumbnails, corrections and history are removed. The photos themselves are
not touched. A photo that was looked at before is not looked at again, so nobody comes back by `cdp add` with
the same photos; a new photo of the same person shows somebody new, because nothing is left to know them by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cdp.collection.collection import Collection
from cdp.collection.collection_folder import Batch
from cdp.collection.removal import Rewritten, remove_images
from cdp.data.manifest_tables import Columns, read_some_columns, write_csv
from cdp.errors import InputError
from cdp.faces.face_tables import DIFFERENT, DROPPED, FACES, read_face_rows
from cdp.faces.photo_table import GONE, NO_FACE, PHOTOS, Photo, read_photo_table, write_photo_table
from cdp.run.photo_collection import faces_folders, read_photos
from cdp.storage.artifacts import fill, read_card
from cdp.storage.files import artifact_kind, link_tree
from cdp.types.arrays import BoolArray, LongArray

_FORGOTTEN = "its faces were removed"


def forget(
    collection: Collection, people: Sequence[str] = (), *, gone: bool = False
) -> tuple[Collection, int]:
    """Remove people, or the faces of photos that are gone, from a collection for good.

    Args:
        collection: whose folder is written again.
        people: names, or numbers of identities.
        gone: also the faces of photos whose files are gone.

    Returns:
        The collection, and how many images were removed.

    Raises:
        InputError: nobody has that name, several have it, or no image would be left.
    """
    identities = {identity for text in people for identity in find_person(collection, text)}
    removed = (
        np.isin(collection.identity, list(identities))
        if identities
        else np.zeros(collection.n_images, np.bool_)
    )
    if gone:
        removed |= _rows_of_gone_photos(collection)
    names = {collection.names[one] for one in identities if one in collection.names}
    names -= {name for one, name in collection.names.items() if one not in identities}
    if not removed.any():
        return collection, 0
    made = remove_images(
        collection,
        removed,
        names=names,
        rewrite=_rewrite_batch,
        finish=lambda folder: _write_photo_tables(collection, folder, removed, gone=gone),
    )
    return made, int(removed.sum())


def find_person(collection: Collection, text: str) -> list[int]:
    """Find the identity of a name or a number.

    Raises:
        InputError: there is none, or several have the name.
    """
    found = [identity for identity, name in collection.names.items() if name == text]
    if len(found) > 1:
        raise InputError(
            f"{len(found)} people are called {text}: {', '.join(map(str, found))}; give the number.",
            code="person-ambiguous",
            name=text,
            identities=tuple(found),
        )
    if not found and text.isdigit() and (collection.identity == int(text)).any():
        found = [int(text)]
    if not found:
        raise InputError(
            f"Nobody in {collection.folder} is called {text}, or has this number; labels.csv lists names and "
            "numbers.",
            code="person-unknown",
            name=text,
            folder=collection.folder,
        )
    return found


def _rows_of_gone_photos(collection: Collection) -> BoolArray:
    missing = {one.path for one in read_photos(collection.folder, collection) if one.status == GONE}
    photos: list[str] = []
    for batch in collection.batches:
        rows = [] if batch.images is None else read_face_rows(batch.images)
        photos += [one.photo for one in rows] or [""] * batch.facts.n_images
    return np.array([one in missing for one in photos], np.bool_)


def _rewrite_batch(folder: Path, number: int, batch: Batch, rows: LongArray) -> Rewritten:
    """Rewrite a batch without some faces; a batch without faces keeps its images in place."""
    views = batch.read().take(rows)
    crops = batch.images
    if crops is None or artifact_kind(crops) != "Faces":
        return Rewritten(views, images=crops)
    target = folder / "faces" / f"{number:04d}"
    target.mkdir(parents=True)
    faces = read_some_columns(crops / FACES, lambda _file, header: list(header))
    kept: Columns = {name: [column[row] for row in rows.tolist()] for name, column in faces.items()}
    write_csv(target / FACES, kept)
    paths = set(kept["path"])
    pairs = read_some_columns(crops / DIFFERENT, lambda _file, header: list(header))
    stay = [
        row
        for row, two in enumerate(zip(pairs["path"], pairs["other_path"], strict=True))
        if set(two) <= paths
    ]
    write_csv(target / DIFFERENT, {name: [column[row] for row in stay] for name, column in pairs.items()})
    for name in (DROPPED, "card.json", PHOTOS):
        link_tree(crops / name, target / name)
    for path in paths:
        link_tree(crops / str(path), target / str(path))
    source = target.with_name(f"{number:04d}-embeddings")
    source.mkdir()
    card = read_card(batch.source, "Views")
    fill(source, views, settings=card.settings, made_from=card.made_from)
    return Rewritten(views, source, target)


def _write_photo_tables(before: Collection, folder: Path, removed: BoolArray, *, gone: bool) -> None:
    """Count the faces that photos still have; photos that are gone are forgotten with their faces."""
    if not faces_folders(before):
        return
    photos = read_photos(before.folder, before)
    lost: Counter[str] = Counter()
    start = 0
    for batch in before.batches:
        rows = [] if batch.images is None else read_face_rows(batch.images)
        lost.update(one.photo for at, one in enumerate(rows) if removed[start + at])
        start += batch.facts.n_images
    kept = [_after(one, lost[one.path]) for one in photos if not (gone and one.status == GONE)]
    write_photo_table(folder / "faces", kept)
    for table in folder.glob(f"faces/*/{PHOTOS}"):
        theirs = {one.stamp.sha256 for one in read_photo_table(table.parent)}
        table.unlink()  # a link to the old one
        write_photo_table(table.parent, [one for one in kept if one.stamp.sha256 in theirs])


def _after(photo: Photo, n_lost: int) -> Photo:
    left = photo.faces - n_lost
    if not n_lost:
        return photo
    return replace(photo, faces=left) if left else replace(photo, faces=0, status=NO_FACE, reason=_FORGOTTEN)

"""The photos of an album, one row each: where they are, what their bytes are, and what became of them.

`photos.csv` names photos as they are found from its own folder, so an album and its photos can be moved
together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cdp.data.manifest_tables import Columns, read_some_columns, write_csv
from cdp.errors import InputError
from cdp.faces.photo_scan import PhotoScan, Stamp
from cdp.storage.files import replacing

PHOTOS = "photos.csv"
FACES, NO_FACE, UNREADABLE, UNSUPPORTED, COPY, GONE = (
    "faces",
    "no face",
    "unreadable",
    "not supported",
    "copy",
    "gone",
)
"""Status of a photo: its faces are in the album; none was found; it cannot be read; it is no photo; its bytes
are those of another
photo; its file is gone or holds something else, and its faces are still in the album."""

_NO_STAMP = Stamp("")
_TRIED_AGAIN = (UNREADABLE, UNSUPPORTED)
_COLUMNS = ("photo", "status", "faces", "reason", "sha256", "bytes", "changed")


@dataclass(frozen=True)
class Photo:
    """One photo of an album.

    Attributes:
        path: from the root of the file system.
        status: one of those above.
        faces: how many of its faces are in the album.
        reason: why it has none, or what it is a copy of.
        stamp: what its bytes are.
    """

    path: str
    status: str
    faces: int = 0
    reason: str = ""
    stamp: Stamp = _NO_STAMP


@dataclass(frozen=True, eq=False)
class PhotoChanges:
    """What is different from before.

    Attributes:
        new: rows of the scan that are to be looked at: new photos, and those that could not be read before.
        again: how many of these could not be read before.
        renamed: old path -> new path of photos that are in the album.
        copies: path -> path of the photo with the same bytes.
        gone: paths of photos whose file is gone, or holds something else now; only below the folder that was
            looked through.
    """

    new: tuple[int, ...]
    again: int
    renamed: Mapping[str, str]
    copies: Mapping[str, str]
    gone: tuple[str, ...]


def read_photo_table(folder: Path) -> list[Photo]:
    """Read the photos of an album from `photos.csv` in a folder; none where there is no table."""
    file = folder / PHOTOS
    if not file.is_file():
        return []
    table = read_some_columns(file, _all_columns)
    here = os.path.realpath(folder)
    try:
        return [
            Photo(
                os.path.normpath(os.path.join(here, str(path))),
                str(status),
                int(faces),
                str(reason),
                Stamp(str(sha256), int(size), int(changed)),
            )
            for path, status, faces, reason, sha256, size, changed in zip(*table.values(), strict=True)
        ]
    except ValueError as error:
        raise InputError(
            f"{file}: a number is damaged ({error}); remove the file to process all photos again.",
            code="photo-table-damaged",
            file=file,
        ) from None


def _all_columns(file: Path, header: list[str]) -> list[str]:
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"{file}: no column called {missing[0]}; remove the file to process all photos again.",
            code="photo-table-damaged",
            file=file,
        )
    return list(_COLUMNS)


def write_photo_table(folder: Path, photos: Iterable[Photo]) -> None:
    """Write `photos.csv`, sorted by path; it is replaced at once."""
    here = os.path.realpath(folder)
    rows = sorted(photos, key=lambda one: (one.path, one.status))
    columns: Columns = {
        "photo": [os.path.relpath(one.path, here) for one in rows],
        "status": [one.status for one in rows],
        "faces": [one.faces for one in rows],
        "reason": [one.reason for one in rows],
        "sha256": [one.stamp.sha256 for one in rows],
        "bytes": [one.stamp.size for one in rows],
        "changed": [one.stamp.changed for one in rows],
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / PHOTOS) as file:
        write_csv(file, columns)


def compare_photos(before: Sequence[Photo], scan: PhotoScan, stamps: Sequence[Stamp]) -> PhotoChanges:
    """Find out which photos are new, renamed, copies or gone, by their bytes."""
    known = {
        one.stamp.sha256: one
        for one in before
        if one.stamp.sha256 and one.status not in (*_TRIED_AGAIN, COPY)
    }
    paths = scan.paths
    stamp_at = dict(zip(paths, stamps, strict=True))
    new: list[int] = []
    renamed: dict[str, str] = {}
    copies: dict[str, str] = {}
    first: dict[str, str] = {}
    for row, (path, stamp) in enumerate(zip(paths, stamps, strict=True)):
        entry = known.get(stamp.sha256) if stamp.sha256 else None
        if entry is None:
            same = first.setdefault(stamp.sha256, path) if stamp.sha256 else path
            if same == path:
                new.append(row)
            else:
                copies[path] = same
        elif entry.path != path:
            moved = renamed.setdefault(entry.path, path) if _is_elsewhere(entry, stamp_at) else entry.path
            if moved != path:
                copies[path] = moved
    gone = [
        one.path for one in known.values() if one.path not in renamed and _is_gone(one, stamp_at, scan.folder)
    ]
    unread = {one.stamp.sha256 for one in before if one.status in _TRIED_AGAIN}
    again = sum(stamps[row].sha256 in unread for row in new)
    return PhotoChanges(tuple(new), again, renamed, copies, tuple(gone))


def _is_elsewhere(entry: Photo, stamp_at: Mapping[str, Stamp]) -> bool:
    """Return whether a photo is no longer where it was: the file is gone, or another photo is there now."""
    if entry.path in stamp_at:
        return stamp_at[entry.path].sha256 != entry.stamp.sha256
    return not os.path.exists(entry.path.partition("!")[0])


def _is_gone(entry: Photo, stamp_at: Mapping[str, Stamp], folder: Path | None) -> bool:
    if entry.path in stamp_at:
        return stamp_at[entry.path].sha256 != entry.stamp.sha256
    if folder is None or not entry.path.startswith(os.path.realpath(folder) + os.sep):
        return False
    return not os.path.exists(entry.path)


def update_photos(
    before: Sequence[Photo],
    changes: PhotoChanges,
    scan: PhotoScan,
    stamps: Sequence[Stamp],
    looked_at: Mapping[int, tuple[str, int, str]],
) -> list[Photo]:
    """List all photos after new ones were looked at.

    Args:
        before: the photos of before.
        changes: as `compare_photos` found them.
        scan: the photos that are there now.
        stamps: of the same.
        looked_at: row of the scan -> status, number of faces, reason.
    """
    paths = scan.paths
    stamp_at = dict(zip(paths, stamps, strict=True))
    now: dict[tuple[str, str], Photo] = {}

    def put(photo: Photo) -> None:
        # A photo that was replaced and its replacement have the same path.
        now[photo.path, photo.stamp.sha256] = photo

    for one in before:
        if one.status in (*_TRIED_AGAIN, COPY):
            if one.path not in stamp_at and os.path.exists(one.path.partition("!")[0]):
                put(one)
            continue
        path = changes.renamed.get(one.path, one.path)
        is_gone = one.path in changes.gone
        stamp = stamp_at.get(path)
        fresh = stamp if stamp is not None and stamp.sha256 == one.stamp.sha256 else one.stamp
        if is_gone and not one.faces:
            continue
        status = GONE if is_gone else FACES if one.status == GONE else one.status
        put(replace(one, path=path, status=status, stamp=fresh))
    for path, other in changes.copies.items():
        put(
            Photo(
                path,
                COPY,
                0,
                f"the same bytes as {os.path.relpath(other, os.path.dirname(path))}",
                stamp_at[path],
            )
        )
    for row, (status, faces, reason) in looked_at.items():
        put(Photo(paths[row], status, faces, reason, stamps[row]))
    for left in scan.left_out:
        put(Photo(left.path, UNSUPPORTED, 0, left.reason))
    return list(now.values())


def left_out_in_words(photos: Iterable[Photo], n_thumbnails: int = 0) -> str:
    """Say what of the photos is not in the album, by kind; empty if nothing is."""
    counts: dict[str, int] = {}
    for one in photos:
        if one.status == FACES:
            continue
        kind = (
            one.status
            if one.status != UNSUPPORTED
            else one.reason.partition(";")[0].removeprefix("an ").removeprefix("a ")
        )
        counts[kind] = counts.get(kind, 0) + 1
    words = {
        NO_FACE: ("without a face", "without a face"),
        UNREADABLE: ("unreadable", "unreadable"),
        COPY: ("copy", "copies"),
        GONE: ("gone since (its faces are kept)", "gone since (their faces are kept)"),
    }
    most_first = sorted(counts.items(), key=lambda it: -it[1])
    parts = [f"{count:,} {words.get(kind, (kind, f'{kind}s'))[count != 1]}" for kind, count in most_first]
    if n_thumbnails:
        parts.append(f"{n_thumbnails:,} thumbnail{'s' if n_thumbnails != 1 else ''}")
    return ", ".join(parts)

"""Photo scan: images below a folder at any depth, other files with reasons, and content hashes.

Folder names mean nothing unless asked for. A photo is what its bytes are: copies and links are one photo, and
a photo that was renamed is the same photo.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.data.image_folders import is_image
from cdp.data.images import open_images
from cdp.data.manifests import read_manifest
from cdp.errors import InputError
from cdp.runtime.progress import Progress, no_progress
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest

_THUMBNAILS = frozenset(
    {"@eadir", ".thumbnails", ".@__thumb", "#recycle", "@recycle", "__macosx", "lost+found"}
)
"""Folders in which network drives and desktops keep thumbnails and what was deleted, in small letters."""

_VIDEOS = (".mp4", ".mov", ".avi", ".mkv", ".m4v", ".3gp", ".webm", ".mts", ".m2ts", ".wmv", ".mpg", ".mpeg")
_RAW = (
    ".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw", ".srf", ".sr2", ".dng", ".raf", ".orf", ".rw2", ".pef",
    ".srw", ".x3f", ".3fr",
    ".iiq", ".rwl", ".raw",
)  # fmt: skip
_OTHER_IMAGES = (".psd", ".xcf", ".svg", ".jxl", ".exr", ".hdr", ".ai", ".eps", ".ico")

NOT_SUPPORTED: Mapping[str, str] = (
    dict.fromkeys(_VIDEOS, "a video")
    | dict.fromkeys(_RAW, "a camera raw file; export it as JPEG")
    | dict.fromkeys(_OTHER_IMAGES, "an image format that is not supported; export it as JPEG")
)
"""Why files with an ending are left out."""


@dataclass(frozen=True)
class LeftOut:
    """A file that is left out, and why."""

    path: str
    reason: str


@dataclass(frozen=True, eq=False)
class PhotoScan:
    """The photos of a folder, a table or an archive.

    Attributes:
        photos: where they are; identities only where folder names were asked for, or a table has them.
        left_out: files that look like photos or videos and cannot be used.
        n_thumbnails: files in folders of thumbnails, which are passed over.
        folder: the folder that was looked through; None for tables and archives.
    """

    photos: Manifest
    left_out: tuple[LeftOut, ...] = ()
    n_thumbnails: int = 0
    folder: Path | None = None

    @property
    def paths(self) -> list[str]:
        """Where the photos are, from the root of the file system."""
        root = os.path.realpath(self.photos.root)
        return [os.path.normpath(os.path.join(root, one)) for one in self.photos.locations]


def scan_photos(
    source: str | Path,
    *,
    identities: str = "none",
    root: str | Path | None = None,
    skip: str | Path | None = None,
) -> PhotoScan:
    """Find all photos.

    Args:
        source: a folder, nested in any way; or a table, a list or an archive, as `read_manifest` takes them.
        identities: what folder names mean: `none`, or `folders` = the folder that a photo is in is the person
            on it.
        root: what relative paths in a table are relative to.
        skip: a list of unreadable images to leave out.

    Raises:
        InputError: there is no photo.
    """
    folder = Path(source)
    if not folder.is_dir() or (folder / "list.txt").is_file() or (folder / "card.json").is_file():
        return PhotoScan(read_manifest(source, root=root, skip=skip))
    found: list[str] = []
    left_out: list[LeftOut] = []
    thumbnails: Counter[str] = Counter()
    for path in _walk(folder, thumbnails):
        ending = os.path.splitext(path)[1].lower()
        if is_image(path):
            found.append(path)
        elif ending in NOT_SUPPORTED:
            left_out.append(LeftOut(os.path.join(os.path.realpath(folder), path), NOT_SUPPORTED[ending]))
    if not found:
        others = (
            f"; {len(left_out):,} others cannot be used, e.g. {left_out[0].path}: {left_out[0].reason}"
            if left_out
            else ""
        )
        raise InputError(f"{folder}: no photos found below it{others}.", code="photos-missing", folder=folder)
    numbers, names = _folder_identities(found) if identities == "folders" else (np.full(len(found), -1), None)
    return PhotoScan(
        Manifest(tuple(found), numbers, names, str(folder)), tuple(left_out), thumbnails["thumbnails"], folder
    )


def _walk(folder: Path, thumbnails: Counter[str]) -> Iterator[str]:
    """Yield all file paths below a folder, sorted; skip hidden files, thumbnails and links upwards."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(place)
        if here in seen:
            folders.clear()
            continue
        seen.add(here)
        for name in [one for one in folders if one.lower() in _THUMBNAILS]:
            thumbnails["thumbnails"] += sum(
                len(inside) for _, _, inside in os.walk(os.path.join(place, name))
            )
        folders[:] = sorted(
            one for one in folders if not one.startswith(".") and one.lower() not in _THUMBNAILS
        )
        inside = os.path.relpath(place, folder)
        for name in sorted(files):
            if name.startswith("."):
                continue
            try:
                name.encode()
            except UnicodeEncodeError:
                raise InputError(
                    f"{place}: a name in it is not UTF-8 ({name!a}); rename it.",
                    code="image-name-not-utf8",
                    folder=place,
                    name=name,
                ) from None
            yield name if inside == "." else os.path.join(inside, name)


def _folder_identities(paths: list[str]) -> tuple[LongArray, tuple[str, ...] | None]:
    """Return the last folder of every path as a person; photos at the top have none."""
    folders = [os.path.basename(os.path.dirname(one)) for one in paths]
    names = tuple(sorted(set(folders) - {""}))
    number = {name: at for at, name in enumerate(names)}
    return np.array([number.get(one, -1) for one in folders], np.int64), names or None


@dataclass(frozen=True)
class Stamp:
    """What tells a photo from others.

    Attributes:
        sha256: of its bytes; empty where they cannot be read.
        size, changed: of its file, in bytes and nanoseconds; 0 in an archive.
    """

    sha256: str
    size: int = 0
    changed: int = 0


def stamp_photos(
    scan: PhotoScan, known: Mapping[str, Stamp], progress: Progress = no_progress
) -> list[Stamp]:
    """Hash all photos; one whose file has the size and time of change of before is not read again.

    Args:
        scan: the photos.
        known: path -> what was known of it before.
        progress: called with how many photos are done.
    """
    reader, stamps = open_images(scan.photos), []
    for row, path in enumerate(scan.paths):
        size = changed = 0
        try:
            entry = os.stat(path)
            size, changed = entry.st_size, entry.st_mtime_ns
        except (OSError, ValueError):  # in an archive, or gone since
            pass
        before = known.get(path)
        if before is not None and size and (before.size, before.changed) == (size, changed):
            stamps.append(before)
        else:
            try:
                digest = hashlib.sha256(reader.read(row)).hexdigest()
            except InputError:  # whoever decodes it says what is wrong with it
                digest = ""
            stamps.append(Stamp(digest, size, changed))
        progress("scan photos", row + 1, len(scan.photos))
    return stamps

"""Images in folders: the folder an image is in is its identity."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from cdp.errors import InputError
from cdp.types.manifest import Manifest

IMAGE_SUFFIXES = frozenset(
    [
        ".jpg",
        ".jpeg",
        ".jpe",
        ".png",
        ".bmp",
        ".gif",
        ".webp",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
        ".jp2",
        ".heic",
        ".heif",
        ".hif",
        ".avif",
    ]
)


def is_image(name: str) -> bool:
    """Return whether a file name ends like that of an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def read_image_folders(folder: Path) -> Manifest:
    """Return the manifest of a folder with one folder per identity; folders may be nested."""
    images: list[tuple[str, str]] = []
    empty: list[str] = []
    _walk(folder, "", images, empty, ())
    if images and empty:
        more = f" and {len(empty) - 1:,} others" if len(empty) > 1 else ""
        raise InputError(
            f"{folder / empty[0]}{more}: a folder without images; remove it or fill it.",
            code="image-folder-empty",
            folder=folder / empty[0],
        )
    return from_folders(folder, str(folder), images)


def _walk(
    folder: Path, inside: str, images: list[tuple[str, str]], empty: list[str], above: tuple[str, ...]
) -> bool:
    """Collect images below a folder; links to folders are followed, but never in a circle."""
    here = os.path.realpath(folder)
    if here in above:
        raise InputError(
            f"{folder}: a link to a folder that it is in; remove it.",
            code="image-folder-loops",
            folder=folder,
        )
    found = False
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.name.startswith("."):
            continue
        relative = f"{inside}{entry.name}"
        if not relative.isprintable() and any(0xDC80 <= ord(letter) <= 0xDCFF for letter in relative):
            raise InputError(
                f"{folder}: holds a name that is not UTF-8 ({entry.name!a}); rename it.",
                code="image-name-not-utf8",
                folder=folder,
                name=entry.name,
            )
        if entry.is_dir():
            found |= _walk(Path(entry.path), f"{relative}/", images, empty, (*above, here))
        elif is_image(entry.name):
            images.append((relative, relative))
            found = True
    if not found:
        empty.append(inside.rstrip("/"))
    return found


def from_folders(source: Path, root: str, entries: Iterable[tuple[str, str]]) -> Manifest:
    """Return a manifest of (path inside, location) entries; the folder an image is in is its identity.

    Images that are all at the top have no identity. Images next to folders of images are refused: their
    identity is unclear.
    """
    found = sorted(
        (inside.rpartition("/")[0], inside, location) for inside, location in entries if is_image(inside)
    )
    if not found:
        raise InputError(
            f"{source}: no images found; expected IDENTITY/NAME.jpg or .png below it.",
            code="images-missing",
            file=source,
        )
    folders = {folder for folder, _, _ in found}
    parents = {folder[:cut] for folder in folders for cut in _cuts(folder)}
    for folder, inside, _ in found:
        if folder in parents:
            raise InputError(
                f"{source}: the image {inside} is next to folders of images, so its identity is unclear; "
                "put it into a folder of its own or remove it.",
                code="image-identity-unclear",
                file=source,
                image=inside,
            )
    identities = np.full(len(found), -1, np.int64)
    names = None
    if folders != {""}:
        names = tuple(sorted(folders))
        numbers = {name: number for number, name in enumerate(names)}
        identities = np.array([numbers[folder] for folder, _, _ in found], np.int64)
    return Manifest(tuple(location for _, _, location in found), identities, names, root)


def _cuts(folder: str) -> list[int]:
    """Return where the folders above end: 0 for the top, and the position of every slash."""
    return [0, *(at for at, letter in enumerate(folder) if letter == "/")] if folder else []

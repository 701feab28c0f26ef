"""Manifests from images in place: folders, lists, tables, zip and tar archives, record files."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

import numpy as np

from cdp.data.archives import ZipArchive, split_location
from cdp.data.image_folders import from_folders, read_image_folders
from cdp.data.manifest_tables import TABLE_SUFFIXES, read_columns, read_table
from cdp.data.record_files import RecordFile
from cdp.data.views import read_identities
from cdp.data.webdataset import has_pattern, read_shards, shards_of
from cdp.errors import InputError
from cdp.storage.array_files import read_lines, reading
from cdp.types.arrays import ByteArray, LongArray
from cdp.types.manifest import Manifest


def read_manifest(
    path: str | Path, *, root: str | Path | None = None, skip: str | Path | None = None
) -> Manifest:
    """Read the manifest of the images at `path`, in any layout of docs/formats.md.

    Args:
        path: a folder with one folder per identity, or with `list.txt` and `meta.txt`, record files or tar
            shards; or one .csv, .parquet, list.txt, .zip, .tar or .rec; or a pattern such as
            `shards-{000..015}.tar`.
        root: what relative paths in a table or list are relative to; its own folder unless given.
        skip: the list of unreadable images that `cdp data check` writes; they are left out.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from cdp import read_manifest
        >>> faces = tempfile.TemporaryDirectory()
        >>> for person in ("anna", "bob"):
        ...     Path(faces.name, person).mkdir()
        ...     Image.new("RGB", (8, 8)).save(Path(faces.name, person, "1.png"))
        >>> read_manifest(faces.name)
        Manifest: 2 images, 2 identities
        >>> faces.cleanup()
    """
    with reading(path):
        manifest = _read_images(Path(path), root)
        _refuse_repeats(manifest, str(path))
    return manifest if skip is None else leave_out(manifest, skip)


def _read_images(path: Path, root: str | Path | None) -> Manifest:
    if path.is_dir():
        return _read_folder(path, root)
    if path.exists():
        return _read_file(path, root)
    if not has_pattern(str(path)):
        raise InputError(
            f"{path}: no such file or folder; check the spelling of the path.", code="path-missing", file=path
        )
    return read_shards(shards_of(str(path)))


def _read_folder(folder: Path, root: str | Path | None) -> Manifest:
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    names = {file.name for file in files}
    if "list.txt" in names:
        return _read_list(folder / "list.txt", root)
    if {"card.json", "labeled.csv"} <= names or {"card.json", "labeled.parquet"} <= names:
        parts = ", ".join(file.name for file in files if file.suffix in TABLE_SUFFIXES)
        raise InputError(
            f"{folder}: holds the parts of a split; give one of {parts}.",
            code="folder-is-split",
            folder=folder,
        )
    if {"card.json", "faces.csv"} <= names:  # what `cdp data align` wrote
        return _present(read_table(folder / "faces.csv"), folder / "faces.csv")
    records = [file for file in files if file.suffix.lower() == ".rec"]
    if records:
        if len(records) > 1:
            raise InputError(
                f"{folder}: holds {len(records)} record files; give one, e.g. {records[0]}.",
                code="folder-several-records",
                folder=folder,
                count=len(records),
            )
        return _read_records(records[0])
    shards = [file for file in files if file.suffix.lower() == ".tar"]
    if not shards:
        return read_image_folders(folder)
    if any(entry.is_dir() and not entry.name.startswith(".") for entry in folder.iterdir()):
        raise InputError(
            f"{folder}: holds both folders and {shards[0].name}; give the one that is meant.",
            code="folder-images-and-shards",
            folder=folder,
        )
    return read_shards(shards)


def _read_file(file: Path, root: str | Path | None) -> Manifest:
    suffix = file.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        return _present(read_table(file, root=root), file)
    if suffix == ".txt":
        return _read_list(file, root)
    if suffix == ".zip":
        entries = [entry for entry in ZipArchive(file).entries if not _is_litter(entry)]
        return from_folders(file, str(file.parent), [(entry, f"{file.name}!{entry}") for entry in entries])
    if suffix == ".tar":
        return read_shards([file])
    if suffix == ".rec":
        return _read_records(file)
    raise InputError(
        f"{file}: not a known kind of file; give a folder, .csv, .parquet, list.txt, .zip, .tar or .rec.",
        code="images-kind-unknown",
        file=file,
    )


def _read_list(file: Path, root: str | Path | None) -> Manifest:
    """Return the authors' layout: one path per line, and next to it in `meta.txt` one identity per line."""
    locations = tuple(read_lines(file))
    if "" in locations:
        line = locations.index("") + 1
        raise InputError(
            f"{file}: line {line} is blank; write one image path per line.",
            code="list-line-blank",
            file=file,
            line=line,
        )
    meta = file.with_name("meta.txt")
    identities = np.full(len(locations), -1, np.int64)
    if meta.is_file() and meta != file:
        identities = read_identities(meta).astype(np.int64)
        if len(identities) != len(locations):
            raise InputError(
                f"{meta}: has {len(identities):,} lines, {file.name} has {len(locations):,}; "
                "they must be about the same images.",
                code="list-meta-differs",
                file=meta,
                expected=len(locations),
                found=len(identities),
            )
    manifest = Manifest(locations, identities, root=str(file.parent if root is None else root))
    return _present(manifest, file)


def _read_records(file: Path) -> Manifest:
    keys, identities = RecordFile(file).images()
    locations = tuple(f"{file.name}!{key}" for key in keys.tolist())
    return Manifest(locations, identities, root=str(file.parent))


def _is_litter(entry: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in entry.split("/"))


def _present(manifest: Manifest, file: Path) -> Manifest:
    """Return the manifest if its first image exists, so that a wrong root is found before any work."""
    archive, _ = split_location(manifest.locations[0])
    first = os.path.join(manifest.root, manifest.locations[0])
    if not os.path.exists(first) and not (archive and os.path.exists(os.path.join(manifest.root, archive))):
        raise InputError(
            f"{file}: {manifest.describe(0)} does not exist; relative paths start from {manifest.root}, "
            "give another root if they start elsewhere.",
            code="list-image-missing",
            file=file,
            image=manifest.locations[0],
        )
    return manifest


def _refuse_repeats(manifest: Manifest, path: str) -> None:
    images: Sequence[Hashable] = manifest.locations
    if manifest.turns is not None:
        images = list(zip(manifest.locations, manifest.turns.tolist(), strict=True))
    if len(set(images)) == len(images):
        return
    seen: dict[Hashable, int] = {}
    for row, image in enumerate(images):
        first = seen.setdefault(image, row)
        if first != row:
            raise InputError(
                f"{path}: rows {first} and {row} (counted from 0) are the same image, "
                f"{manifest.locations[row]}; remove one.",
                code="image-repeated",
                file=path,
                rows=(first, row),
            )


def leave_out(manifest: Manifest, unreadable: str | Path) -> Manifest:
    """Return the manifest without the images listed in a file that `cdp data check` wrote."""
    file = Path(unreadable)
    gone = {_absolute(str(file.parent), location) for location in read_columns(file)["path"]}
    # Most rows differ in the last part of the path already; only the others are worth resolving.
    last_parts = {location.rpartition("/")[2] for location in gone}
    rows = [
        row
        for row, location in enumerate(manifest.locations)
        if location.rpartition("/")[2] in last_parts and _absolute(manifest.root, location) in gone
    ]
    return without_unreadable(manifest, rows)


def without_unreadable(manifest: Manifest, bad_rows: Iterable[int]) -> Manifest:
    """Return the manifest without some rows, in the same order."""
    kept = np.ones(manifest.n_images, np.bool_)
    kept[list(bad_rows)] = False
    if not kept.any():
        raise InputError("All images are unreadable; nothing would be left.", code="images-all-unreadable")
    return manifest if kept.all() else manifest.take(kept)


def _absolute(root: str, location: str) -> str:
    return os.path.normpath(os.path.join(os.path.realpath(root), location))


def merge_manifests(manifests: Sequence[Manifest]) -> Manifest:
    """Concatenate all images, to train on all true labels, the upper bound.

    Identities are matched by name where every manifest has names, else by number.
    """
    by_name = all(manifest.names is not None for manifest in manifests)
    names: dict[str, int] = {}
    numbers: list[LongArray] = []
    for manifest in manifests:
        if not by_name:
            numbers.append(manifest.identities)
            continue
        assert manifest.names is not None
        number_of = np.array(
            [names.setdefault(name or f"#{at}", len(names)) for at, name in enumerate(manifest.names)]
        )
        numbers.append(np.where(manifest.identities >= 0, number_of[manifest.identities], -1))
    turns: ByteArray | None = None
    if any(manifest.turns is not None for manifest in manifests):
        turns = np.concatenate(
            [np.zeros(len(each), np.uint8) if each.turns is None else each.turns for each in manifests]
        )
    return Manifest(
        locations=tuple(
            os.path.abspath(os.path.join(each.root, path)) for each in manifests for path in each.locations
        ),
        identities=np.concatenate(numbers),
        names=tuple(names) if by_name else None,
        root="/",
        turns=turns,
    )

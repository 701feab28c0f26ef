"""Tar shards in WebDataset form: `key.jpg` and `key.cls` side by side."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cdp.data.archives import TarArchive
from cdp.data.image_folders import from_folders, is_image
from cdp.data.manifest_tables import number_identities
from cdp.errors import InputError
from cdp.storage.array_files import naming
from cdp.types.manifest import Manifest

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,12})\.\.([0-9]{1,12})")
_MOST_SHARDS = 10**6


def has_pattern(path: str) -> bool:
    """Return whether a path stands for several: `{000..015}`, `{a,b}`, `*`, `?` or `[ab]`."""
    return bool(_BRACES.search(path)) or glob.has_magic(path)


def shards_of(pattern: str) -> list[Path]:
    """Return the .tar files that a pattern names; every name that braces spell out must be there."""
    shards: list[Path] = []
    for spelled in _expand(pattern):
        found = sorted(glob.glob(spelled)) if glob.has_magic(spelled) else [spelled]
        if not found or not os.path.exists(found[0]):
            raise InputError(
                f"{pattern}: {spelled} does not exist; check the pattern.",
                code="shard-missing",
                pattern=pattern,
                file=spelled,
            )
        shards.extend(Path(file) for file in found)
    wrong = [str(file) for file in shards if file.suffix.lower() != ".tar"]
    if wrong:
        raise InputError(
            f"{pattern}: also names {wrong[0]}; a pattern may only name .tar shards.",
            code="shard-not-tar",
            pattern=pattern,
            file=wrong[0],
        )
    return shards


def _expand(pattern: str) -> list[str]:
    """Braces spelled out, `{08..10}` as 08, 09, 10."""
    choices: list[list[str]] = []
    n_shards = 1
    for position, piece in enumerate(_BRACES.split(pattern)):
        bounds = _RANGE.fullmatch(piece)
        if position % 2 == 0:
            choices.append([piece])
            continue
        first, last = (int(bounds[1]), int(bounds[2])) if bounds else (1, 1 + piece.count(","))
        if last < first:
            raise InputError(
                f"{pattern}: {{{piece}}} is not a range of shards; write {{000..015}}.",
                code="shard-range-wrong",
                pattern=pattern,
                value=piece,
            )
        n_shards *= last - first + 1
        if n_shards > _MOST_SHARDS:
            raise InputError(
                f"{pattern}: stands for more than {_MOST_SHARDS:,} shards; write a narrower pattern.",
                code="shards-too-many",
                pattern=pattern,
                most=_MOST_SHARDS,
            )
        width = len(bounds[1]) if bounds else 0
        spelled = [str(number).zfill(width) for number in range(first, last + 1)]
        choices.append(spelled if bounds else piece.split(","))
    return ["".join(pieces) for pieces in itertools.product(*choices)]


def read_shards(shards: Sequence[Path]) -> Manifest:
    """Return the manifest of tar shards, in their order and the order inside.

    The text in `key.cls` is the identity of `key.jpg`; a number, or a name. Shards without any `.cls` are
    read like folders: the folder an image is in is its identity.
    """
    root = os.path.commonpath([shard.absolute().parent for shard in shards])
    entries: list[tuple[str, str]] = []
    classes: list[str] = []
    without: list[str] = []
    for shard in shards:
        archive = TarArchive(shard)
        prefix = f"{os.path.relpath(shard.absolute(), root)}!"
        images: dict[str, str] = {}
        class_of: dict[str, str] = {}
        for entry in archive.entries:
            key, kind = _key(entry)
            if is_image(entry):
                if key in images:
                    raise InputError(
                        f"{shard}: {images[key]} and {entry} share the key {key}; one image per key is "
                        "needed.",
                        code="shard-key-repeated",
                        file=shard,
                        key=key,
                        entries=(images[key], entry),
                    )
                images[key] = entry
            elif kind == "cls":
                class_of[key] = _class_text(shard, entry, archive.read(entry))
        entries.extend((entry, prefix + entry) for entry in images.values())
        classes.extend(class_of.get(key, "") for key in images)
        without.extend(prefix + entry for key, entry in images.items() if key not in class_of)
    if not entries:
        raise InputError(
            f"{shards[0]}: no images found; expected key.jpg and key.cls in it.",
            code="images-missing",
            file=shards[0],
        )
    if len(without) == len(entries):
        return from_folders(shards[0], root, entries)
    if without:
        raise InputError(
            f"{without[0]}: has no .cls next to it, others have; write -1 where it is unknown.",
            code="shard-class-missing",
            entry=without[0],
        )
    identities, names = number_identities(classes)
    with naming(shards[0], file=shards[0]):
        return Manifest(tuple(location for _, location in entries), np.asarray(identities), names, root)


def _key(entry: str) -> tuple[str, str]:
    """Return (key, extension); the key ends at the first dot of the file name."""
    folder, slash, name = entry.rpartition("/")
    stem, _, kind = name.partition(".")
    return f"{folder}{slash}{stem}", kind


def _class_text(shard: Path, entry: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or "\n" in text:
        raise InputError(
            f"{shard}!{entry}: is not one identity as text; write a number or a name.",
            code="shard-class-wrong",
            file=shard,
            entry=entry,
        )
    return text

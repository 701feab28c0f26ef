"""Corrections: what people said about images, in a journal that only grows.

`corrections.jsonl` in a collection's folder has one JSON object per line, numbered from 0; a line is on disk
before `append_corrections` returns, and two writers do not mix theirs. To undo is an entry of its own. What
counts now is what no later entry undoes; of several names and rejections of one image the last counts.
`to_constraints` makes them what groups must keep.

    append_corrections(folder, [same(3, 7), different(3, 9), named("Anna", 3), rejected(12)], source="review")
    undo_corrections(folder, [1])
    for correction in read_corrections(folder): ...
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import combinations, pairwise
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from cdp.errors import InputError, StoreError
from cdp.storage.artifacts import JsonLines, parse_json_lines, read_json_lines
from cdp.storage.files import disk_errors, lock_file
from cdp.types.constraints import Constraints

JOURNAL = "corrections.jsonl"


class Correction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A correction: a fact about images that groups must respect.

    Attributes:
        kind: `same` (all of the images are one identity), `different` (every two of them are two), `name`
            (they are of the person of this name), `reject` (they belong to no group), `undo` (the entry with
            the number `undoes` is void).
        images: rows of the collection.
        name: of the person.
        undoes: the number of an entry.
        id: the entry's number, given when it is written.
        when: UTC, ISO 8601, given when it is written unless it is there.
        source: who or what said so, such as `review`, `import`, `table`.

    Examples:
        >>> from cdp.collection.corrections import different, named, same
        >>> same(3, 7).kind, different(3, 9).images, named("Anna", 3).name
        ('same', (3, 9), 'Anna')
    """

    kind: Literal["same", "different", "name", "reject", "undo"]
    images: tuple[int, ...] = ()
    name: str = ""
    undoes: int = -1
    id: int = -1
    when: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind == "undo":
            return
        fewest = 2 if self.kind in ("same", "different") else 1
        if len(self.images) < fewest or min(self.images) < 0:
            raise InputError(
                f"A correction {self.kind!r} needs {fewest} images or more, by row; got {list(self.images)}.",
                code="correction-images-too-few",
                kind=self.kind,
                expected=fewest,
            )
        if self.kind == "different" and len(set(self.images)) < len(self.images):
            raise InputError(
                f"A correction says that an image differs from itself: {list(self.images)}.",
                code="correction-differs-from-itself",
                images=self.images,
            )
        if self.kind == "name" and (not self.name.strip() or not self.name.isprintable()):
            raise InputError(
                f"A name must be printable text, got {self.name!r}.",
                code="name-not-printable",
                value=self.name,
            )


def same(*images: int) -> Correction:
    """Say that images are one identity."""
    return Correction(kind="same", images=tuple(map(int, images)))


def different(*images: int) -> Correction:
    """Return every two of these images are two identities."""
    return Correction(kind="different", images=tuple(map(int, images)))


def named(name: str, *images: int) -> Correction:
    """Say that images are of the person of this name."""
    return Correction(kind="name", name=name, images=tuple(map(int, images)))


def rejected(*images: int) -> Correction:
    """Say that images belong to no group."""
    return Correction(kind="reject", images=tuple(map(int, images)))


def merge_groups(one: Sequence[int], other: Sequence[int]) -> list[Correction]:
    """Record that two groups, given by their images, are one identity, and confirm the pairs between them."""
    return [same(*one, *other)]


def split_group(stays: Sequence[int], leaves: Sequence[int]) -> list[Correction]:
    """Return a group is two identities: these images of it, and those."""
    parts = [same(*part) for part in (stays, leaves) if len(part) > 1]
    return [*parts, different(stays[0], leaves[0])]


def append_corrections(folder: str | Path, corrections: Iterable[Correction], source: str = "") -> list[int]:
    """Write corrections at the end of the journal; returns their numbers once they are on disk.

    Raises:
        InputError: an entry to be undone is not there.
        StoreError: the disk is full, or the journal is damaged or cannot be written.
    """
    file = Path(folder) / JOURNAL
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with disk_errors(file, "earlier corrections are safe"), _locked(file) as handle:
        content = _read_all(handle)
        written = parse_json_lines(content, Correction)
        number = _next_number(written)
        entries = [
            msgspec.structs.replace(one, id=number + at, when=one.when or now, source=one.source or source)
            for at, one in enumerate(corrections)
        ]
        for entry in entries:
            if entry.kind == "undo" and not 0 <= entry.undoes < entry.id:
                raise InputError(
                    f"There is no correction {entry.undoes} to undo; there are {number:,}.",
                    code="correction-to-undo-unknown",
                    found=number,
                    value=entry.undoes,
                )
        # A line that a killed writer left half-written was never acknowledged.
        os.ftruncate(handle, written.end)
        os.lseek(handle, written.end, os.SEEK_SET)
        text = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        if written.end and content[written.end - 1 : written.end] != b"\n":  # whole, but for its end
            text = b"\n" + text
        while text:
            text = text[os.write(handle, text) :]
        os.fsync(handle)
    return [entry.id for entry in entries]


def append_unsaid(folder: str | Path, corrections: Iterable[Correction]) -> list[int]:
    """Append the corrections that the journal lacks; an interrupted command may have written some."""
    said = {(one.kind, one.images, one.name) for one in read_journal(folder)}
    return append_corrections(
        folder, [one for one in corrections if (one.kind, one.images, one.name) not in said]
    )


def append_rest(folder: str | Path, corrections: Sequence[Correction], source: str = "") -> list[int]:
    """Write corrections, except for the first ones if the journal ends with them.

    A command that was killed may have written these.
    """
    said = [(one.kind, one.images, one.name) for one in corrections]
    end = [(one.kind, one.images, one.name) for one in read_journal(folder)[-len(said) :]]
    n_written = next(count for count in range(len(end), -1, -1) if end[len(end) - count :] == said[:count])
    return append_corrections(folder, corrections[n_written:], source)


def undo_corrections(folder: str | Path, numbers: Iterable[int], source: str = "") -> list[int]:
    """Void entries of the journal; an undo can be undone."""
    undos = [Correction(kind="undo", undoes=int(number)) for number in numbers]
    return append_corrections(folder, undos, source)


def read_journal(folder: str | Path) -> list[Correction]:
    """Return all entries in order, undone ones and undos among them; emptied lines are left out.

    Raises:
        StoreError: a line is damaged.
    """
    file = Path(folder) / JOURNAL
    lines = read_json_lines(file, Correction)
    for number, problem in lines.damaged.items():
        raise StoreError(
            f"{file}: line {number} is damaged ({problem}); correct it, or make it empty to keep the "
            f"other {len(lines.values):,} entries.",
            code="corrections-line-damaged",
            file=file,
            line=number,
        )
    return [_numbered(one, number) for number, one in lines.values.items()]


def _numbered(entry: Correction, line: int) -> Correction:
    """Return an entry with its number: that of its line, unless it has one."""
    return entry if entry.id >= 0 else msgspec.structs.replace(entry, id=line - 1)


def _next_number(lines: JsonLines[Correction]) -> int:
    """Return the number of the next entry; lines may have been removed, and no number is given twice."""
    last = max((one.id for one in lines.values.values()), default=-1)
    return max(lines.n_lines, last + 1)


def read_corrections(folder: str | Path) -> list[Correction]:
    """Return the corrections that count now: entries that no later one undoes."""
    return active_corrections(read_journal(folder))


def active_corrections(entries: Sequence[Correction]) -> list[Correction]:
    """Entries that no later one undoes; an undo that was itself undone does not count."""
    void: set[int] = set()
    for entry in reversed(entries):
        if entry.kind == "undo" and entry.id not in void:
            void.add(entry.undoes)
    return [entry for entry in entries if entry.kind != "undo" and entry.id not in void]


def applicable(corrections: Iterable[Correction], n_images: int) -> list[Correction]:
    """Return the corrections whose images exist.

    An interrupted command may have recorded corrections of images that it never added.
    """
    return [one for one in corrections if max(one.images, default=-1) < n_images]


def to_constraints(corrections: Iterable[Correction], n_images: int) -> Constraints:
    """Return what groups must keep; of several names and rejections of one image the last counts.

    The images that one entry names are one person. Those of several entries with the same name are too,
    unless some of them are said to be different: two people may have the same name.
    """
    must: list[tuple[int, int]] = []
    cannot: list[tuple[int, int]] = []
    names: dict[int, tuple[str, int]] = {}
    rejects: set[int] = set()
    for at, one in enumerate(corrections):
        if one.kind == "same":
            must += pairwise(one.images)
        elif one.kind == "different":
            cannot += combinations(one.images, 2)
        elif one.kind == "name":
            names |= dict.fromkeys(one.images, (one.name, at))
            rejects -= set(one.images)
        elif one.kind == "reject":
            rejects |= set(one.images)
            for image in one.images:
                names.pop(image, None)
    by_entry: dict[int, list[int]] = {}
    for image, (_, at) in names.items():
        by_entry.setdefault(at, []).append(image)
    must += [pair for images in by_entry.values() for pair in pairwise(sorted(images))]
    return Constraints(
        n_images,
        np.array(must, np.int64).reshape(-1, 2),
        np.array(cannot, np.int64).reshape(-1, 2),
        {image: name for image, (name, _) in names.items()},
        np.array(sorted(rejects), np.int64),
    )


@contextmanager
def locked_journal(folder: Path) -> Iterator[None]:
    """Let corrections wait while a collection is replaced; they are refused then, because rows may differ."""
    file = folder / JOURNAL
    with disk_errors(file), _locked(file):
        yield


@contextmanager
def _locked(file: Path) -> Iterator[int]:
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file(handle, file, waits=True)
        if not os.path.exists(file) or not os.path.samestat(os.fstat(handle), os.stat(file)):
            raise StoreError(
                f"{file}: the collection was replaced meanwhile, so its images may have other numbers; "
                "nothing was recorded, open it again.",
                code="journal-replaced",
                file=file,
            )
        yield handle
    finally:
        os.close(handle)


def _read_all(handle: int) -> bytes:
    os.lseek(handle, 0, os.SEEK_SET)
    blocks = []
    while block := os.read(handle, 2**20):
        blocks.append(block)
    return b"".join(blocks)

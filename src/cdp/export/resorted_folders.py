"""Folders that were exported and sorted again by hand, as corrections."""

from __future__ import annotations

import csv
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cdp.collection.corrections import Correction, different, named, rejected, same
from cdp.data.image_folders import is_image
from cdp.errors import InputError
from cdp.export.person_folders import DISCARDED, ROW_IN_NAME, TABLE
from cdp.storage.array_files import reading
from cdp.web.words import counted

_ANCHORS = 3


@dataclass(frozen=True)
class Exported:
    """What an export's table says.

    Attributes:
        identity: row -> the person it was exported as; -1 = discarded.
        home: person -> the folder of that person.
        confidence: row -> how firmly it was tied to the person.
        source: row -> where the image lay.
    """

    identity: Mapping[int, int]
    home: Mapping[int, str]
    confidence: Mapping[int, float]
    source: Mapping[int, str]


@dataclass(frozen=True)
class Resorted:
    """What was changed by hand.

    Attributes:
        corrections: what it means.
        moved: rows that lie in another person's folder now.
        renamed: folder before -> folder now.
        missing: rows that are nowhere any more.
        foreign: images that the export did not write, which are left alone.
    """

    corrections: tuple[Correction, ...]
    moved: tuple[int, ...]
    renamed: Mapping[str, str]
    missing: tuple[int, ...]
    foreign: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """What was found, for people."""
        said = [f"{before} is called {_as_name(now)} now." for before, now in sorted(self.renamed.items())]
        if self.moved:
            said.append(f"{counted(len(self.moved), 'image')} moved to another folder.")
        if self.missing:
            said.append(f"{counted(len(self.missing), 'image')} removed from the folders.")
        if self.foreign:
            said.append(
                f"{counted(len(self.foreign), 'image')} not exported from here, left alone: "
                f"{self.foreign[0]}."
            )
        return said


def read_export_table(folder: Path) -> Exported:
    """Return the table of an export.

    Raises:
        InputError: it is missing, or a line of it is damaged.
    """
    file = folder / TABLE
    if not file.is_file():
        raise InputError(
            f"{folder}: no {TABLE} there, so this is not what cdp export --format folders wrote; give that "
            "folder.",
            code="export-table-missing",
            folder=folder,
        )
    identity, home, confidence, source = {}, {}, {}, {}
    with reading(file), file.open(encoding="utf-8-sig", newline="") as stream:
        for number, line in enumerate(csv.DictReader(stream), start=2):
            try:
                row, person = int(line["row"]), int(line["identity"])
                identity[row], confidence[row], source[row] = (
                    person,
                    float(line["confidence"]),
                    line["source"],
                )
                home[person] = line["file"].partition("/")[0]
            except (KeyError, ValueError, TypeError, AttributeError):
                raise InputError(
                    f"{file}: line {number} is damaged; export again, and sort that.",
                    code="export-table-damaged",
                    file=file,
                    line=number,
                ) from None
    return Exported(identity, home, confidence, source)


def read_resorted(folder: Path, exported: Exported) -> tuple[dict[int, str], list[str]]:
    """Read (row -> its folder now, images that the export did not write).

    An image is known by the row at the start of its name, wherever it was moved, and copies that a file
    manager makes keep it. Folders in folders count as one name.

    Raises:
        InputError: an image lies in two folders.
    """
    now: dict[int, str] = {}
    foreign = []
    for place, inner, files in os.walk(folder):
        inner[:] = sorted(one for one in inner if not one.startswith("."))
        here = os.path.relpath(place, folder).replace(os.sep, "/")
        for name in sorted(files):
            if name.startswith(".") or (here == "." and name in (TABLE, "card.json")):
                continue
            found = ROW_IN_NAME.match(name)
            row = int(found[1]) if found else -1
            if row not in exported.identity:
                if is_image(name):
                    foreign.append(name if here == "." else f"{here}/{name}")
                continue
            if here == ".":
                raise InputError(
                    f"{folder / name}: is in no folder; put it into a person's, or into {DISCARDED}.",
                    code="sorted-image-in-no-folder",
                    file=folder / name,
                )
            if now.setdefault(row, here) != here:
                raise InputError(
                    f"{name} is in both {now[row]} and {here}; an image is of one person, so remove one of "
                    "them.",
                    code="sorted-image-twice",
                    file=name,
                )
    return now, foreign


def resorted_corrections(
    exported: Exported,
    now: Mapping[int, str],
    foreign: list[str] | None = None,
    *,
    reject_missing: bool = False,
) -> Resorted:
    """Return what was changed by hand, as corrections.

    A folder belongs to the person it was written for, or, under a new name, to the person whose folder is
    gone and whose images are most of it. An image in another person's folder is the same as the surest of
    those who stayed there, and not the same as the surest of those it left. A person all of whose images went
    to one folder was merged into it. Images in a folder that was not there before are one new person. Nothing
    is said about images that stayed where they were.

    Args:
        exported: what was written.
        now: row -> folder.
        foreign: images that the export did not write, to be passed on.
        reject_missing: images that were removed belong to no group; unless given, nothing is said about them.
    """
    folders: dict[str, list[int]] = defaultdict(list)
    for row in sorted(now):
        folders[now[row]].append(row)
    owner = _owners(exported, folders)
    left = {person: place for place, person in owner.items()}
    stayed = {
        place: _surest(exported, [row for row in rows if exported.identity[row] == owner.get(place, -2)])
        for place, rows in folders.items()
    }
    moved = [
        row for row, place in sorted(now.items())
        if exported.identity[row] != owner.get(place, -2)
        and not (place == DISCARDED and exported.identity[row] == -1)
    ]  # fmt: skip
    corrections: list[Correction] = []
    arrived: dict[str, list[int]] = defaultdict(list)
    for row in moved:
        arrived[now[row]].append(row)
    for place, rows in arrived.items():
        if place == DISCARDED:
            corrections.append(rejected(*rows))
            continue
        together = [*stayed[place][:_ANCHORS], *rows]
        if len(together) > 1:
            corrections.append(same(*together))
        corrections += _apart(exported, rows, left, stayed, place)
    renamed = {
        exported.home[person]: place for place, person in owner.items() if place != exported.home[person]
    }
    for place, rows in folders.items():
        if place != DISCARDED and place not in exported.home.values():
            corrections.append(named(_as_name(place), *_surest(exported, rows)))
    missing = tuple(sorted(set(exported.identity) - set(now)))
    if reject_missing and missing:
        corrections.append(rejected(*missing))
    return Resorted(tuple(corrections), tuple(moved), renamed, missing, tuple(foreign or ()))


def _owners(exported: Exported, folders: Mapping[str, list[int]]) -> dict[str, int]:
    """Assign each folder to a person: by name, else by most of its images if that folder is gone."""
    at_home = {place: person for person, place in exported.home.items() if place in folders and person >= 0}
    if DISCARDED in folders:
        at_home[DISCARDED] = -1
    gone = set(exported.home) - set(at_home.values()) - {-1}
    claims = []
    for place, rows in folders.items():
        if place in at_home:
            continue
        counts = Counter(person for row in rows if (person := exported.identity[row]) in gone)
        claims += [(-count, person, place) for person, count in counts.items() if 2 * count > len(rows)]
    owner = dict(at_home)
    for _, person, place in sorted(claims):
        if person in gone and place not in owner:
            owner[place] = person
            gone.discard(person)
    return owner


def _apart(
    exported: Exported, rows: list[int], left: Mapping[int, str], stayed: Mapping[str, list[int]], place: str
) -> list[Correction]:
    """Record that moved images differ from those that stayed, by the surest few of each old folder."""
    made = []
    for person in sorted({exported.identity[row] for row in rows} - {-1}):
        behind = stayed.get(left.get(person, ""), [])
        first = next(row for row in rows if exported.identity[row] == person)
        if behind and left[person] != place:
            made += [different(first, anchor) for anchor in behind[:_ANCHORS]]
    return made


def _surest(exported: Exported, rows: list[int]) -> list[int]:
    return sorted(rows, key=lambda row: (-exported.confidence[row], row))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _as_name(place: str) -> str:
    """Return a folder as the name of a person."""
    return " ".join("".join(one if one.isprintable() else " " for one in place).split()) or "_"


def import_folders(
    collection: str | Path, folder: str | Path, *, reject_missing: bool = False, plan: bool = False
) -> Resorted:
    """Write what was changed by hand to a collection's journal, and return it.

    Args:
        collection: that was exported.
        folder: what `cdp export --format folders` wrote, sorted again.
        reject_missing: see `resorted_corrections`.
        plan: write nothing.

    Raises:
        InputError: the folder is no export of this collection, or what it says contradicts what was said
            before.
    """
    from cdp.collection.collection import open_collection
    from cdp.collection.corrections import append_rest

    opened, place = open_collection(collection), Path(folder)
    exported = read_export_table(place)
    for row, source in exported.source.items():
        # By name: the images may have moved with the collection since.
        is_there = 0 <= row < opened.n_images
        if not is_there or (opened.paths is not None and _name(opened.paths[row]) != _name(source)):
            raise InputError(
                f"{place / TABLE}: row {row} is not an image of {collection}; give the collection that was "
                "exported, or export it again if images were removed since.",
                code="export-of-another-collection",
                row=row,
            )
    found = resorted_corrections(exported, *read_resorted(place, exported), reject_missing=reject_missing)
    opened.refuse_contradictions(found.corrections)
    if found.corrections and not plan:
        append_rest(collection, found.corrections, source="import")
    return found

"""What `cdp label` and `cdp add` say of photos at the end: how much, how sure, and what was left out."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cdp.web.words import counted

if TYPE_CHECKING:
    from cdp.run.photo_collection import AddedPhotos
    from cdp.types.run_record import Results

_NAMED = 3


def print_photos(added: AddedPhotos, out: Path, *, quiet: bool) -> None:
    """Print three lines on an album after photos came to it, and where to go on."""
    print_notes(added.notes)
    if quiet:
        return
    for line in (*describe_photos(added, out), f"Look: {out / 'report.html'}. Next: cdp review {out}"):
        print(line)


def print_notes(notes: Iterable[str]) -> None:
    """Print what is out of the ordinary, on standard error."""
    for note in notes:
        print(f"Note: {note}", file=sys.stderr)


def describe_photos(added: AddedPhotos, out: Path) -> list[str]:
    """Say how many photos, faces and people there are, how sure that is, and what was left out."""
    from cdp.collection.scored_files import read_measured
    from cdp.faces.photo_table import left_out_in_words

    album = added.collection
    alone = int((album.identity < 0).sum())
    n_photos = sum(1 for one in added.photos if one.faces)
    whole = (
        f"{counted(n_photos, 'photo')}, {counted(album.n_images, 'face')}, "
        f"{counted(album.n_identities, 'person', 'people')}; {counted(alone, 'face')} seen once."
    )
    lines = [whole] if added.changes is None else [_describe_new(added), f"In all: {whole}"]
    if added.changes is None and not added.n_photos:
        lines = ["No photo is new.", *lines]
    if added.compared.renamed:
        lines.append(f"{counted(len(added.compared.renamed), 'photo')} moved or renamed; the album follows.")
    if added.compared.gone:
        gone = [one for one in added.photos if one.status == "gone"]
        faces = counted(sum(one.faces for one in gone), "face")
        lines.append(
            f"{counted(len(gone), 'photo')} gone from the folder; {faces} stay in the album. To remove: "
            f"cdp forget {out} --gone"
        )
    lines.append(how_sure(read_measured(album.scored_place).results))
    words = left_out_in_words(added.photos, added.n_thumbnails)
    lines.append(f"Left out: {words or 'nothing'}. The list: {out / 'faces' / 'photos.csv'}")
    return lines


def _describe_new(added: AddedPhotos) -> str:
    """Say whom new faces joined: `12 new photos, 15 faces: 9 joined Colin Powell, 3 new people.`."""
    names = added.collection.names
    most = sorted(added.joined.items(), key=lambda it: (-it[1], it[0]))
    parts = [f"{count:,} joined {names.get(one, f'person {one}')}" for one, count in most[:_NAMED]]
    if rest := most[_NAMED:]:
        faces = sum(count for _, count in rest)
        parts.append(f"{faces:,} joined {counted(len(rest), 'other person', 'other people')}")
    assert added.changes is not None
    parts.append(counted(added.changes.founded, "new person", "new people"))
    return f"{counted(added.n_photos, 'new photo')}, {counted(added.n_faces, 'face')}: {', '.join(parts)}."


def how_sure(results: Results) -> str:
    """Say what precision and recall to expect."""
    expected, estimate = results.expected, results.unsupervised
    if expected is not None and expected.precision.value is not None:
        wrong, missed = 1 - expected.precision.value, 1 - (expected.recall.value or 0)
        source = f"measured on {counted(expected.identities, 'labeled person', 'labeled people')}"
    elif estimate is not None and estimate.precision is not None and estimate.curve:
        wrong = 1 - estimate.precision
        return f"Expected errors: about {wrong:.1%} of the pairs in groups (estimated without labels)."
    else:
        return "Expected errors: unknown without labels; check the groups."
    return f"Expected errors: about {wrong:.1%} of the pairs in groups, {missed:.1%} missed ({source})."

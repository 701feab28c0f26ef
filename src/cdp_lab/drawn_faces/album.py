"""Sets of drawn faces: as arrays, or as one zip file with a folder per identity."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from cdp.blocks import spans
from cdp.data.manifest_tables import Columns, write_csv
from cdp.errors import InputError
from cdp.runtime.parallel import map_blocks
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import writing_file
from cdp.types.arrays import AnyArray, ByteArray, LongArray
from cdp_lab.drawn_faces.moments import make_moments, spoil
from cdp_lab.drawn_faces.people import make_people, make_strangers
from cdp_lab.drawn_faces.portrait import draw_portraits
from cdp_lab.drawn_faces.roster import JUNK, Roster, check_rows, make_roster
from cdp_lab.face_settings import FaceSettings

_PICTURES_PER_BLOCK = 128
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class DrawnFaces:
    """Pictures and who is on them.

    Attributes:
        pixels: u1 (n, size, size, 3), as they come out of the compressed files.
        identities: i8 (n,), as the labels say.
        true_identities: i8 (n,), who it is; -1 = junk.
    """

    pixels: ByteArray
    identities: LongArray
    true_identities: LongArray


def draw_faces(settings: FaceSettings, rows: AnyArray | None = None, threads: int = 0) -> DrawnFaces:
    """Drawn faces as arrays.

    A picture depends on the seed, its person and its number there alone: not on threads, on the rows asked
    for or on how many others there are.

    Args:
        rows: which pictures of the set; all of them unless given.
    """
    whole = make_roster(settings)
    roster = whole.take(check_rows(rows, len(whole)))
    pixels = np.empty((len(roster), settings.size, settings.size, 3), np.uint8)
    row = 0
    for block in _encode_blocks(settings, roster, threads):
        for data in block:
            pixels[row] = np.asarray(Image.open(io.BytesIO(data)))
            row += 1
    return DrawnFaces(pixels, roster.people, roster.shown)


def write_faces(
    out: str | Path,
    settings: FaceSettings,
    *,
    threads: int = 0,
    progress: Progress = no_progress,
    force: bool = False,
) -> Path:
    """Write JPEGs into one zip file and the truth next to it; the same settings give the same bytes.

    `read_manifest(out)` reads it as it is: the folder inside is the identity as labeled. The names of folders
    hold the seed, so sets of different seeds share no person.

    Returns:
        The table of truth, `NAME.truth.csv` next to `NAME.zip`: path, identity, true_identity (empty = junk).
    """
    file = Path(out)
    if file.suffix.lower() != ".zip":
        raise InputError(
            f"{out}: drawn faces are written as one .zip file; choose this ending.",
            code="drawn-faces-ending-wrong",
            file=out,
        )
    truth = file.with_suffix(".truth.csv")
    roster = make_roster(settings)
    names = picture_names(settings, roster)
    with writing_file(truth, force=force) as partial_truth, writing_file(file, force=force) as partial:
        shown = [person_name(settings, one) if one != JUNK else "" for one in roster.shown.tolist()]
        columns: Columns = {
            "path": [f"{file.name}!{name}" for name in names],
            "identity": [name.partition("/")[0] for name in names],
            "true_identity": shown,
        }
        write_csv(partial_truth, columns)
        done = 0
        with zipfile.ZipFile(partial, "w") as archive:
            for block in _encode_blocks(settings, roster, threads):
                for name, data in zip(names[done : done + len(block)], block, strict=True):
                    archive.writestr(_entry(name), data)
                done += len(block)
                progress("pictures", done, len(roster))
    return truth


def person_name(settings: FaceSettings, person: int) -> str:
    """Return what a person's folder is called; no two seeds share a name."""
    return f"s{settings.seed}-{person:06d}"


def picture_names(settings: FaceSettings, roster: Roster) -> list[str]:
    """Return where the pictures are stored inside the archive."""
    return [
        f"{person_name(settings, person)}/{shot:05d}.jpg"
        for person, shot in zip(roster.people.tolist(), roster.shots.tolist(), strict=True)
    ]


def _entry(name: str) -> zipfile.ZipInfo:
    # JPEGs do not shrink further; the date and the system must not depend on when and where this runs.
    entry = zipfile.ZipInfo(name, _LONG_AGO)
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    return entry


def _encode_blocks(settings: FaceSettings, roster: Roster, threads: int) -> Iterator[list[bytes]]:
    def encode(span: tuple[int, int]) -> list[bytes]:
        block = roster.take(np.arange(*span))
        moments, pictures = _draw(settings, block)
        qualities = np.rint(moments["quality"]).astype(int).tolist()
        return [_jpeg(picture, quality) for picture, quality in zip(pictures, qualities, strict=True)]

    return map_blocks(encode, spans(len(roster), _PICTURES_PER_BLOCK), threads)


def _draw(settings: FaceSettings, block: Roster) -> tuple[AnyArray, ByteArray]:
    junk = np.flatnonzero(block.shown == JUNK)
    people, row_of = np.unique(np.where(block.shown == JUNK, block.people, block.shown), return_inverse=True)
    traits = make_people(settings, people)[row_of]
    traits[junk] = make_strangers(settings, block.people[junk], block.shots[junk])
    moments = make_moments(settings, block.people, block.shots, traits["skin"])
    moments[junk] = spoil(settings, moments[junk], block.people[junk], block.shots[junk])
    pictures = np.empty((len(block), settings.size, settings.size, 3), np.uint8)
    draw_portraits(traits, moments, pictures)
    return moments, pictures


def _jpeg(picture: ByteArray, quality: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=quality)
    return stream.getvalue()

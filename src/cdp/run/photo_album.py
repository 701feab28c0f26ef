"""From photos to people in one folder; a second run adds the photos that are new.

    album = add_photos(read_manifest("photos"), "models", "album")

album/faces-0001/    aligned faces of the photos of the first run, as `cdp align` writes them
album/views-0001/    their embeddings
album/people/        the collection of all faces, for `cdp review`, `cdp extend` and the others
album/labels.csv     who is on which photo
album/report.html    the groups with their pictures
album/faceless.csv   photos of runs that gave no face at all, so that they are not looked at again

A run counts once the collection has it; what a killed run left is gone on with by the next. The folder may be moved as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.collection.collection import Collection, open_collection
from cdp.collection.correction_tables import read_correction_table
from cdp.collection.corrections import Correction, append_corrections, read_journal
from cdp.collection.creation import create_collection
from cdp.collection.extension import extend
from cdp.collection.regrouping import regroup
from cdp.consensus.settings import ConsensusSettings
from cdp.data.manifest_tables import locations_from, read_some_columns, write_csv
from cdp.data.manifests import read_manifest
from cdp.errors import InputError
from cdp.faces.align_photos import DIFFERENT, DROPPED, FACES, NoFacesError, align_faces
from cdp.faces.align_settings import AlignSettings
from cdp.faces.detectors import Detector
from cdp.faces.face import Face
from cdp.files import replacing
from cdp.labeling.workspace import Workspace
from cdp.nets.embed_images import Embedder, embed_images
from cdp.nets.onnx_models import open_models
from cdp.run.album_outputs import LABELS, REPORT, write_album_report, write_album_table
from cdp.store import read_card
from cdp.types.manifest import Manifest

PEOPLE = "people"
NOT_EMBEDDINGS = ("1k3d68", "2d106det", "genderage")
"""Models of InsightFace's packs that lie beside the detector and the embedding model, and are neither."""

FACELESS = "faceless.csv"


@dataclass(frozen=True)
class AlbumModels:
    """Which files find faces, and which embed them, the base first; no detector where all photos are faces already."""

    detector: Path | None
    embedding: tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class Album:
    """An album after a run.

    Attributes:
        people: the collection.
        n_photos: how many photos were new.
        n_faces: how many faces these gave.
        n_apart: pairs of new faces that are on one photo, and so are two people.
        notes: sentences about what is out of the ordinary, and how sure the bar is.
    """

    people: Collection
    n_photos: int = 0
    n_faces: int = 0
    n_apart: int = 0
    notes: tuple[str, ...] = ()


def choose_models(
    folder: str | Path, *, detector: str | Path | None = None, base: str | None = None
) -> AlbumModels:
    """The models of a folder: a detector is known by its outputs, all others embed, in the order of their names.

    Args:
        folder: with .onnx files.
        detector: the detector, if not the one in the folder.
        base: name of the embedding model that is the base; the first unless given.

    Raises:
        InputError: there is no embedding model, none of the base's name, or more than one detector.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place}: no such folder; give the folder that holds your .onnx models.")
    files = sorted(one for one in place.iterdir() if one.suffix.lower() == ".onnx")
    files = [one for one in files if one.stem not in NOT_EMBEDDINGS]
    detectors = [one for one in files if _is_detector(one)]
    if detector is None and len(detectors) > 1:
        listed = " and ".join(map(str, detectors))
        raise InputError(f"{listed} are detectors; say which one to use by --detector FILE.")
    given = None if detector is None else Path(detector)
    models = [one for one in files if one not in detectors and (given is None or one != given)]
    if not models:
        raise InputError(
            f"{place}: holds no embedding model; put one there as .onnx (docs/photos.md names some)."
        )
    names = [one.stem for one in models]
    if base is not None and base not in names:
        raise InputError(
            f"--base {base}: no embedding model of {place} has this name; there are {', '.join(names)}."
        )
    models.sort(key=lambda one: (one.stem != base, one.name))
    return AlbumModels(given or (detectors[0] if detectors else None), tuple(models))


def add_photos(
    photos: Manifest,
    models: AlbumModels,
    out: str | Path,
    settings: AlignSettings | None = None,
    *,
    seed: int = 0,
    workspace: Workspace | None = None,
) -> Album:
    """The album at `out` with those photos that it does not have yet; it is made if it is not there.

    Photos are told by their paths. Nobody is known, so the bar is chosen without labels, and anew when the album has grown by half.

    Args:
        photos: all photos, or the new ones.
        models: as `choose_models` gives them; the same for all runs.
        out: folder of the album.
        settings: which faces are taken.
        seed: of everything random.
        workspace: engine and progress.

    Raises:
        InputError: `out` is something else, the models are others than before, or there are too few faces to begin.
    """
    place, work = Path(out), workspace or Workspace()
    people = _open(place)
    number = 1 if people is None else len(people.batches) + 1
    if people is not None:
        # A run that was killed between extending and this has it done now.
        people, _ = _keep_apart(people, _part(place, "faces", number - 1))
        seen = _photos_of(place, number)
        is_new = np.array([one not in seen for one in _full_paths(photos)])
        if not is_new.any():
            return _finish(place, Album(people))
        photos = photos.take(is_new)
    embedders = open_models(models.embedding, work.engine.device)
    if people is not None:
        _check_models(place, embedders)
    faces, views = _part(place, "faces", number), _part(place, "views", number)
    how: dict[str, Any] = {"threads": work.engine.threads, "force": True, "progress": work.progress}
    try:
        made = align_faces(photos, models.detector, faces, settings, device=work.engine.device, **how)
    except NoFacesError as error:
        if people is None:
            raise
        _remember_faceless(place, photos, error.dropped)
        return _finish(place, Album(people, len(photos)))
    if people is None:
        _check_number(len(made.faces), len(photos))
    notes = tuple(embed_images(made.manifest, embedders, views, **how).notes)
    if people is None:
        people, apart = _begin(place, seed, work)
        notes += people.parts.notes
    else:
        before = people.parts.notes
        people, apart = _grow(people, place, work)
        notes += people.parts.notes if people.parts.notes != before else ()
    return _finish(place, Album(people, len(photos), len(made.faces), len(apart), notes))


def _begin(place: Path, seed: int, work: Workspace) -> tuple[Collection, list[Correction]]:
    """A collection of the first batch, each face compared with as many as there are, and the pairs that are kept apart."""
    faces, views = _part(place, "faces", 1), _part(place, "views", 1)
    apart = _different_faces(faces, 0)
    settings = ConsensusSettings.of(k=min(ConsensusSettings.of().k, len(read_manifest(faces)) - 1))
    options: dict[str, Any] = {"settings": settings, "corrections": apart, "images": faces, "seed": seed}
    return create_collection(place / PEOPLE, views, **options, workspace=work), apart


def _grow(people: Collection, place: Path, work: Workspace) -> tuple[Collection, list[Correction]]:
    """The collection with the next batch, and the pairs of it that are kept apart."""
    number = len(people.batches) + 1
    faces, views = _part(place, "faces", number), _part(place, "views", number)
    people, _ = extend(people, views, images=faces, k=ConsensusSettings.of().k, workspace=work)
    return _keep_apart(people, faces)


def _finish(place: Path, album: Album) -> Album:
    """The table and the report, which follow the collection also where it was corrected since."""
    faces = [_part(place, "faces", number + 1) for number in range(len(album.people.batches))]
    n_photos = write_album_table(place, album.people, faces)
    write_album_report(place, album.people, n_photos)
    return album


def _is_detector(file: Path) -> bool:
    try:
        Detector(file, device="cpu")
    except InputError:  # whoever opens it as an embedding model says what is wrong with it
        return False
    return True


def _part(place: Path, name: str, number: int) -> Path:
    return place / f"{name}-{number:04d}"


def _open(place: Path) -> Collection | None:
    """The collection of an album; None where there is no album yet, or one that was not finished."""
    if (place / PEOPLE).exists():
        return open_collection(place / PEOPLE)
    if place.exists() and not place.is_dir():
        raise InputError(f"{place}: a file; an album is a folder, choose another name.")
    ours = (".", "faces-", "views-", REPORT, LABELS, FACELESS)
    foreign = (
        sorted(one.name for one in place.iterdir() if not one.name.startswith(ours)) if place.exists() else []
    )
    if foreign:
        raise InputError(f"{place} holds {foreign[0]} and so is no album; choose another name.")
    return None


def _check_number(n_faces: int, n_photos: int) -> None:
    if n_faces < 2:
        raise InputError(
            f"One face of {n_photos:,} photos is too few to begin an album with, because there is nobody to compare it with; give "
            "photos with two faces or more."
        )


def _full_paths(photos: Manifest) -> list[str]:
    root = os.path.realpath(photos.root)
    return [os.path.normpath(os.path.join(root, one)) for one in photos.locations]


def _photos_of(place: Path, number: int) -> set[str]:
    """Where the photos lie that faces were cut from before the run of this number, and those that gave none."""
    tables = [_part(place, "faces", one) / table for one in range(1, number) for table in (FACES, DROPPED)]
    tables += [place / FACELESS] if (place / FACELESS).is_file() else []
    found: set[str] = set()
    for table in tables:
        here = os.path.realpath(table.parent)
        photos = read_some_columns(table, lambda _file, _header: ["photo"])["photo"]
        found |= {os.path.normpath(os.path.join(here, str(one))) for one in photos}
    return found


def _remember_faceless(place: Path, photos: Manifest, dropped: Sequence[Face]) -> None:
    """Add photos that gave no face to the list of those."""
    where = locations_from(photos, place)
    rows = [(where[face.photo], face.reason) for face in dropped]
    if (place / FACELESS).is_file():
        before = read_some_columns(place / FACELESS, lambda _file, _header: ["photo", "reason"])
        rows = [*zip(before["photo"], before["reason"], strict=True), *rows]
    with replacing(place / FACELESS) as file:
        write_csv(file, {"photo": [one for one, _ in rows], "reason": [one for _, one in rows]})


def _check_models(place: Path, embedders: Sequence[Embedder]) -> None:
    """Refuse other models, or another base, than those of the first run."""
    card = read_card(_part(place, "views", 1), "Views")
    before = {name.removeprefix("network/"): it for name, it in card.made_from.items() if name != "manifest"}
    now = {one.name: one.checksum for one in embedders}
    base = str(card.settings["base"])
    if before != now or embedders[0].name != base:
        raise InputError(
            f"{place} was made with other models: {', '.join(before)}, base {base}; now they are {', '.join(now)}, base "
            f"{embedders[0].name}. Give the same files, or begin another album."
        )


def _different_faces(faces: Path, start: int) -> list[Correction]:
    """Pairs of faces that are on one photo, by their rows in the collection, where the folder's faces begin at `start`."""
    manifest = read_manifest(faces)
    pairs = read_correction_table(faces / DIFFERENT, len(manifest), manifest.locations)
    return [
        Correction(kind=one.kind, images=tuple(start + row for row in one.images), source="photo")
        for one in pairs
    ]


def _keep_apart(people: Collection, faces: Path) -> tuple[Collection, list[Correction]]:
    """The collection in which the faces of its last batch that are on one photo are two people, and what was new in this."""
    said = {one.images for one in read_journal(people.folder) if one.kind == "different"}
    start = people.n_images - people.batches[-1].facts.n_images
    new = [one for one in _different_faces(faces, start) if one.images not in said]
    if not new:
        return people, []
    append_corrections(people.folder, new)
    return regroup(people)[0], new

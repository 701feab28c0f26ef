"""From photos to people: a collection whose images are faces that were found on photos.

    models = open_photo_models("models")
    added = add_photos(scan_photos("photos"), models, "album")

album/faces/0001/              aligned faces of the photos that came first, as `cdp data align` writes them
album/faces/0001-embeddings/   their embeddings
album/faces/photos.csv         all photos that were looked at, what their bytes are and what became of them

Photos are told by their bytes: a copy is no new photo, a renamed one is the same. Photos count once the
collection has them; what a killed command left is continued by the next. The folder may be moved as a whole.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cdp.collection.collection import Collection, open_collection
from cdp.collection.collection_folder import KIND
from cdp.collection.collection_settings import GrowthSettings
from cdp.collection.correction_tables import read_correction_table
from cdp.collection.corrections import Correction
from cdp.collection.creation import Origin, label_into
from cdp.collection.extension import extend
from cdp.collection.numbering import Changes
from cdp.collection.outputs import write_outputs
from cdp.collection.reembedding import replace_embeddings
from cdp.data.manifests import read_manifest
from cdp.data.views import read_views
from cdp.errors import InputError
from cdp.faces.align_photos import NoFacesError, align_faces
from cdp.faces.align_settings import AlignSettings
from cdp.faces.face import NOT_READ, NOTHING_FOUND
from cdp.faces.face_regions import name_faces
from cdp.faces.face_tables import DIFFERENT, DROPPED, read_face_rows, rename_photos
from cdp.faces.photo_scan import PhotoScan, Stamp, stamp_photos
from cdp.faces.photo_table import (
    FACES,
    NO_FACE,
    UNREADABLE,
    Photo,
    PhotoChanges,
    compare_photos,
    read_photo_table,
    update_photos,
    write_photo_table,
)
from cdp.nets.embed_images import embed_images
from cdp.run.photo_models import PhotoModels, check_models
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.storage.artifacts import read_card, read_settings
from cdp.storage.files import artifact_kind, check_output, disk_errors, locked, put_in_place
from cdp.types.arrays import BoolArray
from cdp.types.manifest import Manifest


def align_settings_of(collection: Collection) -> AlignSettings:
    """Return which faces of photos were taken when a collection was made."""
    place = collection.batches[0].images
    if place is None or artifact_kind(place) != "Faces":
        return AlignSettings()
    return read_settings(place, read_card(place), AlignSettings)


@dataclass(frozen=True, eq=False)
class AddedPhotos:
    """A collection after photos came to it.

    Attributes:
        collection: as it is now.
        photos: all photos of the album.
        n_thumbnails: files in folders of thumbnails, which were passed over.
        n_photos: how many photos were new.
        n_faces: how many faces these gave.
        compared: what was new, renamed, copied or gone.
        joined: identity that was there before -> how many new faces it got.
        changes: what became of the identities; None if there were none before, or no photo was new.
        notes: sentences about what is out of the ordinary, and how sure the threshold is.
    """

    collection: Collection
    photos: tuple[Photo, ...]
    n_thumbnails: int
    n_photos: int
    n_faces: int
    compared: PhotoChanges
    joined: Mapping[int, int] = field(default_factory=dict)
    changes: Changes | None = None
    notes: tuple[str, ...] = ()


def add_photos(
    scan: PhotoScan,
    models: PhotoModels,
    out: str | Path,
    align: AlignSettings | None = None,
    settings: ConsensusSettings | None = None,
    *,
    growth: GrowthSettings | None = None,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> AddedPhotos:
    """Add those photos to the collection at `out` that it does not have yet; it is made if it is not there.

    The threshold is chosen without labels, and again when the collection has grown by half.

    Args:
        scan: all photos, or the new ones; identities are names of the people on photos with one face.
        models: as `open_photo_models` gives them; the same for all photos.
        out: folder of the collection.
        align: which faces are taken.
        settings: how faces are grouped, where the collection is made now.
        growth: when identities keep their numbers, where the collection is there.
        seed: of everything random.
        runtime: how it runs.

    Raises:
        InputError: `out` is something else, the models are others than before, or there are too few faces to
            begin.
    """
    place, runtime = Path(out), runtime or Runtime()
    before = _open(place)
    if before is not None:
        check_models(before, models.embedders)
    photos = read_photos(place, before)
    known = {one.path: one.stamp for one in photos}
    stamps = stamp_photos(scan, known, runtime.progress)
    compared = compare_photos(photos, scan, stamps)
    batch = _Batch(place, 1 if before is None else before.state.newest + 1)
    looked_at: dict[int, _Result] = {}
    if compared.new:
        looked_at = _find_faces(
            batch, scan, stamps, compared, models, align, runtime, is_first=before is None
        )
    n_faces = sum(one[1] for one in looked_at.values())
    if before is None:
        _check_number(n_faces, len(scan.photos))
        grown = _begin(batch, settings or ConsensusSettings.of(), models, seed, runtime)
    else:
        grown = _extend(batch, before, growth, runtime) if n_faces else (before, None, ())
    collection, changes, notes = grown
    now = update_photos(photos, compared, scan, stamps, looked_at)
    _write_photos(collection, photos, now, compared.renamed)
    joined = {} if before is None else _joined(before, collection)
    n_new = len(compared.new) - compared.again
    return AddedPhotos(
        collection, tuple(now), scan.n_thumbnails, n_new, n_faces, compared, joined, changes, notes
    )


def replace_album(
    scan: PhotoScan,
    models: PhotoModels,
    out: str | Path,
    align: AlignSettings | None = None,
    settings: ConsensusSettings | None = None,
    *,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> AddedPhotos:
    """Replace the collection at `out` by one of these photos, once the new one is complete.

    The new one is written next to it, where a killed command continues.

    Raises:
        InputError: as `add_photos`; the old collection is as it was.
    """
    target = Path(out).absolute()
    work = target.with_name(f".{target.name}.labeling")
    with disk_errors(out):
        if artifact_kind(work) == KIND:  # complete, but perhaps with other settings
            shutil.rmtree(work)
        try:
            added = add_photos(scan, models, work, align, settings, seed=seed, runtime=runtime)
        except InputError:
            shutil.rmtree(work, ignore_errors=True)
            raise
        with locked(target):  # by nobody who works there, such as cdp add
            check_output(out, force=True, kind=KIND)  # hours may have passed
            put_in_place(work, target, force=True)
    return replace(added, collection=open_collection(out))


def _joined(before: Collection, now: Collection) -> dict[int, int]:
    """Return how many new images came to every identity that was there before."""
    there = set(before.identity.tolist())
    new = Counter(now.identity[before.n_images :].tolist())
    return {one: count for one, count in sorted(new.items()) if one >= 0 and one in there}


def switch_models(
    collection: Collection, models: PhotoModels, *, runtime: Runtime | None = None
) -> tuple[Collection, Changes, tuple[str, ...]]:
    """Embed all faces of an album by other models, and group them again.

    Faces, boxes, names, corrections and numbers stay.

    Returns:
        The collection, what changed, and notes.

    Raises:
        InputError: the collection was not made from photos.
    """
    runtime, folders = runtime or Runtime(), faces_folders(collection)
    if len(folders) != len(collection.batches):
        raise InputError(
            f"{collection.folder} was not made from photos, so there are no faces to embed again.",
            code="collection-without-photos",
            folder=collection.folder,
        )
    batches = [_Batch(collection.folder, collection.state.newest + at) for at in range(1, len(folders) + 1)]
    for batch, faces in zip(batches, folders, strict=True):
        embed_images(_crops(faces), models.embedders, batch.views, force=True, runtime=runtime)
    made, changes = replace_embeddings(
        collection,
        [batch.views for batch in batches],
        models.where,
        reliable=_are_reliable(folders),
        runtime=runtime,
    )
    notes = tuple(note for batch in batches for note in _embedding_notes(batch))
    return made, changes, (*notes, *made.state.notes)


def _crops(faces: Path) -> Manifest:
    """Return the crops of a batch; who is on a photo is what people said, and no truth to measure by."""
    crops = read_manifest(faces)
    return Manifest(crops.locations, np.full(len(crops), -1), None, crops.root, crops.turns)


_RELIABLE_SIZE, _RELIABLE_POSE = 32, 0.8

_Result = tuple[str, int, str]
"""What became of a photo: status, number of faces, reason."""

_Grown = tuple[Collection, Changes | None, tuple[str, ...]]
"""A collection with new faces, what changed, and notes."""


@dataclass(frozen=True)
class _Batch:
    """Where a batch of an album is written."""

    album: Path
    number: int

    @property
    def faces(self) -> Path:
        """Crops and their tables."""
        return self.album / "faces" / f"{self.number:04d}"

    @property
    def views(self) -> Path:
        """Embeddings of the crops."""
        return self.album / "faces" / f"{self.number:04d}-embeddings"


def faces_folders(collection: Collection) -> list[Path]:
    """Folders of the crops and tables, batch by batch; only of batches that were made from photos."""
    places = [batch.images for batch in collection.batches]
    return [one for one in places if one is not None and artifact_kind(one) == "Faces"]


def read_photos(place: Path, collection: Collection | None) -> list[Photo]:
    """Read the photos of an album.

    A command that was killed after its faces were added, and before the table was written, left a table with
    them. A table of all photos that is damaged follows from those of the batches.
    """
    try:
        photos = read_photo_table(place / "faces")
    except InputError as error:
        warnings.warn(
            f"{error} It was restored; photos without a face will be processed again.", stacklevel=2
        )
        photos = []
    seen = {one.stamp.sha256 for one in photos}
    for folder in [] if collection is None else faces_folders(collection):
        photos += [one for one in read_photo_table(folder) if one.stamp.sha256 not in seen]
    return photos


def _find_faces(
    batch: _Batch,
    scan: PhotoScan,
    stamps: Sequence[Stamp],
    compared: PhotoChanges,
    models: PhotoModels,
    align: AlignSettings | None,
    runtime: Runtime,
    *,
    is_first: bool,
) -> dict[int, _Result]:
    """Find the faces of new photos, embed them, and say what became of every photo."""
    photos = scan.photos.take(np.array(compared.new))
    batch.faces.parent.mkdir(parents=True, exist_ok=True)
    contents = [stamps[row].sha256 for row in compared.new]
    how: dict[str, Any] = {"threads": runtime.settings.threads, "force": True, "progress": runtime.progress}
    try:
        align_faces(
            photos,
            models.detector,
            batch.faces,
            align,
            contents=contents,
            device=runtime.settings.device,
            **how,
        )
    except NoFacesError as error:
        if is_first:
            raise
        reasons = {face.photo: face.reason for face in error.dropped}
        return {row: _result(0, reasons.get(at, "")) for at, row in enumerate(compared.new)}
    found = _results(batch.faces, photos)
    looked_at = dict(zip(compared.new, found, strict=True))
    paths = scan.paths
    kept = [Photo(paths[row], *one, stamps[row]) for row, one in looked_at.items()]
    write_photo_table(batch.faces, kept)
    embed_images(_crops(batch.faces), models.embedders, batch.views, force=True, runtime=runtime)
    return looked_at


def _results(faces: Path, photos: Manifest) -> list[_Result]:
    """Return what became of every photo of a batch, from its tables."""
    counts = Counter(one.photo for one in read_face_rows(faces))
    reasons: dict[str, list[str]] = {}
    for one in read_face_rows(faces, DROPPED):
        reasons.setdefault(one.photo, []).append(one.reason)
    root = os.path.realpath(photos.root)
    paths = [os.path.normpath(os.path.join(root, one)) for one in photos.locations]
    return [_result(counts[path], *reasons.get(path, ())) for path in paths]


def _result(n_faces: int, *reasons: str) -> _Result:
    """Return what became of one photo: its faces, or why there is none."""
    if n_faces:
        return FACES, n_faces, ""
    reason = reasons[0] if reasons else NOTHING_FOUND
    if reason.startswith(NOT_READ):
        return UNREADABLE, 0, reason.removeprefix(NOT_READ)
    text = reason if len(reasons) < 2 else f"{len(reasons)} faces were left out; the first: {reason}"
    return NO_FACE, 0, text


def _begin(
    batch: _Batch, settings: ConsensusSettings, models: PhotoModels, seed: int, runtime: Runtime
) -> _Grown:
    """Make a collection of the first faces, each compared with as many as there are."""
    views = read_views(batch.views)
    settings = replace(settings, k=min(settings.k, views.n_images - 1))
    said, notes = _said_by_photos(batch.faces, 0)
    origin = Origin(
        batch.views,
        images=batch.faces,
        models=models.where,
        corrections=tuple(said),
        notes=_embedding_notes(batch),
        seed=seed,
    )
    label_into(batch.album, views, [], settings, origin, runtime, reliable=_are_reliable([batch.faces]))
    collection = open_collection(batch.album)
    write_outputs(collection)
    return collection, None, (*notes, *collection.state.notes)


def _extend(
    batch: _Batch,
    before: Collection,
    growth: GrowthSettings | None,
    runtime: Runtime,
) -> _Grown:
    """Add the faces of new photos to a collection."""
    said, tags = _said_by_photos(batch.faces, before.n_images)
    reliable = _are_reliable([*faces_folders(before), batch.faces])
    n_images = before.n_images + read_views(batch.views).n_images
    collection, changes = extend(
        before,
        batch.views,
        k=ConsensusSettings.of().k,
        growth=growth,
        corrections=said,
        images=batch.faces,
        reliable=reliable if len(reliable) == n_images else None,
        runtime=runtime,
    )
    notes = () if collection.state.notes == before.state.notes else collection.state.notes
    return collection, changes, (*tags, *_embedding_notes(batch), *notes)


def _are_reliable(folders: Sequence[Path]) -> BoolArray:
    """Return which faces are good enough to estimate the threshold on; tiny and cut ones are alike."""
    rows = [one for folder in folders for one in read_face_rows(folder)]
    # NaN, where a photo is an aligned face already, is not below anything.
    return np.array([not (one.size < _RELIABLE_SIZE or one.pose > _RELIABLE_POSE) for one in rows], np.bool_)


def _embedding_notes(batch: _Batch) -> tuple[str, ...]:
    return tuple(read_card(batch.views, "Views").settings.get("notes", ()))


def _write_photos(
    collection: Collection, before: Sequence[Photo], now: Sequence[Photo], renamed: Mapping[str, str]
) -> None:
    """Write the photo table if it changed, and use the new names of renamed photos everywhere."""
    if renamed:
        for folder in faces_folders(collection):
            rename_photos(folder, renamed)
    if list(now) != list(before):
        write_photo_table(collection.folder / "faces", now)
    if renamed:
        write_outputs(collection)


def _open(place: Path) -> Collection | None:
    """Open the collection in a folder; None where there is none yet, or one that was not finished."""
    if artifact_kind(place) == "Collection":
        return open_collection(place)
    if place.exists() and not place.is_dir():
        raise InputError(
            f"{place}: a file; a collection is a folder, choose another name.",
            code="output-is-a-file",
            file=place,
        )
    ours = ("faces", "embeddings", "scored", "groups", "events", "corrections.jsonl")
    found = [one.name for one in place.iterdir()] if place.exists() else []
    foreign = sorted(name for name in found if not name.startswith(".") and name not in ours)
    if foreign:
        raise InputError(
            f"{place} holds {foreign[0]} so it is not a collection; choose another name.",
            code="output-holds-other-things",
            folder=place,
            found=foreign[0],
        )
    return None


def _check_number(n_faces: int, n_photos: int) -> None:
    if n_faces < 2:
        raise InputError(
            f"There is only one face in {n_photos:,} photos; give photos with at least two faces.",
            code="photos-with-one-face",
            found=n_faces,
        )


def _said_by_photos(faces: Path, start: int) -> tuple[list[Correction], tuple[str, ...]]:
    """Turn names and photos of a batch into corrections by row, starting at `start`, with notes.

    Two faces of one photo are two people; a face whose person is known has a name. Of two names the last
    counts: what a face region says wins over the name of a folder.
    """
    manifest, found = read_manifest(faces), read_face_rows(faces)
    pairs = read_correction_table(faces / DIFFERENT, len(manifest), manifest.locations)
    said = [
        Correction(kind=one.kind, images=tuple(start + row for row in one.images), source="photo")
        for one in pairs
    ]
    folders = {
        row: str(identity) if manifest.names is None else manifest.names[identity]
        for row, identity in enumerate(manifest.identities.tolist())
        if identity >= 0
    }
    tagged = name_faces(found)
    photos = [one.photo for one in found]
    said += _named_faces(folders, photos, start, "photo") + _named_faces(tagged.names, photos, start, "xmp")
    return said, tuple(tagged.notes)


def _named_faces(
    names: Mapping[int, str], photos: Sequence[str], start: int, source: str
) -> list[Correction]:
    """Turn face names into corrections, one per name, or one per face if two on a photo share it."""
    on_photo = Counter((name, photos[row]) for row, name in names.items())
    people: dict[str, list[int]] = {}
    alone: list[tuple[str, int]] = []
    for row, name in names.items():
        if on_photo[name, photos[row]] > 1:
            alone.append((name, row))
        else:
            people.setdefault(name, []).append(row)
    entries = [*sorted(people.items()), *((name, [row]) for name, row in sorted(alone))]
    return [
        Correction(kind="name", name=name, images=tuple(start + row for row in rows), source=source)
        for name, rows in entries
    ]

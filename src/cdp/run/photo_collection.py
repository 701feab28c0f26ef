"""From photos to people: a collection whose images are faces that were found on photos.

    models = open_photo_models("models")
    added = add_photos(read_manifest("photos"), models, "album")

album/faces/0001/              aligned faces of the photos that came first, as `cdp data align` writes them
album/faces/0001-embeddings/   their embeddings
album/faces/faceless.csv       photos that gave no face at all, so that they are not looked at again

Photos count once the collection has them; what a killed command left is continued by the next. The folder may be moved as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cdp.collection.collection import Collection, open_collection
from cdp.collection.collection_settings import GrowthSettings
from cdp.collection.correction_tables import read_correction_table
from cdp.collection.corrections import Correction
from cdp.collection.creation import Origin, label_into
from cdp.collection.extension import extend
from cdp.collection.numbering import Changes
from cdp.collection.outputs import write_outputs
from cdp.data.manifest_tables import locations_from, read_some_columns, write_csv
from cdp.data.manifests import read_manifest
from cdp.data.views import read_views
from cdp.errors import InputError
from cdp.faces.align_photos import DIFFERENT, DROPPED, FACES, NoFacesError, align_faces
from cdp.faces.align_settings import AlignSettings
from cdp.faces.detectors import Detector
from cdp.faces.face import Face
from cdp.nets.embed_images import Embedder, embed_images
from cdp.nets.onnx_models import open_onnx_model
from cdp.nets.onnx_sessions import open_session
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.storage.artifacts import read_card, read_settings
from cdp.storage.files import artifact_kind, replacing
from cdp.types.manifest import Manifest

NOT_EMBEDDINGS = ("1k3d68", "2d106det", "genderage")
"""Models of InsightFace's packs that are stored next to the detector and the embedding model, and are neither."""

FACELESS = "faceless.csv"


@dataclass(frozen=True, eq=False)
class PhotoModels:
    """The model that finds faces, and those that embed them, the base first; no detector where all photos are faces already.

    Attributes:
        where: as text, for whoever adds photos later: the folder, and the detector's file if it is elsewhere.
    """

    detector: Detector | None
    embedders: tuple[Embedder, ...]
    where: str = ""


@dataclass(frozen=True)
class ModelPlace:
    """Where the models of a collection were found when it was made."""

    folder: Path
    detector: Path | None
    base: str | None


def models_of(collection: Collection) -> ModelPlace:
    """Where the models are that a collection was made with.

    Raises:
        InputError: it was not made from photos.
    """
    if not collection.state.models:
        raise InputError(
            f"{collection.folder} was not made from photos; add embeddings by the same models to it.",
            code="collection-without-photos",
            folder=collection.folder,
        )
    folder, _, detector = collection.state.models.partition("\n")
    base = str(read_card(collection.batches[0].source, "Views").settings["base"])
    return ModelPlace(Path(folder), Path(detector) if detector else None, base)


def align_settings_of(collection: Collection) -> AlignSettings:
    """Which faces of photos were taken when a collection was made."""
    place = place_of_faces(collection.folder, 1)
    return read_settings(place, read_card(place), AlignSettings) if place.is_dir() else AlignSettings()


@dataclass(frozen=True, eq=False)
class AddedPhotos:
    """A collection after photos came to it.

    Attributes:
        collection: as it is now.
        n_photos: how many photos were new.
        n_faces: how many faces these gave.
        n_apart: pairs of new faces that are on one photo, and so are two people.
        changes: what became of the identities; None if there were none before, or no photo was new.
        notes: sentences about what is out of the ordinary, and how sure the threshold is.
    """

    collection: Collection
    n_photos: int = 0
    n_faces: int = 0
    n_apart: int = 0
    changes: Changes | None = None
    notes: tuple[str, ...] = ()


def open_photo_models(
    folder: str | Path,
    *,
    detector: str | Path | None = None,
    base: str | None = None,
    device: str = "auto",
    detector_size: int = 640,
) -> PhotoModels:
    """The models of a folder, each opened once: a detector is known by its outputs, all others embed, in the order of their names.

    Args:
        folder: with .onnx files.
        detector: the detector, if not the one in the folder.
        base: name of the embedding model that is the base; the first unless given.
        device: where they compute.
        detector_size: pixels a side that photos are brought to, where the detector leaves it open.

    Raises:
        InputError: there is no embedding model, none of the base's name, or more than one detector.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(
            f"{place}: no such folder; give the folder that holds your .onnx models.",
            code="models-folder-missing",
            folder=place,
        )
    given = None if detector is None else Path(detector)
    found, embedders = _open_all(place, given, device, detector_size)
    if len(found) > 1:
        listed = " and ".join(map(str, found))
        raise InputError(
            f"{listed} are detectors; say which one to use by --detector FILE.",
            code="detectors-ambiguous",
            files=tuple(map(str, found)),
        )
    if not embedders:
        raise InputError(
            f"{place}: holds no embedding model; put one there as .onnx (docs/photos.md names some).",
            code="models-without-embedder",
            folder=place,
        )
    names = [one.name for one in embedders]
    if base is not None and base not in names:
        raise InputError(
            f"--base {base}: no embedding model of {place} has this name; there are {', '.join(names)}.",
            code="base-model-unknown",
            value=base,
            found=tuple(names),
        )
    embedders.sort(key=lambda one: one.name != base)
    where = "\n".join(os.path.realpath(one) for one in (place, given) if one is not None)
    return PhotoModels(next(iter(found.values()), None), tuple(embedders), where)


def _open_all(
    folder: Path, detector: Path | None, device: str, detector_size: int
) -> tuple[dict[Path, Detector], list[Embedder]]:
    """All detectors, or the one that is given, and all models that embed, of a folder."""
    found = {} if detector is None else {detector: Detector(detector, device=device, size=detector_size)}
    embedders: list[Embedder] = []
    for file in sorted(one for one in folder.iterdir() if one.suffix.lower() == ".onnx"):
        if file.stem in NOT_EMBEDDINGS or file == detector:
            continue
        session = open_session(file, device)
        try:
            opened = Detector(file, device=device, size=detector_size, session=session)
        except InputError:  # whoever opens it as an embedding model says what is wrong with it
            embedders.append(open_onnx_model(file, device, session))
        else:
            found |= {file: opened} if detector is None else {}
    return found, embedders


def add_photos(
    photos: Manifest,
    models: PhotoModels,
    out: str | Path,
    align: AlignSettings | None = None,
    settings: ConsensusSettings | None = None,
    *,
    growth: GrowthSettings | None = None,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> AddedPhotos:
    """The collection at `out` with those photos that it does not have yet; it is made if it is not there.

    Photos are identified by their paths. The threshold is chosen without labels, and again after growth by half.

    Args:
        photos: all photos, or the new ones.
        models: as `open_photo_models` gives them; the same for all photos.
        out: folder of the collection.
        align: which faces are taken.
        settings: how faces are grouped, where the collection is made now.
        growth: when identities keep their numbers, where the collection is there.
        seed: of everything random.
        runtime: how it runs.

    Raises:
        InputError: `out` is something else, the models are others than before, or there are too few faces to begin.
    """
    place, runtime = Path(out), runtime or Runtime()
    before = _open(place)
    if before is not None:
        _check_models(before, models.embedders)
        seen = _photos_of(place, len(before.batches))
        is_new = np.array([one not in seen for one in _full_paths(photos)])
        if not is_new.any():
            return AddedPhotos(before)
        photos = photos.take(is_new)
    index = 1 if before is None else len(before.batches) + 1
    faces, views = (place_of_faces(place, index, ending) for ending in ("", "-embeddings"))
    faces.parent.mkdir(parents=True, exist_ok=True)
    how: dict[str, Any] = {"threads": runtime.settings.threads, "force": True, "progress": runtime.progress}
    try:
        made = align_faces(photos, models.detector, faces, align, device=runtime.settings.device, **how)
    except NoFacesError as error:
        if before is None:
            raise
        _remember_faceless(place, photos, error.dropped)
        return AddedPhotos(before, len(photos))
    _check_number(before, len(made.faces), len(photos))
    notes = tuple(embed_images(made.manifest, models.embedders, views, **how).notes)
    apart = _different_faces(faces, 0 if before is None else before.n_images)
    changes: Changes | None = None
    if before is None:
        collection = _begin(place, settings or ConsensusSettings.of(), models, apart, seed, runtime)
        notes += collection.state.notes
    else:
        k, more = ConsensusSettings.of().k, {"growth": growth, "corrections": apart, "images": faces}
        collection, changes = extend(before, views, k=k, runtime=runtime, **more)  # type: ignore[arg-type]
        notes += () if collection.state.notes == before.state.notes else collection.state.notes
    return AddedPhotos(collection, len(photos), len(made.faces), len(apart), changes, notes)


def _begin(
    place: Path,
    settings: ConsensusSettings,
    models: PhotoModels,
    apart: Sequence[Correction],
    seed: int,
    runtime: Runtime,
) -> Collection:
    """A collection of the first faces, each compared with as many as there are."""
    faces, source = place_of_faces(place, 1), place_of_faces(place, 1, "-embeddings")
    views = read_views(source)
    settings = replace(settings, k=min(settings.k, views.n_images - 1))
    origin = Origin(source, images=faces, models=models.where, corrections=tuple(apart), seed=seed)
    label_into(place, views, [], settings, origin, runtime)
    collection = open_collection(place)
    write_outputs(collection)
    return collection


def place_of_faces(folder: Path, index: int, ending: str = "") -> Path:
    """Where the faces of a batch are stored, by its place among the batches, counted from 1."""
    return folder / "faces" / f"{index:04d}{ending}"


def _open(place: Path) -> Collection | None:
    """The collection in a folder; None where there is none yet, or one that was not finished."""
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
            f"{place} holds {foreign[0]} and so is no collection; choose another name.",
            code="output-holds-other-things",
            folder=place,
            found=foreign[0],
        )
    return None


def _check_number(before: Collection | None, n_faces: int, n_photos: int) -> None:
    if before is None and n_faces < 2:
        raise InputError(
            f"One face of {n_photos:,} photos is too few to begin with, because there is nobody to compare it with; give "
            "photos with two faces or more.",
            code="photos-with-one-face",
            found=n_faces,
        )


def _full_paths(photos: Manifest) -> list[str]:
    root = os.path.realpath(photos.root)
    return [os.path.normpath(os.path.join(root, one)) for one in photos.locations]


def _photos_of(place: Path, n_batches: int) -> set[str]:
    """Where the photos are that the faces of all batches were cut from, and those that gave none."""
    tables = [place / "faces" / FACELESS]
    folders = [place_of_faces(place, index) for index in range(1, n_batches + 1)]
    tables += [folder / table for folder in folders for table in (FACES, DROPPED)]
    found: set[str] = set()
    for table in filter(Path.is_file, tables):
        here = os.path.realpath(table.parent)
        photos = read_some_columns(table, lambda _file, _header: ["photo"])["photo"]
        found |= {os.path.normpath(os.path.join(here, str(one))) for one in photos}
    return found


def _remember_faceless(place: Path, photos: Manifest, dropped: Sequence[Face]) -> None:
    """Add photos that gave no face to the list of those."""
    table = place / "faces" / FACELESS
    where = locations_from(photos, table.parent)
    rows = [(where[face.photo], face.reason) for face in dropped]
    if table.is_file():
        before = read_some_columns(table, lambda _file, _header: ["photo", "reason"])
        rows = [*zip(before["photo"], before["reason"], strict=True), *rows]
    with replacing(table) as file:
        write_csv(file, {"photo": [one for one, _ in rows], "reason": [one for _, one in rows]})


def _check_models(collection: Collection, embedders: Sequence[Embedder]) -> None:
    """Refuse other models, or another base, than those that the collection was made with."""
    place = collection.folder
    first = collection.batches[0].source
    if not (place / "faces").is_dir() or not first.is_dir():
        raise InputError(
            f"{place} was not made from photos; add embeddings by the same models to it.",
            code="collection-without-photos",
            folder=place,
        )
    card = read_card(first, "Views")
    before = {name.removeprefix("network/"): it for name, it in card.made_from.items() if name != "manifest"}
    now = {one.name: one.checksum for one in embedders}
    base = str(card.settings["base"])
    if before != now or embedders[0].name != base:
        raise InputError(
            f"{place} was made with other models: {', '.join(before)}, base {base}; now they are {', '.join(now)}, base "
            f"{embedders[0].name}. Give the same files, or begin another collection.",
            code="photo-models-differ",
            expected=tuple(before),
            found=tuple(now),
        )


def _different_faces(faces: Path, start: int) -> list[Correction]:
    """Pairs of faces that are on one photo, by their rows in the collection, where the folder's faces begin at `start`."""
    manifest = read_manifest(faces)
    pairs = read_correction_table(faces / DIFFERENT, len(manifest), manifest.locations)
    return [
        Correction(kind=one.kind, images=tuple(start + row for row in one.images), source="photo")
        for one in pairs
    ]

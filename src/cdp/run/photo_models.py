"""The models of photos: a detector and one or more that embed faces, from a folder of ONNX files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdp.collection.collection import Collection
from cdp.errors import InputError
from cdp.faces.detectors import Detector
from cdp.nets.embed_images import Embedder
from cdp.nets.onnx_models import open_onnx_model
from cdp.nets.onnx_sessions import open_session
from cdp.storage.artifacts import read_card

NOT_EMBEDDINGS = ("1k3d68", "2d106det", "genderage")
"""Models of InsightFace's packs that are stored beside the detector and the embedding model, and are neither."""


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


def open_photo_models(
    folder: str | Path,
    *,
    detector: str | Path | None = None,
    base: str | None = None,
    device: str = "auto",
) -> PhotoModels:
    """The models of a folder, each opened once: a detector is known by its outputs, all others embed, in the order of their names.

    Args:
        folder: with .onnx files.
        detector: the detector, if not the one in the folder.
        base: name of the embedding model that is the base; the first unless given.
        device: where they compute.

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
    found, embedders = _open_all(place, given, device)
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
    folder: Path, detector: Path | None, device: str
) -> tuple[dict[Path, Detector], list[Embedder]]:
    """All detectors, or the one that is given, and all models that embed, of a folder."""
    found = {} if detector is None else {detector: Detector(detector, device=device)}
    embedders: list[Embedder] = []
    for file in sorted(one for one in folder.iterdir() if one.suffix.lower() == ".onnx"):
        if file.stem in NOT_EMBEDDINGS or file == detector:
            continue
        session = open_session(file, device)
        try:
            opened = Detector(file, device=device, session=session)
        except InputError:  # whoever opens it as an embedding model says what is wrong with it
            embedders.append(open_onnx_model(file, device, session))
        else:
            found |= {file: opened} if detector is None else {}
    return found, embedders


def check_models(collection: Collection, embedders: Sequence[Embedder]) -> None:
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
            f"{embedders[0].name}. Give the same files, or switch first: cdp regroup {place} --models FOLDER.",
            code="photo-models-differ",
            expected=tuple(before),
            found=tuple(now),
        )

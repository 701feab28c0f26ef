"""Models for photos: a detector and embedding models, from a folder of ONNX files or downloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cdp.collection.collection import Collection
from cdp.data.manifests import read_manifest
from cdp.errors import InputError
from cdp.faces.detectors import Detector
from cdp.nets import model_downloads
from cdp.nets.convention_trial import settle_conventions
from cdp.nets.embed_images import Embedder
from cdp.nets.onnx_inputs import CARD, KEYS, InputConventions
from cdp.nets.onnx_models import OnnxEmbedder, open_onnx_model
from cdp.nets.onnx_sessions import open_session
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.runtime import Runtime
from cdp.storage.artifacts import read_card
from cdp.storage.files import artifact_kind

NOT_EMBEDDINGS = ("1k3d68", "2d106det", "genderage")
"""Models of InsightFace's packs that are stored next to the detector and the embedding model, and are
neither."""
DOWNLOADED = "downloaded"
"""What a collection remembers instead of a folder, where its models were downloaded."""
_NOT_ABOUT_THE_FILE = "onnx-cuda-missing"


@dataclass(frozen=True, eq=False)
class PhotoModels:
    """The detector and the embedding models, base first; no detector for face crops.

    Attributes:
        where: as text, for whoever adds photos later: the folder, and the detector's file if it is elsewhere.
        notes: which files were left out and why, and which model is the base, a sentence each.
        licenses: what was downloaded now, and under which license, a sentence each.
    """

    detector: Detector | None
    embedders: tuple[Embedder, ...]
    where: str = ""
    notes: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelPlace:
    """Where the models of a collection were found when it was made, and what they were.

    Attributes:
        folder: of the models; None = they were downloaded.
        detector: its file, if it was not in the folder.
        base: name of the base.
        checksums: of the embedding models, by name.
        detector_checksum: of the detector; `none` = there was none.
        inputs: how the embedding models were given their images, by name.
    """

    folder: Path | None
    detector: Path | None
    base: str | None
    checksums: Mapping[str, str] = field(default_factory=dict)
    detector_checksum: str = "none"
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_published(self) -> bool:
        """Whether these are the models that are downloaded where none are given."""
        embedder, detector = model_downloads.EMBEDDER, model_downloads.DETECTOR
        return self.checksums == {Path(embedder.file).stem: f"sha256 {embedder.sha256}"} and (
            self.detector_checksum in ("none", f"sha256 {detector.sha256}")
        )

    @property
    def found(self) -> Path | None:
        """Return the model folder; None = the downloaded models, also in place of a vanished folder."""
        if self.folder is not None and not self.folder.is_dir() and self.is_published:
            return None
        return self.folder

    @property
    def detector_found(self) -> Path | None:
        """The detector's file; None where the downloaded one, or that of the folder, takes its place."""
        is_gone = self.detector is not None and not self.detector.is_file()
        return None if is_gone and self.found is None and self.is_published else self.detector


def models_of(collection: Collection) -> ModelPlace:
    """Return where the models are that a collection was made with.

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
    first = collection.batches[0]
    card = read_card(first.source, "Views")
    faces = first.images if first.images is not None and artifact_kind(first.images) == "Faces" else None
    return ModelPlace(
        None if folder == DOWNLOADED else Path(folder),
        Path(detector) if detector else None,
        str(card.settings["base"]),
        _checksums(card.made_from),
        "none" if faces is None else read_card(faces).made_from.get("detector", "none"),
        card.settings.get("inputs", {}),
    )


def _checksums(made_from: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("network/"): it for name, it in made_from.items() if name != "manifest"}


@dataclass(frozen=True)
class _Options:
    """How models are opened."""

    device: str
    needs_detector: bool
    before: ModelPlace | None


def open_photo_models(
    folder: str | Path | None = None,
    *,
    detector: str | Path | None = None,
    base: str | None = None,
    device: str = "auto",
    needs_detector: bool = False,
    before: ModelPlace | None = None,
    progress: Progress = no_progress,
) -> PhotoModels:
    """Open each model of a folder once: the detector is recognized by its outputs, the others embed.

    A file that cannot be used is left out, and a note says why.

    Args:
        folder: with .onnx files; None = the published models, which are downloaded once.
        detector: the detector, if not the one in the folder.
        base: name of the embedding model that is the base; the first unless given.
        device: where they compute.
        needs_detector: refuse a folder without one; of published models, download it too.
        before: what the collection was made with, if photos are added to one: images are given to models as
            they were then.
        progress: called with how many bytes are downloaded.

    Raises:
        InputError: there is no embedding model, none of the base's name, or more than one detector.
    """
    given = None if detector is None else Path(detector)
    options = _Options(device, needs_detector, before)
    found, licenses = (
        _fetch(given, options, progress)
        if folder is None
        else (_open_folder(Path(folder), given, options), ())
    )
    _check_found(found, options)
    names = [one.name for one in found.embedders]
    # Of a collection that is there, `check_models` names all that differs.
    if base is not None and base not in names and before is None:
        found.refuse_left_out([base])
        raise InputError(
            f"--base {base}: no embedding model of {found.place} has this name; there are "
            f"{', '.join(names)}.",
            code="base-model-unknown",
            value=base,
            found=tuple(names),
        )
    embedders = sorted(found.embedders, key=lambda one: one.name != base)
    notes = [f"Left out: {error}" for error in found.left_out.values()]
    if len(embedders) > 1 and base is None:
        notes.append(
            f"{names[0]} is the base, the first by name of {', '.join(names)}; --base NAME sets another."
        )
    where = [DOWNLOADED if folder is None else os.path.realpath(folder)]
    where += [] if given is None else [os.path.realpath(given)]
    return PhotoModels(
        next(iter(found.detectors.values()), None), tuple(embedders), "\n".join(where), tuple(notes), licenses
    )


@dataclass(frozen=True)
class _Found:
    """What the files of a folder are.

    Attributes:
        left_out: file -> why it cannot be used.
    """

    place: Path
    detectors: dict[Path, Detector] = field(default_factory=dict)
    embedders: list[OnnxEmbedder] = field(default_factory=list)
    left_out: dict[Path, InputError] = field(default_factory=dict)

    @property
    def reasons(self) -> str:
        """Why files were left out, to be put at the end of a sentence."""
        return "".join(f" Left out: {error}" for error in self.left_out.values())

    def refuse_left_out(self, names: Sequence[str]) -> None:
        """Say what is wrong with a model that is needed."""
        for file, error in self.left_out.items():
            if file.stem in names:
                raise error


def _fetch(detector: Path | None, options: _Options, progress: Progress) -> tuple[_Found, tuple[str, ...]]:
    """Return the published models, downloaded if they are not there."""
    wanted = [model_downloads.EMBEDDER]
    if options.needs_detector and detector is None:
        wanted.append(model_downloads.DETECTOR)
    fetched = model_downloads.fetch_models(wanted, progress=progress)
    file = detector or (fetched.files[1] if len(fetched.files) > 1 else None)
    found = _Found(fetched.files[0].parent)
    if file is not None:
        found.detectors[file] = Detector(file, device=options.device)
    found.embedders.append(_as_before(open_onnx_model(fetched.files[0], options.device), options.before))
    return found, fetched.notes


def _open_folder(place: Path, detector: Path | None, options: _Options) -> _Found:
    """Return all detectors, or the one that is given, and all models that embed, of a folder."""
    if not place.is_dir():
        raise InputError(
            f"{place}: no such folder; give the folder that holds your .onnx models.",
            code="models-folder-missing",
            folder=place,
        )
    found = _Found(place)
    if detector is not None:
        found.detectors[detector] = Detector(detector, device=options.device)
    for file in sorted(one for one in place.iterdir() if one.suffix.lower() == ".onnx"):
        if file.stem in NOT_EMBEDDINGS or file == detector:
            continue
        try:
            opened = _open_file(file, options)
        except InputError as error:
            # Whoever wrote a card for a model wants that model.
            if error.code == _NOT_ABOUT_THE_FILE or file.with_suffix(".toml").is_file():
                raise
            found.left_out[file] = error
            continue
        if isinstance(opened, OnnxEmbedder):
            found.embedders.append(_as_before(opened, options.before))
        elif detector is None:
            found.detectors[file] = opened
    return found


def _open_file(file: Path, options: _Options) -> Detector | OnnxEmbedder:
    session = open_session(file, options.device)
    try:
        return Detector(file, device=options.device, session=session)
    except InputError as error:
        if error.code == "detector-without-landmarks":
            raise
    return open_onnx_model(file, options.device, session)


def _as_before(opened: OnnxEmbedder, before: ModelPlace | None) -> OnnxEmbedder:
    """Return a model that is given its images as it was when the collection was made.

    Raises:
        InputError: its card says otherwise.
    """
    if before is None or opened.name not in before.inputs:
        return opened
    then, now = InputConventions.from_plain(before.inputs[opened.name]), opened.model.conventions
    changed = [key for key in KEYS if getattr(then, key) != getattr(now, key)]
    if any(now.known_from[key] == CARD for key in changed):
        card = opened.model.path.with_suffix(".toml")
        raise InputError(
            f"{card}: {now.in_words}, but the collection was made with {then.in_words}; correct or "
            "remove the card, or create a new collection.",
            code="photo-model-inputs-differ",
            file=card,
            keys=tuple(changed),
        )
    return opened.with_conventions(then.kept())


def _check_found(found: _Found, options: _Options) -> None:
    """Refuse a folder without what is needed, or with too much of it."""
    if len(found.detectors) > 1:
        listed = ", ".join(map(str, found.detectors))
        raise InputError(
            f"Several detectors: {listed}; choose one with --detector FILE.",
            code="detectors-ambiguous",
            files=tuple(map(str, found.detectors)),
        )
    if options.before is not None:
        found.refuse_left_out(list(options.before.checksums))
    if not found.embedders:
        raise InputError(
            f"{found.place}: no usable embedding model; add one as .onnx (docs/photos.md lists some), or "
            f"omit --models.{found.reasons}",
            code="models-without-embedder",
            folder=found.place,
            left_out=tuple(error.code for error in found.left_out.values()),
        )
    if options.needs_detector and not found.detectors:
        raise InputError(
            f"{found.place}: no usable face detector; give --detector FILE.onnx, or --ready all if the "
            f"photos are aligned faces.{found.reasons}",
            code="detector-missing",
            option="--detector",
            left_out=tuple(error.code for error in found.left_out.values()),
        )


def settle_models(
    models: PhotoModels, faces: Sequence[Path], *, runtime: Runtime | None = None
) -> PhotoModels:
    """Models that are given all faces of a collection in one way: what is open is tried on the largest batch.

    Args:
        models: as `open_photo_models` gives them.
        faces: folders of crops, one per batch.
        runtime: how it runs.
    """
    crops = max((read_manifest(folder) for folder in faces), key=len)
    settled = [
        settle_conventions(one, crops, runtime=runtime) if isinstance(one, OnnxEmbedder) else one
        for one in models.embedders
    ]
    return replace(models, embedders=tuple(settled))


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
    before = _checksums(card.made_from)
    now = {one.name: one.checksum for one in embedders}
    base = str(card.settings["base"])
    if before != now or embedders[0].name != base:
        raise InputError(
            f"{place} was made with {', '.join(before)} (base {base}), not {', '.join(now)} (base "
            f"{embedders[0].name}); give the same models, or switch with cdp regroup {place} --models "
            "FOLDER.",
            code="photo-models-differ",
            expected=tuple(before),
            found=tuple(now),
        )

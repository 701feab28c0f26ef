"""Alignment of photos: a manifest of crops with boxes, dropped faces, and cannot-link pairs."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cdp.blocks import spans
from cdp.data.images import ImageReader, open_images
from cdp.errors import InputError
from cdp.faces.align_log import AlignLog, open_log
from cdp.faces.align_settings import AlignSettings
from cdp.faces.alignment import CROP_SIZE, crop_face, similarity_transform
from cdp.faces.detectors import Detector
from cdp.faces.face import NOT_READ, NOTHING_FOUND, Face
from cdp.faces.face_tables import write_face_tables
from cdp.faces.quality import face_size, head_pose, sharpness
from cdp.nets.pixels import stream_blocks
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.artifacts import write_card
from cdp.storage.files import check_output, disk_errors, flush_files, put_in_place, refuse_link, sweep
from cdp.storage.hashes import hash_values
from cdp.types.arrays import AnyArray, ByteArray, LongArray, read_only
from cdp.types.manifest import Manifest

KIND = "Faces"
_WEAKEST = 0.3
_BLOCK = 16


@dataclass(frozen=True, eq=False)
class AlignedFaces:
    """The faces of a manifest's photos.

    Attributes:
        manifest: the crops, 112 x 112; identities are those of photos with one face, -1 in photos with
            several.
        faces: the same rows with boxes, landmarks and measures.
        dropped: faces that were left out, photos without a face, and photos that cannot be read.
        different: int64 (m, 2), pairs of rows that are two people, because they are on one photo.
        photos: where the photos lie, by row.
    """

    manifest: Manifest
    faces: tuple[Face, ...]
    dropped: tuple[Face, ...]
    different: LongArray
    photos: tuple[str, ...] = field(repr=False, default=())


CROP_BYTES = 20_000
"""Typical size of a crop, 112 x 112 pixels as PNG."""


class NoFacesError(InputError):
    """Not one of the photos has a face that is taken; `dropped` says why, photo by photo."""

    def __init__(self, dropped: Sequence[Face], n_photos: int) -> None:
        super().__init__(
            f"None of {n_photos:,} photos has a face that is taken (the first: {dropped[0].reason}); lower "
            "--min-score or --min-face, or say --ready all if they are aligned faces already.",
            code="faces-missing",
            photos=n_photos,
            reason=dropped[0].reason,
        )
        self.dropped = tuple(dropped)


def align_faces(
    photos: Manifest,
    detector: str | Path | Detector | None,
    out: str | Path,
    settings: AlignSettings | None = None,
    *,
    contents: Sequence[str] = (),
    threads: int = 0,
    device: str = "auto",
    force: bool = False,
    inputs: Iterable[str | Path | None] = (),
    progress: Progress = no_progress,
) -> AlignedFaces:
    """Align the faces of photos to the ArcFace template at 112 x 112, as a folder for `read_manifest`.

    Photos are turned as their EXIF note says. The folder holds `faces.csv` (path, identity, photo, box,
    landmarks, measures), `dropped.csv` (what was left out and why), `different.csv` (faces of one photo,
    which are two people) and the crops as PNG. A crop's name depends on its photo and its number there alone.
    What is half done is kept next to `out` and gone on with when the same command runs again.

    Args:
        photos: the photos, and who is on them where that is known.
        detector: an ONNX file of SCRFD, YuNet or RetinaFace; None where all photos are ready.
        out: folder to write.
        settings: which faces are taken.
        contents: hashes of the photos' bytes, if known; unfinished work on other bytes is discarded.
        threads: photos processed at once; 0 = all cores. The result does not depend on it.
        device: where the detector computes.
        force: replace faces that are at `out`.
        inputs: what else is read and is never replaced.
        progress: called with how many photos are done.

    Raises:
        InputError: the detector is of no known kind.
        NoFacesError: there is no face at all.
    """
    inputs = (None if isinstance(detector, Detector) else detector, *inputs)
    target = Path(out).absolute()
    sweep(target.parent, target.name)
    refuse_link(target, out)
    check_output(out, force=force, kind=KIND, inputs=inputs)
    opened, settings = _open(detector, device, settings or AlignSettings())
    work = target.with_name(f".{target.name}.aligning")
    with disk_errors(out, f"what is done is kept in {work}"):
        log = open_log(work, _key(photos, contents, opened, settings))
        found = _find_faces(
            _Work(open_images(photos), opened, work, settings), log, len(photos), threads, progress
        )
        if not any(face.path for face in found):
            shutil.rmtree(work)
            raise NoFacesError(found, len(photos))
        made = _collect(photos, found, out, settings.min_score or 0.0)
        write_face_tables(made.manifest, made.faces, made.dropped, made.different, photos, work, Path(out))
        _write_card(made, photos, opened, settings, work)
        log.close()
        flush_files(work)
        if force:  # hours may have passed
            check_output(out, force=force, kind=KIND, inputs=inputs)
        put_in_place(work, target, force=force)
    return made


def _find_faces(work: _Work, log: AlignLog, n_photos: int, threads: int, progress: Progress) -> list[Face]:
    """Yield the faces of all photos in order: from the log, or found and logged block by block."""
    blocks = [span for span in spans(n_photos, _BLOCK) if span[0] not in log.done]
    n_done = n_photos - sum(stop - start for start, stop in blocks)
    with closing(stream_blocks(blocks, work.faces_of_block, threads, work.stop)) as stream:
        for start, faces in stream:
            log.done[start] = faces
            log.append(start, faces)
            n_done += min(_BLOCK, n_photos - start)
            progress("photos", n_done, n_photos)
    return [face for start in sorted(log.done) for face in log.done[start]]


def _key(
    photos: Manifest, contents: Sequence[str], detector: Detector | None, settings: AlignSettings
) -> str:
    """Hash everything the faces depend on; without `contents`, changed bytes go unnoticed."""
    checksum = "none" if detector is None else detector.checksum
    return hash_values(
        photos.digest, list(contents), os.path.realpath(photos.root), checksum, asdict(settings), _BLOCK
    )


def _open(
    detector: str | Path | Detector | None, device: str, settings: AlignSettings
) -> tuple[Detector | None, AlignSettings]:
    """Open the detector, and take its least score where none is given."""
    if detector is None and settings.ready != "all":
        raise InputError(
            "No face detector: give --detector FILE.onnx, or --ready all if the photos are aligned faces.",
            code="detector-missing",
            option="--detector",
        )
    opened = detector if isinstance(detector, Detector | None) else Detector(detector, device=device)
    if settings.min_score is None:
        settings = replace(settings, min_score=0.0 if opened is None else opened.kind.min_score)
    return opened, settings


@dataclass(frozen=True)
class _Work:
    """What every photo is worked on with."""

    reader: ImageReader
    detector: Detector | None
    folder: Path
    settings: AlignSettings

    def stop(self) -> bool:
        """End what other threads compute, soon; whether there is anything."""
        return self.detector is not None and self.detector.stop()

    def faces_of_block(self, start: int, stop: int) -> list[Face]:
        """Return the faces of some photos, in order."""
        return [face for row in range(start, stop) for face in self.faces_of(row)]

    def faces_of(self, row: int) -> list[Face]:
        """Return the faces of one photo, the dropped ones among them; the crops are written."""
        try:
            photo = self.reader.image(row)
        except InputError as error:
            reason = str(error).removeprefix(f"{self.reader.manifest.describe(row)}: ")
            return [Face(row, reason=NOT_READ + reason)]
        is_crop = photo.shape[:2] == (CROP_SIZE, CROP_SIZE)
        if (
            self.detector is None
            or self.settings.ready == "all"
            or (self.settings.ready == "auto" and is_crop)
        ):
            height, width = photo.shape[:2]
            box = (0.0, 0.0, float(width), float(height))
            size = float(min(width, height))
            return [Face(row, box, size=size, sharpness=sharpness(photo), path=self._save(row, 0, photo))]
        least = min(_WEAKEST, self.settings.min_score or 0.0)
        found = self.detector.detect(
            photo,
            least=least,
            overlap=self.settings.overlap,
            min_face=self.settings.min_face,
            longest=self.settings.detector_size,
        )
        # From left to right: the number of a face in its photo does not depend on small changes of its score.
        order = np.lexsort((found.boxes[:, 1], found.boxes[:, 0]))
        faces = [
            self._face(row, number, photo, found.boxes[at], found.landmarks[at], float(found.scores[at]))
            for number, at in enumerate(order.tolist())
        ]
        return faces or [Face(row, reason=NOTHING_FOUND)]

    def _face(
        self, row: int, number: int, photo: ByteArray, box: AnyArray, landmarks: AnyArray, score: float
    ) -> Face:
        transform = similarity_transform(landmarks)
        measures: dict[str, Any] = {
            "box": tuple(float(side) for side in box),
            "landmarks": landmarks,
            "score": score,
            "size": face_size(box),
            "pose": head_pose(landmarks),
        }
        if not np.isfinite(transform).all() or abs(np.linalg.det(transform[:, :2])) < 1e-9:
            return Face(row, **measures, reason="its landmarks lie in one point")
        crop = crop_face(photo, transform)
        measures["sharpness"] = sharpness(crop)
        reason = why_dropped(measures, self.settings)
        return Face(row, **measures, reason=reason, path="" if reason else self._save(row, number, crop))

    def _save(self, row: int, number: int, crop: ByteArray) -> str:
        from PIL import Image

        name = hashlib.sha256(self.reader.manifest.locations[row].encode()).hexdigest()[:20]
        path = Path("crops") / name[:2] / f"{name[2:]}-{number}.png"
        (self.folder / path.parent).mkdir(parents=True, exist_ok=True)
        Image.fromarray(crop).save(self.folder / path, compress_level=1)
        return path.as_posix()


def why_dropped(measures: dict[str, Any], settings: AlignSettings) -> str:
    """Return the first measure of a face that is not good enough, as a sentence; empty if all are."""
    for name, bound, is_least in (
        ("score", settings.min_score or 0.0, True),
        ("size", settings.min_face, True),
        ("pose", settings.max_pose, False),
        ("sharpness", settings.min_sharpness, True),
    ):
        value = measures[name]
        if (value < bound) if is_least else (value > bound):
            return f"{name} {value:.3g} is {'below' if is_least else 'above'} {bound:g}"
    return ""


def _collect(photos: Manifest, found: Sequence[Face], folder: str | Path, least: float) -> AlignedFaces:
    faces = tuple(face for face in found if face.path)
    dropped = tuple(face for face in found if not face.path)
    rows = np.array([face.photo for face in faces], np.int64)
    # A face too small or too blurred to be taken may still be the one that the photo's identity means.
    seen = [face.photo for face in found if face.path or face.score >= least]
    n_faces = np.bincount(seen, minlength=len(photos))
    identities = np.where(n_faces[rows] == 1, photos.identities[rows], -1)
    manifest = Manifest(tuple(face.path for face in faces), identities, photos.names, str(folder))
    ends = np.flatnonzero(np.diff(rows, prepend=-1, append=-1))
    pairs = [pair for start, stop in pairwise(ends) for pair in combinations(range(start, stop), 2)]
    different = read_only(np.array(pairs, np.int64).reshape(-1, 2), np.int64)
    return AlignedFaces(manifest, faces, dropped, different, photos.locations)


def _write_card(
    made: AlignedFaces, photos: Manifest, detector: Detector | None, settings: AlignSettings, folder: Path
) -> None:
    n_dropped = len(made.dropped)
    name, checksum = (detector.kind.name, detector.checksum) if detector else ("none", "none")
    write_card(
        folder,
        KIND,
        f"Faces: {len(made.faces):,} of {len(photos):,} photos, {n_dropped:,} left out, detector: {name}",
        {**asdict(settings), "detector": name},
        {"photos": photos.digest, "detector": checksum},
    )

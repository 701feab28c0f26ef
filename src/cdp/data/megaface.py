"""The MegaFace devkit's files: lists, feature files, lists of noisy images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.data.image_names import ending_parts, name_some, repeated
from cdp.errors import InputError
from cdp.storage.array_files import naming, read_bytes, read_lines, reading
from cdp.types import Embeddings
from cdp.types.arrays import BoolArray, FloatArray

# An OpenCV matrix of one column: rows, columns, bytes per value, and 5 for float32.
_HEADER_INTS = 4
_HEADER_BYTES = 4 * _HEADER_INTS


@dataclass(frozen=True)
class ProbeList:
    """Probes by path, with the name of the identity each shows."""

    paths: tuple[str, ...]
    identities: tuple[str, ...]


def read_probe_list(file: str | Path) -> ProbeList:
    """Return the probe list, JSON `{"path": [...], "id": [...]}`."""
    paths, identities = _read_json_lists(Path(file), ("path", "id"))
    if len(paths) != len(identities):
        raise InputError(
            f"{file}: {len(paths):,} paths but {len(identities):,} ids; write one id per path.",
            code="megaface-ids-differ",
            file=file,
            expected=len(paths),
            found=len(identities),
        )
    return ProbeList(tuple(paths), tuple(identities))


def read_distractor_list(file: str | Path) -> tuple[str, ...]:
    """Return a distractor list, JSON `{"path": [...]}`."""
    return tuple(_read_json_lists(Path(file), ("path",))[0])


def _read_json_lists(file: Path, keys: Sequence[str]) -> list[list[str]]:
    """Return the lists of these names; the first of them holds every image once."""
    with reading(file):
        text = read_bytes(file)
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):  # ValueError: no JSON, no UTF-8, or a number of thousands of digits
        raise InputError(
            f"{file}: not JSON, or cut short; copy it again from the devkit.",
            code="megaface-not-json",
            file=file,
        ) from None
    lists = []
    for key in keys:
        values = content.get(key) if isinstance(content, dict) else None
        if not isinstance(values, list) or not values:
            raise InputError(
                f'{file}: holds no list "{key}"; a devkit list is {{"path": [...], "id": [...]}}.',
                code="megaface-list-missing",
                file=file,
                key=key,
            )
        if not all(isinstance(value, str | int) for value in values):
            raise InputError(
                f'{file}: "{key}" must hold names only.', code="megaface-list-not-names", file=file, key=key
            )
        lists.append([str(value) for value in values])
    if twice := repeated(lists[0]):
        raise InputError(
            f"{file}: {name_some(twice)} is listed twice; list every image once.",
            code="image-name-repeated",
            file=file,
            names=tuple(twice),
        )
    return lists


def read_noise_list(file: str | Path) -> frozenset[str]:
    """Read the names of a noise list: one per line, or in the second tab column; `#` is a comment."""
    names = set()
    for line in read_lines(Path(file)):
        if line.strip() and not line.lstrip().startswith("#"):
            columns = line.strip().split("\t")
            names.add(columns[1].strip() if len(columns) > 1 else columns[0])
    return frozenset(names)


def is_noisy(paths: Sequence[str], noise: frozenset[str]) -> BoolArray:
    """Return which images are on a noise list; a name there may be a whole path or any ending of it."""
    return np.array([any(ending in noise for ending in ending_parts(path)) for path in paths], bool)


def read_feature(file: str | Path) -> FloatArray:
    """Read one feature vector, float32 (D,): four int32 (D, 1, 4, 5), then D float32, little-endian."""
    with reading(Path(file)):
        content = read_bytes(Path(file))
    if len(content) < _HEADER_BYTES:
        raise InputError(
            f"{file}: {len(content)} bytes are too few for a feature file; write it again.",
            code="feature-too-short",
            file=file,
            found=len(content),
        )
    rows, columns, width, kind = (int(value) for value in np.frombuffer(content, "<i4", _HEADER_INTS))
    if (columns, width, kind) != (1, 4, 5) or rows < 1:
        raise InputError(
            f"{file}: the header says ({rows}, {columns}, {width}, {kind}); a feature file starts with "
            "(dimensions, 1, 4, 5).",
            code="feature-header-wrong",
            file=file,
            found=(rows, columns, width, kind),
        )
    if len(content) != _HEADER_BYTES + 4 * rows:
        raise InputError(
            f"{file}: {len(content):,} bytes for {rows} float32 values, {_HEADER_BYTES + 4 * rows:,} "
            "expected; copy or write it again.",
            code="feature-size-wrong",
            file=file,
            expected=_HEADER_BYTES + 4 * rows,
            found=len(content),
        )
    return np.frombuffer(content, "<f4", rows, _HEADER_BYTES)


def read_features(folder: str | Path, paths: Sequence[str], suffix: str = ".bin") -> Embeddings:
    """Return the feature vectors of some images, in the order of `paths`.

    Args:
        folder: where the feature files are stored, in the same tree as the images.
        paths: the images' paths as the devkit's lists give them.
        suffix: what the devkit appends to an image's path, e.g. `_mymodel.bin`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder of feature files; check the spelling of the path.",
            code="features-folder-missing",
            folder=folder,
        )
    if not paths:
        raise InputError(f"{folder}: the list of images is empty.", code="features-list-empty", folder=folder)
    vectors = np.empty((0, 0), np.float32)
    for row, path in enumerate(paths):
        file = folder / f"{path}{suffix}"
        if not file.exists():
            raise InputError(
                f"{file}: no such feature file; {_hint(file, Path(path).name)}",
                code="feature-missing",
                file=file,
            )
        vector = read_feature(file)
        if row == 0:
            vectors = np.empty((len(paths), len(vector)), np.float32)
        if len(vector) != vectors.shape[1]:
            raise InputError(
                f"{file}: {len(vector)} dimensions where {paths[0]} has {vectors.shape[1]}; embed all images "
                "with one network.",
                code="feature-dimensions-differ",
                file=file,
                expected=vectors.shape[1],
                found=len(vector),
            )
        vectors[row] = vector
    with naming(folder, folder=folder):
        return Embeddings(vectors)


def _hint(file: Path, image: str) -> str:
    siblings = file.parent.iterdir() if file.parent.is_dir() else ()
    similar = sorted(other.name for other in siblings if other.name.startswith(image))
    return f"next to it is {similar[0]}: is the suffix right?" if similar else "was this image embedded?"


def write_feature(file: str | Path, vector: FloatArray) -> None:
    """Write one feature vector as the devkit reads it."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    header = np.array([len(vector), 1, 4, 5], "<i4")
    file.write_bytes(header.tobytes() + np.asarray(vector, "<f4").tobytes())


def write_features(
    folder: str | Path, paths: Sequence[str], embeddings: Embeddings, suffix: str = ".bin"
) -> None:
    """Write one feature file per image, as given (not scaled), for the devkit or `read_features`."""
    if len(paths) != embeddings.n_images:
        raise InputError(
            f"{folder}: {len(paths):,} paths for {embeddings.n_images:,} images; one path per image.",
            code="features-paths-differ",
            folder=folder,
            expected=embeddings.n_images,
            found=len(paths),
        )
    for row, path in enumerate(paths):
        write_feature(Path(folder) / f"{path}{suffix}", embeddings.source[row])

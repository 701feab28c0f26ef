"""Embeddings with known identities, and albums drawn from them, for measuring labels without labels.

| source | where it is found |
|---|---|
| sface, mobilefacenet, openface, and the three together | embeddings of LFW in `data/lfw` (docs/data.md) |
| mobilefacenet_foamliu, faceplugin_fr_feature | the models of `../shared/models` on the photos of `data/lfw_photos` |
| omniglot | `benchmarks.data.OMNIGLOT_EMBEDDINGS` |
| drawn faces | a finished `cdp demo`: the folder that $CDP_DEMO names, else `demo` |
| blobs | `sklearn.datasets.make_blobs` |
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import make_blobs

from benchmarks.data import OMNIGLOT_EMBEDDINGS, data_folder
from cdp.types import Manifest
from cdp.types.arrays import FloatArray, LongArray

FACES = ("sface", "mobilefacenet", "openface")
DETECTOR = "face_detection_yunet_2023mar"
EMBEDDERS = ("mobilefacenet_foamliu", "faceplugin_fr_feature")

SIZES = (50, 200, 1000, 5000)
SINGLETONS = (0.0, 0.5, 0.9, 1.0)
MOST = (5, 20, None)
BLOB_DIMENSIONS = (8, 32, 128, 512)

SEED = int(os.environ.get("CDP_SEED", "2"))
"""Of all albums. The settings of `cdp.labeling.false_merges` were chosen with albums of seeds 0, 2, 3 and 4 in view, of the same sources."""


@dataclass(frozen=True, eq=False)
class Source:
    """Images as one model sees them, or several.

    Attributes:
        name: of the source.
        models: unit vectors (n, d) by model, base first.
        truth: int64 (n,), identities from 0.
        members: sources of the single models, if there are several.
    """

    name: str
    models: Mapping[str, FloatArray]
    truth: LongArray
    members: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Album:
    """Some images of a source.

    Attributes:
        size: number of images asked for; None = all.
        singletons: share of people with one image that was asked for; None = as the source has them.
        most: largest number of images per person; None = any.
        rows: int64 (m,), ascending.
    """

    size: int | None
    singletons: float | None
    most: int | None
    rows: LongArray

    @property
    def title(self) -> str:
        """A key for results."""
        size = "all" if self.size is None else f"{self.size}"
        singletons = "" if self.singletons is None else f", {self.singletons:.0%} singletons"
        return f"{size} images{singletons}, at most {self.most or 'any'}"


def sources(*, quick: bool) -> Iterator[Source]:
    """Yield what is there; with `quick`, one model of LFW."""
    yield from _lfw(FACES[:1] if quick else FACES)
    if quick:
        return
    yield from _photos()
    yield from _omniglot()
    yield from _drawn_faces()


def albums(truth: LongArray, sizes: tuple[int, ...], seed: int = SEED) -> Iterator[Album]:
    """Yield albums of a source, each set of rows once."""
    seen: set[bytes] = set()
    every = np.arange(len(truth))
    drawn = [
        Album(size, share, most, draw(truth, size, share, most, seed))
        for size in sizes
        for share in SINGLETONS
        for most in (MOST if share < 1 else (None,))
    ]
    whole = [Album(None, None, most, _at_most(truth, every, most, seed)) for most in MOST]
    for album in (*drawn, *whole):
        key = album.rows.tobytes()
        if key in seen or (album.size is not None and len(album.rows) < 0.8 * album.size):
            continue
        seen.add(key)
        yield album


def draw(truth: LongArray, size: int, share: float, most: int | None, seed: int) -> LongArray:
    """Draw people with two images or more, at most `most` each, and a share of singletons with one image.

    Singletons are people of whom there is one image, then one image each of people not drawn yet.
    """
    generator = np.random.default_rng([size, int(100 * share), most or 0, seed])
    counts = np.bincount(truth)
    order = generator.permutation(len(counts))
    often, once = order[counts[order] > 1], order[counts[order] == 1]
    n_singletons = round(size * share)
    wanted, n_people, rows = size - n_singletons, 0, list[int]()
    for person in often:
        if len(rows) >= wanted:
            break
        own = generator.permutation(np.flatnonzero(truth == person))[:most]
        rows += own[: max(2, wanted - len(rows))].tolist()
        n_people += 1
    singletons = np.concatenate([once, often[n_people:]])[:n_singletons]
    rows += [int(generator.choice(np.flatnonzero(truth == person))) for person in singletons]
    return np.sort(np.array(rows, np.int64))


def blobs(size: int, dimensions: int, n_centers: int, seed: int = SEED) -> tuple[FloatArray, LongArray]:
    """Draw the blobs of `make_blobs`, as unit vectors."""
    vectors, truth = make_blobs(size, dimensions, centers=n_centers, random_state=seed)
    return unit(vectors), truth.astype(np.int64)


def unit(vectors: FloatArray) -> FloatArray:
    """Scale rows to unit length, float32."""
    scaled: FloatArray = np.asarray(vectors, np.float32)
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def _at_most(truth: LongArray, rows: LongArray, most: int | None, seed: int) -> LongArray:
    if most is None:
        return rows
    order = np.random.default_rng([most, seed]).permutation(rows)
    order = order[np.argsort(truth[order], kind="stable")]
    starts = np.flatnonzero(np.diff(truth[order], prepend=-1))
    number = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return np.sort(order[number < most])


def _numbered(identities: object) -> LongArray:
    return np.unique(np.asarray(identities), return_inverse=True)[1].astype(np.int64)


def _lfw(names: tuple[str, ...]) -> Iterator[Source]:
    folder = data_folder("lfw")
    if folder is None:
        return
    truth = _numbered(np.load(folder / "identities.npy"))
    models = {name: unit(np.load(folder / f"{name}.npy")) for name in names}
    yield from _each_and_all("lfw committee", models, truth)


def _each_and_all(name: str, models: Mapping[str, FloatArray], truth: LongArray) -> Iterator[Source]:
    for one, vectors in models.items():
        yield Source(one, {one: vectors}, truth)
    if len(models) > 1:
        yield Source(name, models, truth, tuple(models))


def _photos() -> Iterator[Source]:
    """Photos with one face, whose person the file is named after."""
    from cdp.faces.align_photos import align_faces
    from cdp.nets.embed_images import embed_images
    from cdp.nets.onnx_models import open_models

    photos, models = data_folder("lfw_photos"), Path(__file__).resolve().parents[2] / "shared" / "models"
    files = {name: models / f"{name}.onnx" for name in (DETECTOR, *EMBEDDERS)}
    if photos is None or not all(file.is_file() for file in files.values()):
        return
    names = sorted(file.name for file in photos.glob("*.jpg"))
    people = _numbered([name.rpartition("_")[0] for name in names])
    with tempfile.TemporaryDirectory() as home:
        manifest = Manifest(tuple(names), people, root=str(photos))
        faces = align_faces(manifest, files[DETECTOR], Path(home) / "faces", threads=1).manifest
        alone = np.flatnonzero(faces.identities >= 0)
        for name in EMBEDDERS:
            made = embed_images(faces, open_models([files[name]]), Path(home) / name)
            yield Source(
                name, {name: unit(made.views.base.source[alone])}, _numbered(faces.identities[alone])
            )


def _omniglot() -> Iterator[Source]:
    identities = OMNIGLOT_EMBEDDINGS.with_suffix("") / "identities.npy"
    if OMNIGLOT_EMBEDDINGS.is_file() and identities.is_file():
        vectors = unit(np.load(OMNIGLOT_EMBEDDINGS))
        yield Source("omniglot", {"omniglot": vectors}, _numbered(np.load(identities)))


def _drawn_faces() -> Iterator[Source]:
    folder = Path(os.environ.get("CDP_DEMO", "demo")).expanduser() / "run" / "embeddings" / "networks"
    parts = {one.name: one / "unlabeled" for one in sorted(folder.glob("*"))}
    if parts:
        models = {f"drawn {name}": unit(np.load(part / "base.npy")) for name, part in parts.items()}
        truth = np.load(next(iter(parts.values())) / "identities.npy")
        yield from _each_and_all("drawn committee", models, _numbered(truth))

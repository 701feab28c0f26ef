"""A face detector and an embedding model, downloaded once: from a pinned address, known by their SHA-256.

    files = fetch_models((DETECTOR, EMBEDDER))

They are kept in a cache folder of the user, or in the one that the environment variable CDP_MODELS names.
Files that were put there by hand are used as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdp.errors import InputError, StoreError
from cdp.nets.torchvision_guard import require
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.array_files import hash_contents

# The address of files in Git LFS, at a commit that has both.
ADDRESS = "https://media.githubusercontent.com/media/opencv/opencv_zoo/47534e27c9851bb1128ccc0102f1145e27f23f98/models"
FOLDER_VARIABLE = "CDP_MODELS"
_TIMEOUT = 30
_CHUNK = 1 << 16


@dataclass(frozen=True)
class PublishedModel:
    """A file that can be downloaded.

    Attributes:
        title: what the model is called.
        job: what it does, in two words.
        path: below the address; its last part is the file's name.
        sha256: of the file.
        n_bytes: its length.
        license: of the weights.
    """

    title: str
    job: str
    path: str
    sha256: str
    n_bytes: int
    license: str

    @property
    def file(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


DETECTOR = PublishedModel(
    "YuNet",
    "face detector",
    "face_detection_yunet/face_detection_yunet_2023mar.onnx",
    "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
    232_589,
    "MIT",
)
EMBEDDER = PublishedModel(
    "SFace",
    "embedding model",
    "face_recognition_sface/face_recognition_sface_2021dec.onnx",
    "0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79",
    38_696_353,
    "Apache-2.0",
)


@dataclass(frozen=True)
class FetchedModels:
    """Published models on this computer.

    Attributes:
        files: one per model, in the order asked for.
        notes: what was downloaded now, from where and under which license; nothing where all was there.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def models_folder() -> Path:
    """Return the folder that downloaded models are kept in."""
    given = os.environ.get(FOLDER_VARIABLE, "")
    return Path(given).expanduser() if given else Path(require("pooch", "onnx").os_cache("cdp")) / "models"


def fetch_models(
    models: Sequence[PublishedModel],
    *,
    address: str | None = None,
    folder: str | Path | None = None,
    progress: Progress = no_progress,
) -> FetchedModels:
    """Download the published models that are missing, and return all as files.

    Args:
        models: which ones.
        address: where they are downloaded from, if not from OpenCV Zoo.
        folder: where they are kept, if not in `models_folder()`.
        progress: called with how many bytes are there.

    Raises:
        InputError: there is no network, what came is not the published file, or another file of that name is
            there.
        MissingExtraError: pooch is not installed.
    """
    place = models_folder() if folder is None else Path(folder)
    missing = [one for one in models if not _is_there(place / one.file, one)]
    for one in missing:
        _download(one, place, models, address or ADDRESS, progress)
    notes = tuple(
        f"{one.title}, the {one.job}, was downloaded to {place / one.file}; its license is {one.license} "
        "(OpenCV Zoo, https://github.com/opencv/opencv_zoo)."
        for one in missing
    )
    return FetchedModels(tuple(place / one.file for one in models), notes)


def _is_there(file: Path, model: PublishedModel) -> bool:
    if not file.exists():
        return False
    if file.is_file() and hash_contents(file) == model.sha256:
        return True
    raise InputError(
        f"{file}: not the published {model.title} (its SHA-256 is another); delete it, and it is downloaded.",
        code="downloaded-model-differs",
        file=file,
        expected=model.sha256,
    )


def _download(
    model: PublishedModel, place: Path, wanted: Sequence[PublishedModel], address: str, progress: Progress
) -> None:
    """Download one file, whole or not at all."""
    pooch, requests = require("pooch", "onnx"), require("requests", "onnx")
    downloader = _Downloader(requests, f"download {model.file}", model.n_bytes, progress)
    try:
        with _quiet(pooch):
            pooch.retrieve(
                f"{address}/{model.path}",
                f"sha256:{model.sha256}",
                fname=model.file,
                path=place,
                downloader=downloader,
            )
        # It was a temporary file, which only its owner may read; a folder of models may be shared.
        (place / model.file).chmod(0o644)
    except requests.RequestException as error:
        raise _not_downloaded(_reason(error), place, wanted, address) from None
    except ValueError:  # pooch's word for a wrong hash; nothing was kept
        raise InputError(
            f"{address}/{model.path} is not the published {model.title} (SHA-256 differs) and was "
            f"deleted; try again, or copy the file to {place}.",
            code="download-differs",
            address=f"{address}/{model.path}",
            folder=place,
        ) from None
    except OSError as error:
        raise StoreError(
            f"{place}: cannot be written ({error.strerror or error}); name another folder by "
            f"{FOLDER_VARIABLE}.",
            code="models-folder-unwritable",
            folder=place,
        ) from None


def _not_downloaded(reason: str, place: Path, wanted: Sequence[PublishedModel], address: str) -> InputError:
    """Return what to do without a network: which files, from where, into which folder."""
    listed = " and ".join(f"{address}/{one.path}" for one in wanted)
    return InputError(
        f"The models cannot be downloaded ({reason}); put {listed} into {place}, or give --models FOLDER.",
        code="models-not-downloaded",
        files=tuple(one.file for one in wanted),
        addresses=tuple(f"{address}/{one.path}" for one in wanted),
        folder=place,
        reason=reason,
    )


def _reason(error: Any) -> str:
    """Return a few words for the many errors of a network."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server says {response.status_code}"
    kind = type(error).__name__
    if kind in ("ConnectionError", "ConnectTimeout", "SSLError", "ProxyError"):
        return "no connection"
    return "the connection broke off" if kind in ("ChunkedEncodingError", "ReadTimeout") else kind


@contextmanager
def _quiet(pooch: Any) -> Iterator[None]:
    """Pooch reports on standard error by itself; we have a progress bar and a note."""
    logger = pooch.get_logger()
    before = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(before)


@dataclass(frozen=True)
class _Downloader:
    """Downloader for pooch that closes its connections on errors."""

    requests: Any
    step: str
    n_bytes: int
    progress: Progress

    def __call__(self, address: str, file: str, _: Any) -> None:
        """Download; pooch compares the hash and puts the file into its place."""
        done = 0
        with self.requests.get(address, timeout=_TIMEOUT, stream=True) as response, open(file, "wb") as out:
            response.raise_for_status()
            for chunk in response.iter_content(chunk_size=_CHUNK):
                out.write(chunk)
                done += len(chunk)
                self.progress(self.step, min(done, self.n_bytes), self.n_bytes)

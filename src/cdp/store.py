"""Nouns to folders and back: one `.npy` per array, a card, nothing ever half-written, nothing pickled."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cdp import __version__
from cdp.data.array_files import open_npy, reading
from cdp.errors import InputError, OutputExistsError, StoreError
from cdp.parallel import spans
from cdp.types import ConsensusGraph, KnnGraph, Labels, Views
from cdp.types.arrays import AnyArray

FORMAT = 1
Noun = TypeVar("Noun")


@dataclass(frozen=True)
class Contents:
    """What of a noun goes to disk: arrays by file name (without `.npy`), texts by file name, settings."""

    arrays: Mapping[str, AnyArray]
    settings: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


def save(
    noun: Any,
    path: str | Path,
    *,
    force: bool = False,
    settings: Mapping[str, Any] | None = None,
    made_from: Mapping[str, str] | None = None,
) -> None:
    """Write a noun as an artifact folder, whole or not at all."""
    with writing(path, force=force) as folder:
        fill(folder, noun, settings=settings, made_from=made_from)


def fill(
    folder: Path,
    noun: Any,
    *,
    settings: Mapping[str, Any] | None = None,
    made_from: Mapping[str, str] | None = None,
) -> None:
    """Write a noun's files and card into a folder that is being written."""
    folder.mkdir(exist_ok=True)
    contents = _contents(noun)
    card: dict[str, Any] = {
        "kind": type(noun).__name__,
        "format": FORMAT,
        "cdp": __version__,
        "summary": repr(noun),
        "settings": {**contents.settings, **(settings or {})},
        "made_from": dict(made_from or {}),
        "arrays": {},
    }
    for name, array in contents.arrays.items():
        file = folder / f"{name}.npy"
        file.parent.mkdir(exist_ok=True)
        np.save(file, array, allow_pickle=False)
        card["arrays"][name] = {
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "sha256": hash_array(array),
        }
    for name, text in contents.texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_json(folder / "card.json", card)


def load(path: str | Path, kind: type[Noun]) -> Noun:
    """A noun from its artifact folder; arrays are checked against the card's shapes and hashes."""
    folder = Path(path)
    card = read_card(folder)
    if card["kind"] != kind.__name__:
        raise InputError(f"{folder}: this folder holds {card['kind']}, not {kind.__name__}.")
    arrays = {}
    for name, described in card["arrays"].items():
        with reading(folder / f"{name}.npy"):
            array = open_npy(folder / f"{name}.npy", may_be_empty=True)
        if list(array.shape) != described["shape"] or str(array.dtype) != described["dtype"]:
            raise StoreError(
                f"{folder / name}.npy has {array.dtype} {list(array.shape)}, its card says "
                f"{described['dtype']} {described['shape']}; make this folder again."
            )
        if hash_array(array) != described["sha256"]:
            raise StoreError(f"{folder / name}.npy is not what its card describes; make this folder again.")
        arrays[name] = array
    noun: Noun = _LOADERS[kind.__name__](arrays, card["settings"])
    return noun


def read_card(folder: str | Path) -> dict[str, Any]:
    """What an artifact folder says about itself."""
    file = Path(folder) / "card.json"
    try:
        card: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder}: no card.json there, so this is not a folder written by cdp.") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise StoreError(f"{file} is damaged; make this folder again.") from None
    missing = {"kind", "format", "arrays", "settings", "made_from"} - set(
        card if isinstance(card, dict) else ()
    )
    if missing:
        raise StoreError(f"{file} lacks {', '.join(sorted(missing))}; make this folder again.")
    if card["format"] > FORMAT:
        raise InputError(
            f"{folder} was written by a newer cdp ({card.get('cdp')}); update with pip install -U cdp."
        )
    return card


def hash_array(array: AnyArray) -> str:
    """SHA-256 of dtype, shape and contents, read in blocks."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    rows = max(1, 2**26 // max(1, array[:1].nbytes))
    for start, stop in spans(len(array), rows):
        digest.update(np.ascontiguousarray(array[start:stop]).data)
    return digest.hexdigest()


def hash_views(views: Views) -> dict[str, str]:
    """The hash of every model's embeddings, for the record of what something was made from."""
    return {name: hash_array(model.source) for name, model in zip(views.names, views, strict=True)}


def write_json(file: Path, value: Any) -> None:
    """JSON with a line per key; NaN is a bug, not a value."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def writing(path: str | Path, *, force: bool = False) -> Iterator[Path]:
    """A folder beside `path` to write into; it takes the place of `path` only when all is written.

    Opened before the work starts, so an unwritable disk is found out in the first second. If anything fails,
    what was at `path` is still there and the half-written folder is gone.
    """
    target = Path(path).absolute()
    if target.exists() and not force:
        raise OutputExistsError(f"{path} is there already; choose another folder or replace it with --force.")
    if target.exists() and not target.is_dir():
        raise InputError(f"{path} is a file, not a folder; choose another name.")
    with _disk_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-{os.getpid()}-", dir=target.parent))
        folder.chmod(0o777 & ~_umask())
    try:
        with _disk_errors(path):
            yield folder
            _flush_to_disk(folder)
            _put_in_place(folder, target, force)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(folder: Path, target: Path, force: bool) -> None:
    if not target.exists():
        folder.rename(target)
        return
    if not force:
        raise OutputExistsError(f"{target} appeared while this was running; nothing was overwritten.")
    old = folder.with_name(f"{folder.name}.replaced")
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sweep(target: Path) -> None:
    """Remove what killed runs left behind; a run that is still alive keeps its folder."""
    for left in target.parent.glob(f".{target.name}.partial-*"):
        owner = left.name.removeprefix(f".{target.name}.partial-").split("-")[0]
        if owner.isdigit() and not is_alive(int(owner)):
            if left.name.endswith(".replaced") and not target.exists():
                left.rename(target)
            else:
                shutil.rmtree(left, ignore_errors=True)


def is_alive(process: int) -> bool:
    """Whether a process of this number is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush_to_disk(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())


@contextmanager
def _disk_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(
                f"{path}: the disk is full; nothing was changed there. Free space and run again."
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise StoreError(
                f"{path}: cannot be written ({error.strerror}); choose a folder you may write to."
            ) from None
        raise


def _contents(noun: Any) -> Contents:
    if isinstance(noun, Views):
        arrays: dict[str, AnyArray] = {"base": noun.base.source}
        arrays |= {f"committee/{name}": member.source for name, member in noun.committee.items()}
        if noun.identities is not None:
            arrays["identities"] = noun.identities
        texts = {} if noun.paths is None else {"paths.txt": "".join(f"{path}\n" for path in noun.paths)}
        return Contents(arrays, {"committee": list(noun.committee)}, texts)
    if isinstance(noun, KnnGraph):
        arrays = {"neighbors": noun.neighbors, "similarity": noun.similarity}
        return Contents(arrays, {"method": noun.method, "recall": noun.recall})
    if isinstance(noun, ConsensusGraph):
        return Contents({"ids": noun.ids, "doubt": noun.doubt}, {"n_images": noun.n_images})
    if isinstance(noun, Labels):
        return Contents({"labels": noun.labels, "fate": noun.fate, "confidence": noun.confidence})
    from cdp.consensus.mediator import Mediator

    if isinstance(noun, Mediator):
        return _mediator_contents(noun)
    raise StoreError(f"{type(noun).__name__} cannot be saved.")


def _mediator_contents(mediator: Any) -> Contents:
    from cdp.consensus.mlp import PaperMLP

    network = mediator.classifier
    if not isinstance(network, PaperMLP):
        raise InputError(
            f"A mediator made of {type(network).__name__} cannot be saved without pickle; save its own "
            "parameters yourself, or use the built-in one."
        )
    arrays = {"center": network.center_, "width": network.width_}
    for number, (layer, bias) in enumerate(network.weights_, start=1):
        arrays |= {f"layer{number}_weights": layer, f"layer{number}_bias": bias}
    settings = {
        "committee": list(mediator.committee),
        "inputs": list(mediator.inputs),
        "k": mediator.k,
        "training": mediator.training,
        "network": {**network.get_params(), "hidden": list(network.hidden)},
        "losses": network.losses_,
    }
    return Contents(arrays, settings)


def _load_mediator(arrays: dict[str, AnyArray], settings: dict[str, Any]) -> Any:
    from cdp.consensus.mediator import Mediator
    from cdp.consensus.mlp import PaperMLP

    network = PaperMLP(**{**settings["network"], "hidden": tuple(settings["network"]["hidden"])})
    network.center_, network.width_ = np.array(arrays["center"]), np.array(arrays["width"])
    network.weights_ = [
        (np.array(arrays[f"layer{number}_weights"]), np.array(arrays[f"layer{number}_bias"]))
        for number in range(1, len(network.hidden) + 2)
    ]
    network.losses_ = settings["losses"]
    network.classes_ = np.array([0, 1])
    return Mediator(
        network,
        tuple(settings["committee"]),
        tuple(settings["inputs"]),
        settings["k"],
        settings.get("training") or settings["lessons"],
    )


_LOADERS: dict[str, Any] = {
    "KnnGraph": lambda arrays, settings: KnnGraph(
        **arrays, method=settings["method"], recall=settings["recall"]
    ),
    "ConsensusGraph": lambda arrays, settings: ConsensusGraph(**arrays, n_images=settings["n_images"]),
    "Labels": lambda arrays, settings: Labels(**arrays),
    "Mediator": _load_mediator,
}

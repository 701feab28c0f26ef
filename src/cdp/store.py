"""Nouns to folders and back: one `.npy` per array, a typed card, nothing ever half-written, nothing pickled."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from cdp import __version__
from cdp.data.array_files import naming, open_npy, read_bytes, reading
from cdp.errors import InputError, StoreError, install_command
from cdp.files import write_json, writing_folder
from cdp.parallel import spans
from cdp.types import ConsensusGraph, KnnGraph, Labels, Views, column_names
from cdp.types.arrays import AnyArray

FORMAT = 1
CARD = "card.json"
_DEEPEST = 50
Noun = TypeVar("Noun")
Settings = TypeVar("Settings")


class ArrayCard(msgspec.Struct, frozen=True):
    """What a card says about one `.npy` file."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What an artifact folder says about itself, in `card.json`.

    Attributes:
        kind: which noun the folder holds.
        format: version of the layout of such folders.
        cdp: version that wrote it.
        summary: one line for people.
        settings: plain values; loaders read theirs through `read_settings`.
        made_from: name of every input -> its hash.
        arrays: file name without `.npy` -> what is in it.
    """

    kind: str
    format: int
    cdp: str = "?"
    summary: str = ""
    settings: dict[str, Any]
    made_from: dict[str, str]
    arrays: dict[str, ArrayCard]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as they stand in the file."""
        arrays = {name: msgspec.structs.asdict(array) for name, array in self.arrays.items()}
        return {**msgspec.structs.asdict(self), "arrays": arrays}


class _Version(msgspec.Struct):
    """The part of a card that every format has."""

    format: Annotated[int, msgspec.Meta(ge=1)]
    cdp: str = "?"


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
    inputs: Iterable[str | Path | None] = (),
    settings: Mapping[str, Any] | None = None,
    made_from: Mapping[str, str] | None = None,
) -> None:
    """Write a noun as an artifact folder, whole or not at all; `force` replaces one of the same kind, but no input."""
    with writing_folder(path, force=force, kind=type(noun).__name__, inputs=inputs) as folder:
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
    for name, array in contents.arrays.items():
        file = folder / f"{name}.npy"
        file.parent.mkdir(exist_ok=True)
        np.save(file, array, allow_pickle=False)
    for name, text in contents.texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_card(
        folder,
        type(noun).__name__,
        repr(noun),
        {**contents.settings, **(settings or {})},
        made_from or {},
        contents.arrays,
    )


def write_card(
    folder: Path,
    kind: str,
    summary: str,
    settings: Mapping[str, Any],
    made_from: Mapping[str, str],
    arrays: Mapping[str, AnyArray] | None = None,
) -> None:
    """Write the card of a folder whose other files are there.

    Args:
        folder: the artifact folder.
        kind: which noun it holds.
        summary: one line for people.
        settings: plain values.
        made_from: name of every input -> its hash.
        arrays: what was written as `.npy` files, by file name.
    """
    described = {
        name: ArrayCard(str(array.dtype), tuple(array.shape), hash_array(array))
        for name, array in (arrays or {}).items()
    }
    card = Card(
        kind=kind,
        format=FORMAT,
        cdp=__version__,
        summary=summary,
        settings=dict(settings),
        made_from=dict(made_from),
        arrays=described,
    )
    write_json(folder / CARD, card.as_dict())


def load(path: str | Path, kind: type[Noun]) -> Noun:
    """A noun from its artifact folder; arrays are checked against the card's shapes and hashes."""
    folder = Path(path)
    with reading(folder):
        card = read_card(folder, kind.__name__)
        loader = _LOADERS[kind.__name__]
        settings = read_settings(folder, card, loader.settings)
        arrays = {name: read_array(folder, name, card) for name in loader.arrays(settings)}
        with naming(folder):
            noun: Noun = loader.build(arrays, settings)
    return noun


def read_card(folder: str | Path, kind: str | None = None) -> Card:
    """What an artifact folder says about itself.

    Args:
        folder: the artifact folder.
        kind: which noun it must hold.

    Raises:
        InputError: it is no artifact folder, holds another noun, or was written by a newer cdp.
        StoreError: the card is damaged.
    """
    file = Path(folder) / CARD
    with reading(file):
        if not file.is_file():
            if os.path.lexists(file):
                raise StoreError(
                    f"{file} is a folder, a pipe or a broken link, not a file; make {folder} again."
                )
            raise InputError(f"{folder}: no card.json there, so this is not a folder written by cdp.")
        text = read_bytes(file)
    try:
        version = msgspec.json.decode(text, type=_Version)
        if version.format > FORMAT:
            raise InputError(
                f"{folder} was written by a newer cdp ({version.cdp}); fetch the newer source and run {install_command()}."
            )
        card = msgspec.json.decode(text, type=Card)
        if _depth(card.settings) > _DEEPEST:
            raise RecursionError("settings nested too deeply")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{file} is damaged ({error}); make this folder again.") from None
    if kind not in (None, card.kind):
        raise InputError(f"{folder}: this folder holds {card.kind}, not {kind}.")
    return card


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def read_settings(folder: str | Path, card: Card, into: type[Settings]) -> Settings:
    """The settings of a card as a typed object; those that it has no field for are left out.

    Raises:
        StoreError: a setting is missing or of another type.
    """
    try:
        return msgspec.convert(card.settings, into)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StoreError(
            f"{Path(folder) / CARD}: its settings are damaged ({error}); make this folder again."
        ) from None


def read_array(folder: Path, name: str, card: Card, *, check: bool = True) -> AnyArray:
    """An array of an artifact folder, memory-mapped; without `check` its shape is compared with the card's, but not its hash."""
    file = folder / f"{name}.npy"
    if name not in card.arrays:
        raise StoreError(f"{folder / CARD} is damaged (no array {name!r}); make this folder again.")
    described = card.arrays[name]
    with reading(file):
        array = open_npy(file, may_be_empty=True)
    if array.shape != described.shape or str(array.dtype) != described.dtype:
        raise StoreError(
            f"{file} has {array.dtype} {list(array.shape)}, its card says {described.dtype} "
            f"{list(described.shape)}; make this folder again."
        )
    if check and hash_array(array) != described.sha256:
        raise StoreError(f"{file} is not what its card describes; make this folder again.")
    return array


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


class CardFacts(msgspec.Struct):
    """What runs read of the cards of several nouns: seconds of inner steps, notes, size of a network."""

    seconds: dict[str, float] = {}
    notes: list[str] = []
    parameters: int | None = None


def read_facts(folder: str | Path) -> CardFacts:
    """What the card of a folder says that a run passes on."""
    return read_settings(folder, read_card(folder), CardFacts)


class _NoSettings(msgspec.Struct):
    """A noun that needs none."""


class _KnnGraphSettings(msgspec.Struct):
    method: str
    recall: float | None


class _ConsensusGraphSettings(msgspec.Struct):
    n_images: Annotated[int, msgspec.Meta(ge=0)]


_TREE_ARRAYS = ("column", "value", "left", "right", "roots")


class _BoostedTreesSettings(msgspec.Struct):
    prior: float


class _PaperMLPSettings(msgspec.Struct, forbid_unknown_fields=True):
    hidden: tuple[int, ...]
    learning_rate: float
    random_state: int


class _MediatorSettings(msgspec.Struct):
    committee: tuple[str, ...]
    inputs: tuple[str, ...]
    k: Annotated[int, msgspec.Meta(ge=1)]
    network: _PaperMLPSettings
    losses: list[float]
    training: dict[str, float] = {}
    # What earlier cards of this format say: another name for `training`, and a factor that is gone.
    lessons: dict[str, float] = {}
    impostors: float = 1.0


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
    from cdp.consensus.boosted_trees import BoostedTrees
    from cdp.consensus.mediator import Mediator

    if isinstance(noun, BoostedTrees):
        return Contents({name: getattr(noun, name) for name in _TREE_ARRAYS}, {"prior": noun.prior})
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


def _mediator_arrays(settings: _MediatorSettings) -> list[str]:
    numbers = range(1, len(settings.network.hidden) + 2)
    layers = [f"layer{number}_{part}" for number in numbers for part in ("weights", "bias")]
    return ["center", "width", *layers]


def _build_mediator(arrays: Mapping[str, AnyArray], settings: _MediatorSettings) -> Any:
    from cdp.consensus.mediator import Mediator
    from cdp.consensus.mlp import PaperMLP

    if settings.impostors != 1:
        raise InputError(
            f"this mediator divides its odds by {settings.impostors:g}, which this cdp does not do; train it again."
        )
    network = PaperMLP(**msgspec.structs.asdict(settings.network))
    center, width, *layers = (np.array(arrays[name]) for name in _mediator_arrays(settings))
    sizes = [len(column_names(settings.committee, settings.inputs)), *network.hidden, 1]
    wanted: list[tuple[int, ...]] = [(sizes[0],)] * 2
    for inputs, outputs in pairwise(sizes):
        wanted += [(inputs, outputs), (outputs,)]
    if [array.shape for array in (center, width, *layers)] != wanted:
        raise InputError(
            "its arrays do not have the sizes that its inputs and layers ask for; train this mediator again."
        )
    network.center_, network.width_ = center, width
    network.weights_ = list(zip(layers[::2], layers[1::2], strict=True))
    network.losses_ = settings.losses
    network.classes_ = np.array([0, 1])
    training = settings.training or settings.lessons
    return Mediator(network, settings.committee, settings.inputs, settings.k, training)


def _build_trees(arrays: Mapping[str, AnyArray], settings: _BoostedTreesSettings) -> Any:
    from cdp.consensus.boosted_trees import BoostedTrees

    return BoostedTrees(**{name: np.array(array) for name, array in arrays.items()}, prior=settings.prior)


@dataclass(frozen=True)
class _Loader:
    """How a noun comes back: its typed settings, the arrays it needs, and the noun from both."""

    settings: type[msgspec.Struct]
    arrays: Callable[[Any], Sequence[str]]
    build: Callable[[Mapping[str, AnyArray], Any], Any]


_LOADERS = {
    "KnnGraph": _Loader(
        _KnnGraphSettings,
        lambda _: ("neighbors", "similarity"),
        lambda arrays, settings: KnnGraph(**arrays, method=settings.method, recall=settings.recall),
    ),
    "ConsensusGraph": _Loader(
        _ConsensusGraphSettings,
        lambda _: ("ids", "doubt"),
        lambda arrays, settings: ConsensusGraph(**arrays, n_images=settings.n_images),
    ),
    "Labels": _Loader(
        _NoSettings, lambda _: ("labels", "fate", "confidence"), lambda arrays, _: Labels(**arrays)
    ),
    "BoostedTrees": _Loader(_BoostedTreesSettings, lambda _: _TREE_ARRAYS, _build_trees),
    "Mediator": _Loader(_MediatorSettings, _mediator_arrays, _build_mediator),
}

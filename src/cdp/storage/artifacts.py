"""Data classes as folders: one `.npy` per array and a typed card, written atomically, no pickle."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from cdp import __version__
from cdp.blocks import spans
from cdp.errors import InputError, StoreError, install_command
from cdp.storage.array_files import brief, naming, open_npy, read_bytes, reading
from cdp.storage.files import write_bytes, write_json, writing_folder
from cdp.types import Views
from cdp.types.arrays import AnyArray
from cdp.types.run_record import RUN_FORMAT, RunRecord

FORMAT = 1
CARD = "card.json"
_DEEPEST = 50
_AGAIN = "run the recipe again, finished stages are kept"
_KINDS = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
Noun = TypeVar("Noun")
Settings = TypeVar("Settings")
ArrayWriter: TypeAlias = Callable[[Iterable[tuple[Path, AnyArray]]], Iterable[str]]
"""From files and the arrays to write into them to the arrays' hashes."""


class ArrayCard(msgspec.Struct, frozen=True):
    """What a card says about one `.npy` file."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What an artifact folder says about itself, in `card.json`.

    Attributes:
        format: version of the layout of such folders.
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
    """Write a data class as an artifact folder, atomically; `force` replaces the same kind only."""
    with writing_folder(path, force=force, kind=type(noun).__name__, inputs=inputs) as folder:
        fill(folder, noun, settings=settings, made_from=made_from)


def fill(
    folder: Path,
    noun: Any,
    *,
    settings: Mapping[str, Any] | None = None,
    made_from: Mapping[str, str] | None = None,
    write: ArrayWriter | None = None,
) -> None:
    """Write a noun's files and card into a folder that is being written; `write` as in `fill_arrays`."""
    contents = _contents(noun)
    more = {**contents.settings, **(settings or {})}
    fill_arrays(folder, type(noun).__name__, repr(noun), more, contents.arrays, made_from, write)
    for name, text in contents.texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def fill_arrays(
    folder: Path,
    kind: str,
    summary: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, AnyArray],
    made_from: Mapping[str, str] | None = None,
    write: ArrayWriter | None = None,
) -> None:
    """Write arrays and their card into a folder under construction.

    Args:
        folder: to fill.
        kind, summary, settings, made_from: for the card.
        arrays: by file name.
        write: writes files and returns the hashes of their arrays; unless given, one after the other.
    """
    folder.mkdir(exist_ok=True)
    files = [(folder / f"{name}.npy", array) for name, array in arrays.items()]
    for file, _ in files:
        file.parent.mkdir(exist_ok=True)
    hashes = dict(zip(arrays, (write or partial(map, write_array))(files), strict=True))
    write_card(folder, kind, summary, settings, made_from or {}, arrays, hashes)


def write_array(file_and_array: tuple[Path, AnyArray]) -> str:
    """Write an array to a .npy file and return its hash."""
    file, array = file_and_array
    np.save(file, array, allow_pickle=False)
    return hash_array(array)


def write_card(
    folder: Path,
    kind: str,
    summary: str,
    settings: Mapping[str, Any],
    made_from: Mapping[str, str],
    arrays: Mapping[str, AnyArray] | None = None,
    hashes: Mapping[str, str] | None = None,
) -> None:
    """Write the card of a folder whose other files are there.

    Args:
        made_from: name of every input -> its hash.
        arrays: what was written as `.npy` files, by file name.
        hashes: of the arrays, where they are known.
    """
    known = hashes or {}
    described = {
        name: ArrayCard(str(array.dtype), tuple(array.shape), known.get(name) or hash_array(array))
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


def load(path: str | Path, kind: type[Noun], *, check: bool = True) -> Noun:
    """Load a noun from its artifact folder; arrays are checked against the card's shapes and hashes.

    Without `check` neither hashes nor values are: of arrays that this run has just written.
    """
    folder = Path(path)
    with reading(folder):
        card = read_card(folder, kind.__name__)
        maker: Any = kind
        names, form = _PLAIN.get(kind.__name__) or (None, maker.Kept)
        settings = read_settings(folder, card, form)
        arrays = {name: read_array(folder, name, card, check=check) for name in names or settings.arrays}
        with naming(folder, folder=folder):
            plain = msgspec.structs.asdict(settings)
            make = maker if check else getattr(maker, "unchecked", maker)
            noun: Noun = settings.restore(arrays) if names is None else make(**arrays, **plain)
    return noun


def read_card(folder: str | Path, kind: str | None = None) -> Card:
    """Read the card of an artifact folder.

    Raises:
        StoreError: the card is damaged.
    """
    file = Path(folder) / CARD
    with reading(file):
        if not file.is_file():
            if os.path.lexists(file):
                raise StoreError(
                    f"{file} is a folder, a pipe or a broken link, not a file; make {folder} again.",
                    code="card-not-a-file",
                    file=file,
                )
            is_there = Path(folder).exists()
            raise InputError(
                f"{folder} is not a cdp folder (no card.json)."
                if is_there
                else f"{folder}: no such folder; check the path, and whether all above it was copied.",
                code="card-missing" if is_there else "path-missing",
                folder=folder,
            )
        text = read_bytes(file)
    try:
        version = msgspec.json.decode(text, type=_Version)
        if version.format > FORMAT:
            raise InputError(
                f"{folder} was written by a newer cdp ({version.cdp}); fetch the newer source and run "
                f"{install_command()}.",
                code="card-newer",
                folder=folder,
                version=version.cdp,
            )
        card = msgspec.json.decode(text, type=Card)
        if _depth(card.settings) > _DEEPEST:
            raise RecursionError("settings nested too deeply")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"{file} is damaged ({error}); restore it from a copy, or make this folder again.",
            code="card-damaged",
            file=file,
        ) from None
    if kind not in (None, card.kind):
        raise InputError(
            f"{folder}: this folder holds {card.kind}, not {kind}.",
            code="artifact-kind-differs",
            folder=folder,
            expected=kind,
            found=card.kind,
        )
    return card


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def read_settings(folder: str | Path, card: Card, into: type[Settings]) -> Settings:
    """Read the settings of a card as a typed object; those that it has no field for are left out.

    Raises:
        StoreError: a setting is missing or of another type.
    """
    try:
        return msgspec.convert(card.settings, into)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StoreError(
            f"{Path(folder) / CARD}: its settings are damaged ({error}); make this folder again.",
            code="card-settings-damaged",
            file=Path(folder) / CARD,
        ) from None


def read_array(folder: Path, name: str, card: Card, *, check: bool = True) -> AnyArray:
    """Open an array of an artifact, memory-mapped; without `check` only its shape is compared."""
    file = folder / f"{name}.npy"
    if name not in card.arrays:
        raise StoreError(
            f"{folder / CARD} is damaged (no array {name!r}); make this folder again.",
            code="card-array-missing",
            file=folder / CARD,
            array=name,
        )
    described = card.arrays[name]
    with reading(file):
        array = open_npy(file, may_be_empty=True)
    if array.shape != described.shape or str(array.dtype) != described.dtype:
        raise StoreError(
            f"{file} has {array.dtype} {list(array.shape)}, its card says {described.dtype} "
            f"{list(described.shape)}; make this folder again.",
            code="array-differs-from-card",
            file=file,
            expected=(described.dtype, tuple(described.shape)),
            found=(str(array.dtype), array.shape),
        )
    if check and hash_array(array) != described.sha256:
        raise StoreError(
            f"{file} is not what its card describes; make this folder again.",
            code="array-checksum-differs",
            file=file,
        )
    return array


def hash_array(array: AnyArray) -> str:
    """SHA-256 of dtype, shape and contents, read in blocks."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    rows = max(1, 2**26 // max(1, array[:1].nbytes))
    for start, stop in spans(len(array), rows):
        digest.update(np.ascontiguousarray(array[start:stop]).data)
    return digest.hexdigest()


def hash_views(views: Views) -> dict[str, str]:
    """Hash every model's embeddings, for the record of what something was made from."""
    return {name: hash_array(model.source) for name, model in zip(views.names, views, strict=True)}


class CardFacts(msgspec.Struct):
    """What runs read of the cards of several nouns: seconds of inner steps, notes, size of a network."""

    seconds: dict[str, float] = {}
    notes: list[str] = []
    parameters: int | None = None


def read_facts(folder: str | Path) -> CardFacts:
    """Read what the card of a folder passes on to a run."""
    return read_settings(folder, read_card(folder), CardFacts)


class _NoSettings(msgspec.Struct):
    """A noun that needs none."""


class _KnnGraphSettings(msgspec.Struct):
    method: str
    recall: float | None


class _UnfinishedListsSettings(msgspec.Struct):
    done: Annotated[int, msgspec.Meta(ge=0)]


class _ConsensusGraphSettings(msgspec.Struct):
    n_images: Annotated[int, msgspec.Meta(ge=0)]


class _BoostedTreesSettings(msgspec.Struct):
    prior: float


_PLAIN: dict[str, tuple[tuple[str, ...], type[msgspec.Struct]]] = {
    "KnnGraph": (("neighbors", "similarity"), _KnnGraphSettings),
    "UnfinishedLists": (("neighbors", "similarity"), _UnfinishedListsSettings),
    "UnfinishedScores": (("probability",), _NoSettings),
    "ConsensusGraph": (("ids", "doubt"), _ConsensusGraphSettings),
    "Labels": (("labels", "status", "confidence"), _NoSettings),
    "BoostedTrees": (("column", "value", "left", "right", "roots"), _BoostedTreesSettings),
}
"""Nouns that are some arrays and plain values: the names of both are those of their fields."""


def _contents(noun: Any) -> Contents:
    kind = type(noun).__name__
    if kind in _PLAIN:
        arrays, settings = _PLAIN[kind]
        fields = settings.__struct_fields__
        return Contents(*({name: getattr(noun, name) for name in names} for names in (arrays, fields)))
    if isinstance(noun, Views):
        models = {"base": noun.base.source}
        models |= {f"committee/{name}": member.source for name, member in noun.committee.items()}
        if noun.identities is not None:
            models["identities"] = noun.identities
        texts = {} if noun.paths is None else {"paths.txt": "".join(f"{path}\n" for path in noun.paths)}
        return Contents(models, {"committee": list(noun.committee)}, texts)
    if not hasattr(noun, "Kept"):
        raise StoreError(f"{kind} cannot be saved.", code="artifact-not-savable", kind=kind)
    return Contents(*noun.Kept.of(noun))


def read_run_record(file: str | Path) -> RunRecord:
    """Read the record in a `run.json`; a damaged one is a StoreError that names the wrong key."""
    path = Path(file)
    with reading(path):
        if not path.exists() and not path.is_symlink():
            raise InputError(
                f"{path.parent}: no {path.name} there; give the folder that `cdp run --out` wrote.",
                code="run-record-missing",
                folder=path.parent,
            )
        text = read_bytes(path)
    heading = _decode(path, text, _Heading)
    if heading.kind != "Run" or not isinstance(heading.format, int):
        raise InputError(
            f"{path}: not written by `cdp run`; give the folder that `cdp run --out` wrote.",
            code="run-record-foreign",
            file=path,
        )
    if heading.format > RUN_FORMAT:
        raise InputError(
            f"{path} was written by a newer cdp ({heading.cdp}); open it with that version.",
            code="run-record-newer",
            file=path,
            version=heading.cdp,
        )
    return _decode(path, text, RunRecord)


class _Heading(msgspec.Struct):
    kind: Any = None
    format: Any = None
    cdp: Any = None


def write_run_record(file: str | Path, record: RunRecord) -> None:
    """Write a `run.json`, whole or not at all, and never one that could not be read again."""
    # NumPy's numbers as Python's, and anything else, such as a path, as text.
    text = msgspec.json.encode(
        record, enc_hook=lambda value: value.item() if hasattr(value, "item") else str(value)
    )
    try:
        msgspec.json.decode(text, type=RunRecord)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{file}: {_problem(error)}; nothing was written.", code="run-record-invalid", file=file
        ) from None
    write_bytes(file, msgspec.json.format(text, indent=2) + b"\n")


def read_json(file: Path, kind: Any, way_out: str = _AGAIN) -> Any:
    """Read a JSON file of typed values.

    Args:
        file: to read.
        kind: the type of what it holds.
        way_out: what to do about a damaged one, for the message.

    Raises:
        StoreError: it is damaged or missing.
    """
    with reading(file):
        try:
            text = read_bytes(file)
        except OSError as error:
            raise StoreError(
                f"{file}: cannot be read ({error.strerror}); {way_out}.", code="json-unreadable", file=file
            ) from None
    return _decode(file, text, kind, way_out)


@dataclass(frozen=True)
class JsonLines(Generic[Noun]):
    """What an appended log holds.

    Attributes:
        values: number of a line, from 1 -> its value; empty lines are left out.
        damaged: number of a line -> what is wrong with it.
        n_lines: how many there are, empty and damaged ones among them.
        end: bytes up to the end of the last whole line.
    """

    values: Mapping[int, Noun]
    damaged: Mapping[int, str]
    n_lines: int
    end: int


def read_json_lines(file: Path, kind: type[Noun]) -> JsonLines[Noun]:
    """Read a log with a typed JSON value per line.

    A half-written last line is left out, and a warning says so.

    Raises:
        InputError: the file cannot be read; one that is missing is empty.
    """
    with reading(file):
        text = read_bytes(file) if file.exists() else b""
    found = parse_json_lines(text, kind)
    if found.end < len(text):
        warnings.warn(
            f"{file}: the last line was cut off while it was written and is skipped; all lines before it are "
            "kept.",
            stacklevel=2,
        )
    return found


def parse_json_lines(text: bytes, kind: type[Noun]) -> JsonLines[Noun]:
    """Parse the lines of a log; the last one counts without its end too, if it is complete."""
    *lines, last = text.split(b"\n")
    values: dict[int, Noun] = {}
    damaged: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values[number] = msgspec.json.decode(line, type=kind)
        except _NOT_JSON as error:
            damaged[number] = brief(error)
    n_lines, end = len(lines), len(text) - len(last)
    with suppress(*_NOT_JSON):
        if last.strip():
            values[n_lines + 1] = msgspec.json.decode(last, type=kind)
            n_lines, end = n_lines + 1, len(text)
    return JsonLines(values, damaged, n_lines, end)


_NOT_JSON = (msgspec.MsgspecError, InputError, UnicodeDecodeError, RecursionError)
"""What a damaged line raises; InputError where a value refuses itself."""


def _decode(path: Path, text: bytes, kind: type[Settings], way_out: str = _AGAIN) -> Settings:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path}: {_problem(error)}; {way_out}.", code="json-key-wrong", file=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise StoreError(f"{path} is damaged; {way_out}.", code="json-damaged", file=path) from None


def _problem(error: msgspec.ValidationError) -> str:
    """`results.labels is text where a table belongs`, from the decoder's message."""
    what, _, where = str(error).partition(" - at ")
    key = where.strip("`").removeprefix("$").removeprefix(".") or "the record"
    if types := re.fullmatch(r"Expected `(.+)`, got `(.+)`", what):
        wanted, found = (
            " or ".join(_KINDS.get(kind, kind) for kind in one.split(" | ")) for one in types.groups()
        )
        return f"{key} is {found} where {wanted} belongs"
    if missing := re.fullmatch(r"Object missing required field `(.+)`", what):
        return f"{key} lacks {missing[1]}"
    return f"{key} is wrong ({what})"

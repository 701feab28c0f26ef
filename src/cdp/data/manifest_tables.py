"""Manifests as CSV or Parquet tables with the columns `path`, `identity` and optional others."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdp.errors import InputError
from cdp.storage.array_files import brief, open_parquet, reading, refuse_nested, refuse_repeats, regular_size
from cdp.storage.files import writing_file
from cdp.types.arrays import AnyArray, LongArray
from cdp.types.manifest import Manifest

TABLE_SUFFIXES = (".csv", ".parquet")
_MOST_NAMES = 2**24
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)")
Columns = dict[str, Sequence[Any]]
Choose = Callable[[Path, list[str]], list[str]]


def read_table(path: str | Path, *, root: str | Path | None = None) -> Manifest:
    """Return the manifest in a .csv or .parquet file.

    Columns: `path` (needed); `identity`, a whole number or a name (left out: all unknown; empty or -1: this
        one is unknown); `identity_name`, in addition to identity numbers; `turn`, quarter turns. Others are
        left alone.

    Args:
        root: what relative paths are relative to; the table's own folder unless given.
    """
    file = Path(path)
    with reading(file):
        return _manifest(file, read_columns(file), root)


def _manifest(file: Path, columns: Columns, root: str | Path | None) -> Manifest:
    locations = columns["path"]
    if not len(locations):
        raise InputError(f"{file}: empty, it has a header and no rows.", code="table-empty", file=file)
    try:
        identities, names = _identities(file, columns, len(locations))
        return Manifest(
            locations=tuple(location or "" for location in locations),
            identities=identities,
            names=names,
            root=str(file.parent if root is None else root),
            turns=_turns(file, columns),
        )
    except InputError as error:
        raise InputError(str(error).replace("Manifest:", f"{file}:", 1), **error.details(file=file)) from None


def read_columns(file: Path) -> Columns:
    """Read the manifest columns of a table; `path` always exists, possibly without rows."""
    return read_some_columns(file, _wanted_columns)


def read_some_columns(file: Path, choose: Choose) -> Columns:
    """Read some columns of a .csv or .parquet table.

    `choose` is given path and header, and refuses the table if a column is missing.
    """
    if file.suffix.lower() not in TABLE_SUFFIXES:
        raise InputError(
            f"{file}: not a table of images; give a .csv or .parquet file.",
            code="table-kind-unknown",
            file=file,
        )
    with reading(file):
        if not file.exists():
            raise InputError(
                f"{file}: no such file; check the spelling of the path.", code="table-missing", file=file
            )
        regular_size(file)
        return _read_csv(file, choose) if file.suffix.lower() == ".csv" else _read_parquet(file, choose)


def _read_csv(file: Path, choose: Choose) -> Columns:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        lines = csv.reader(stream, strict=True)
        try:
            header = [name.strip() for name in next(lines, [])]
            _refuse_other_separators(file, header)
            wanted = choose(file, header)
            columns: dict[str, list[str]] = {name: [] for name in wanted}
            keep: list[tuple[int, Callable[[str], None]]] = [
                (header.index(name), columns[name].append) for name in wanted
            ]
            for line in lines:
                if len(line) != len(header):
                    if not line:
                        continue
                    raise InputError(
                        f"{file}: line {lines.line_num} has {len(line)} fields, the header has "
                        f"{len(header)}; put a field that contains a comma in double quotes.",
                        code="table-fields-differ",
                        file=file,
                        line=lines.line_num,
                        expected=len(header),
                        found=len(line),
                    )
                for at, append in keep:
                    append(line[at])
        except csv.Error as error:
            raise InputError(
                f"{file}: line {lines.line_num} is not CSV ({error}); is a double quote left open before it?",
                code="table-quote-open",
                file=file,
                line=lines.line_num,
            ) from None
        except UnicodeDecodeError:
            raise InputError(
                f"{file}: not UTF-8 text; save it again as UTF-8.", code="text-not-utf8", file=file
            ) from None
    return {name: columns[name] for name in wanted}


def _refuse_other_separators(file: Path, header: list[str]) -> None:
    found = next(
        (name for mark, name in ((";", "semicolons"), ("\t", "tabs")) if mark in "".join(header)), ""
    )
    if len(header) == 1 and found:
        raise InputError(
            f"{file}: its columns are separated by {found}; save it again with commas.",
            code="table-not-by-commas",
            file=file,
            found=found,
        )


def _read_parquet(file: Path, choose: Choose) -> Columns:
    with open_parquet(file) as table:
        wanted = choose(file, list(table.schema_arrow.names))
        for name in wanted:
            refuse_nested(file, table.schema_arrow.field(name))
        columns = table.read(columns=wanted)
        return {name: columns.column(name).to_pylist() for name in wanted}


def _wanted_columns(file: Path, header: list[str]) -> list[str]:
    if "path" not in header:
        raise InputError(
            f"{file}: no column called path; the columns are {brief(', '.join(header)) or 'none'}.",
            code="table-path-column-missing",
            file=file,
            found=tuple(header),
        )
    refuse_repeats(file, header)
    return [name for name in header if name in ("path", "identity", "identity_name", "turn")]


def _identities(file: Path, columns: Columns, n_images: int) -> tuple[LongArray, tuple[str, ...] | None]:
    if "identity" not in columns:
        return np.full(n_images, -1, np.int64), None
    identities, names = number_identities([cell_text(one) for one in columns["identity"]])
    called = columns.get("identity_name")
    if called is None or names is not None:
        return identities, names
    n_names = int(identities.max()) + 1
    if n_names > _MOST_NAMES:
        raise InputError(
            f"{file}: identity {n_names - 1} is too large a number to go with identity_name; "
            "write the name itself into the column identity.",
            code="table-identity-too-large",
            file=file,
            identity=n_names - 1,
        )
    known = [""] * n_names
    for row, (identity, name) in enumerate(zip(identities.tolist(), called, strict=True)):
        if identity < 0 or not name:
            continue
        if known[identity] not in ("", name):
            raise InputError(
                f"{file}: row {row} (counted from 0) names identity {identity} {name!r}, an earlier "
                f"row {known[identity]!r}; correct one of the two.",
                code="table-identity-named-twice",
                file=file,
                row=row,
                identity=identity,
                names=(known[identity], name),
            )
        known[identity] = name
    return identities, tuple(known)


def cell_text(value: Any) -> str:
    """Return a cell as text; tables that know no missing whole numbers keep them as floats and NaN."""
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def number_identities(texts: Sequence[str]) -> tuple[LongArray, tuple[str, ...] | None]:
    """Identities as numbers: whole numbers stay as they are, names are numbered in sorted order.

    `""` and `-1` mean unknown. Text like `007` is a name: as a number it would be the same as `7`.
    """
    different = set(texts)
    try:
        if all(one == "" or _WHOLE_NUMBER.fullmatch(one) for one in different):
            return np.array([int(one) if one else -1 for one in texts], np.int64), None
    except (OverflowError, ValueError):  # ValueError: Python reads no number of more than 4,300 digits
        pass  # Too long to be a number; a name may have any length.
    names = tuple(sorted(different - {"", "-1"}))
    numbers = {name: number for number, name in enumerate(names)} | {"": -1, "-1": -1}
    return np.array([numbers[one] for one in texts], np.int64), names


def _turns(file: Path, columns: Columns) -> AnyArray | None:
    if "turn" not in columns:
        return None
    try:
        return np.array([int(turn) for turn in columns["turn"]], np.int64)
    except (ValueError, TypeError, OverflowError):
        raise InputError(
            f"{file}: the column turn must hold quarter turns, 0 to 3, in every row.",
            code="table-turns-wrong",
            file=file,
        ) from None


def write_table(manifest: Manifest, path: str | Path, *, force: bool = False) -> None:
    """Write a manifest as .csv or .parquet, whole or not at all; relative locations follow the table."""
    file = Path(path)
    if file.suffix.lower() not in TABLE_SUFFIXES:
        raise InputError(
            f"{file}: a manifest is written as .csv or .parquet; choose one of these endings.",
            code="table-ending-wrong",
            file=file,
        )
    columns: Columns = {
        "path": locations_from(manifest, file.parent),
        "identity": manifest.identities.tolist(),
    }
    if manifest.names is not None:
        names = manifest.names
        columns["identity_name"] = [names[one] if one >= 0 else "" for one in manifest.identities.tolist()]
    if manifest.turns is not None:
        columns["turn"] = manifest.turns.tolist()
    with writing_file(file, force=force) as partial:
        if file.suffix.lower() == ".csv":
            write_csv(partial, columns)
        else:
            import pyarrow as pa
            import pyarrow.parquet

            pyarrow.parquet.write_table(pa.table(columns), partial)


def write_csv(file: Path, columns: Columns) -> None:
    """Write a header and one line per row, UTF-8, quoted where needed."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))


def locations_from(manifest: Manifest, folder: Path) -> Sequence[str]:
    """Return the locations as they must be written to be found from another folder."""
    root, here = os.path.realpath(manifest.root), os.path.realpath(folder)
    if root == here:
        return manifest.locations
    try:
        prefix = os.path.relpath(root, here)
    except ValueError:  # Two drives of a Windows machine have no way between them.
        prefix = root
    return [path if os.path.isabs(path) else f"{prefix}/{path}" for path in manifest.locations]

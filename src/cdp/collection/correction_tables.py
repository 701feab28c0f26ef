"""Corrections as a table, .csv or .parquet: one line per thing that is known, images by path or by row.

    kind,path,other_path,name
    same,a/1.jpg,a/2.jpg,
    different,a/1.jpg,b/7.jpg,
    name,a/1.jpg,,Anna
    reject,c/3.jpg,,

With the columns `row` and `other_row` instead, images are meant by their row, counted from 0. A table by path
holds for any collection that has these images, whatever models and settings it was made with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from cdp.collection.corrections import Correction, different, named, rejected, same
from cdp.data.manifest_tables import Choose, Columns, cell_text, read_some_columns, write_csv
from cdp.errors import InputError
from cdp.storage.array_files import brief, naming, reading, refuse_repeats
from cdp.storage.files import writing_file

_NUMBER = re.compile("[0-9]{1,18}")
KINDS = ("same", "different", "name", "reject")


def read_correction_table(
    file: str | Path, n_images: int, paths: Sequence[str] | None = None
) -> list[Correction]:
    """Return the corrections in a table.

    Args:
        file: .csv or .parquet.
        n_images: how many images there are.
        paths: where they are stored, for a table that names them by path.

    Raises:
        InputError: a column is missing, or a line names no image, an unknown kind, or too few images.
    """
    table = Path(file)
    columns = _read_texts(table, _choose_columns)
    by_path = "path" in columns
    if by_path and paths is None:
        raise InputError(
            f"{table} names images by path, and these have none; name them by row.",
            code="table-needs-rows",
            file=table,
        )
    find = _finder(n_images, paths if by_path else None)
    firsts = columns["path" if by_path else "row"]
    others = columns.get("other_path" if by_path else "other_row", [""] * len(firsts))
    names = columns.get("name", [""] * len(firsts))
    found = []
    for line, (kind, one, other, name) in enumerate(
        zip(columns["kind"], firsts, others, names, strict=True), 2
    ):
        where = f"{table}: line {line}"
        if kind not in KINDS:
            raise InputError(
                f"{where} has the kind {kind!r}; it is one of {', '.join(KINDS)}.",
                code="correction-kind-unknown",
                value=kind,
            )
        image = find(one, where)
        if kind in ("same", "different"):
            make = same if kind == "same" else different
            second = find(other, where)
            with naming(where):
                found.append(make(image, second))
        elif kind == "name":
            if not name:
                raise InputError(f"{where} gives no name.", code="correction-name-missing")
            with naming(where):
                found.append(named(name, image))
        else:
            found.append(rejected(image))
    return found


def read_name_table(
    file: str | Path, n_images: int, paths: Sequence[str] | None = None
) -> tuple[dict[int, str], list[Correction]]:
    """Return the names in a table with the columns `name` and one of `identity`, `path` and `row`.

    Returns:
        Names of labeled identities by their number, and corrections that give names to images by path or row.

    Raises:
        InputError: a column is missing, or a line names no image or identity.
    """
    table = Path(file)
    columns = _read_texts(table, _choose_name_columns)
    by = next(one for one in columns if one != "name")
    find = None if by == "identity" else _finder(n_images, paths if by == "path" else None)
    if by == "path" and paths is None:
        raise InputError(
            f"{table} names images by path, and these have none; name them by row.",
            code="table-needs-rows",
            file=table,
        )
    names: dict[int, str] = {}
    corrections = []
    for line, (said, name) in enumerate(zip(columns[by], columns["name"], strict=True), 2):
        where = f"{table}: line {line}"
        if not name:
            raise InputError(f"{where} gives no name.", code="correction-name-missing")
        if find is not None:
            image = find(said, where)
            with naming(where):
                corrections.append(named(name, image))
        elif not _NUMBER.fullmatch(said):
            raise InputError(
                f"{where} names the identity {said!r}; give its number.",
                code="names-identity-not-a-number",
                value=said,
            )
        else:
            names[int(said)] = name
    return names, corrections


def _choose_name_columns(file: Path, header: list[str]) -> list[str]:
    refuse_repeats(file, header)
    by = [one for one in ("identity", "path", "row") if one in header]
    if "name" not in header or len(by) != 1:
        raise InputError(
            f"{file}: a table of names has the column name, and one of identity, path and row; the columns "
            f"are {brief(', '.join(header)) or 'none'}.",
            code="names-columns-wrong",
            file=file,
            found=tuple(header),
        )
    return ["name", *by]


def _choose_columns(file: Path, header: list[str]) -> list[str]:
    refuse_repeats(file, header)
    if "kind" not in header or ("path" in header) == ("row" in header):
        raise InputError(
            f"{file}: a table of corrections has the column kind, and path or row; the columns are "
            f"{brief(', '.join(header)) or 'none'}.",
            code="corrections-columns-wrong",
            file=file,
            found=tuple(header),
        )
    wanted = (
        ("kind", "path", "other_path", "name") if "path" in header else ("kind", "row", "other_row", "name")
    )
    return [name for name in header if name in wanted]


def _read_texts(table: Path, choose: Choose) -> dict[str, list[str]]:
    """Read the chosen columns as text, whatever a Parquet file has there: missing values are empty."""
    columns = read_some_columns(table, choose)
    with reading(table):
        return {name: [cell_text(value) for value in values] for name, values in columns.items()}


def _finder(n_images: int, paths: Sequence[str] | None) -> Callable[[str, str], int]:
    """From what a line says to a row."""
    rows: dict[str, int] = {}
    repeated: set[str] = set()
    for row, path in enumerate(paths or ()):
        if rows.setdefault(path, row) != row:
            repeated.add(path)

    def find(said: str, where: str) -> int:
        if not said:
            raise InputError(f"{where} names too few images.", code="correction-images-missing")
        if paths is not None:
            if said in repeated:
                raise InputError(
                    f"{where} names {said!r}, and several images have this path; name them by row.",
                    code="correction-path-ambiguous",
                    value=said,
                )
            if said not in rows:
                raise InputError(
                    f"{where} names {said!r}, which is not one of the images.",
                    code="correction-path-unknown",
                    value=said,
                )
            return rows[said]
        row = int(said) if _NUMBER.fullmatch(said) else -1
        if not 0 <= row < n_images:
            raise InputError(
                f"{where} names row {said!r}; rows are 0 to {n_images - 1}.",
                code="correction-row-unknown",
                value=said,
            )
        return row

    return find


def write_correction_table(
    corrections: Sequence[Correction],
    file: str | Path,
    paths: Sequence[str] | None = None,
    *,
    force: bool = False,
) -> None:
    """Corrections as a table that `read_correction_table` reads back, by path where paths are given."""
    lines: list[tuple[str, int, int | None, str]] = []
    for one in corrections:
        if one.kind in ("same", "different"):
            pairs = pairwise(one.images) if one.kind == "same" else combinations(one.images, 2)
            lines += [(one.kind, first, second, "") for first, second in pairs]
        else:
            lines += [(one.kind, image, None, one.name) for image in one.images]
    said: Callable[[int], Any] = int if paths is None else paths.__getitem__
    first, other = ("row", "other_row") if paths is None else ("path", "other_path")
    columns: Columns = {
        "kind": [kind for kind, *_ in lines],
        first: [said(image) for _, image, _, _ in lines],
        other: ["" if image is None else str(said(image)) for _, _, image, _ in lines],
        "name": [name for *_, name in lines],
    }
    with writing_file(file, force=force) as partial:
        if Path(file).suffix.lower() == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet

            pyarrow.parquet.write_table(pa.table(columns), partial)
        elif Path(file).suffix.lower() == ".csv":
            write_csv(partial, columns)
        else:
            raise InputError(
                f"{file}: corrections are written as .csv or .parquet; choose one of these endings.",
                code="corrections-suffix-unknown",
                file=file,
            )

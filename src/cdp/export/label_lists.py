"""Groups as tables and lists: CSV, Parquet, and `list.txt` with `meta.txt`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdp.data.manifest_tables import Columns, locations_from, write_csv
from cdp.errors import InputError
from cdp.export.grouped_images import GroupedImages


def write_group_table(file: Path, grouped: GroupedImages, home: Path, *, discarded: bool = False) -> int:
    """Write `row, path, identity, identity_name, confidence` as .csv or .parquet; how many rows there are.

    Faces that were found on photos have `photo, left, top, right, bottom, score` too.
    `cdp.read_manifest` reads it back where there are paths; relative ones are written to be found from the
    table.

    Args:
        file: to fill, of one of these endings.
        grouped: who is on which image.
        home: the folder that the table will lie in.
        discarded: list the images that are in no group too, as -1.
    """
    rows = np.flatnonzero(grouped.identity >= (-1 if discarded else 0))
    identity = grouped.identity[rows]
    columns: dict[str, Any] = {"row": rows}
    if grouped.images is not None:
        locations = locations_from(grouped.images, home)
        columns["path"] = [locations[row] for row in rows.tolist()]
    columns |= {
        "identity": identity,
        "identity_name": [grouped.name(one) for one in identity.tolist()],
        "confidence": grouped.confidence[rows],
    }
    if file.suffix == ".csv":
        written = {"confidence": [f"{one:.6g}" for one in grouped.confidence[rows]]}
        columns |= {"row": rows.tolist(), "identity": identity.tolist()} | written
        write_csv(file, columns | face_columns(grouped, rows.tolist(), home))
    else:
        import pyarrow as pa
        import pyarrow.parquet

        columns |= face_numbers(grouped, rows.tolist(), home)
        pyarrow.parquet.write_table(pa.table(columns), file)
    return len(rows)


def write_list_and_meta(folder: Path, grouped: GroupedImages, home: Path) -> int:
    """Write `list.txt` and `meta.txt`, a path and a class per line, as the authors' framework reads them.

    Classes are 0, 1, 2, … as training wants them; `identities.csv` says who they are.

    Args:
        folder: to fill.
        grouped: who is on which image; those in no group are left out.
        home: the folder where this will lie in the end.

    Raises:
        InputError: only embeddings are known, or a path holds a line feed.
    """
    images = grouped.located("A list for the authors' framework")
    rows, classes = np.flatnonzero(grouped.identity >= 0).tolist(), grouped.classes
    locations = locations_from(images, home)
    for row in rows:
        if locations[row].splitlines() != [locations[row]] or locations[row] != locations[row].strip():
            raise InputError(
                f"{images.describe(row)}: a list cannot hold a path with line feeds or with spaces at its "
                "ends; rename it, or export csv.",
                code="export-path-has-line-feed",
                row=row,
            )
    (folder / "list.txt").write_text("".join(f"{locations[row]}\n" for row in rows), encoding="utf-8")
    (folder / "meta.txt").write_text("".join(f"{classes[row]}\n" for row in rows), encoding="utf-8")
    write_class_table(folder, grouped)
    write_boxes(folder, grouped, rows, home)
    return len(rows)


_SIDES = ("left", "top", "right", "bottom")
BOXES = "boxes.csv"


def face_numbers(grouped: GroupedImages, rows: Sequence[int], home: Path) -> dict[str, list[Any]]:
    """Return photo, box and score of the faces of some rows; no columns without photos.

    Args:
        grouped: who is on which image.
        rows: which of them.
        home: the folder that paths of photos are written from.
    """
    if grouped.faces is None:
        return {}
    here = os.path.realpath(home)
    faces = [grouped.faces[row] for row in rows]
    columns: dict[str, list[Any]] = {
        "photo": ["" if one is None else os.path.relpath(one.photo, here) for one in faces]
    }
    for at, side in enumerate(_SIDES):
        columns[side] = [math.nan if one is None else one.box[at] for one in faces]
    columns["score"] = [math.nan if one is None else one.score for one in faces]
    return columns


def face_columns(grouped: GroupedImages, rows: Sequence[int], home: Path) -> dict[str, list[Any]]:
    """Return the same as a CSV file has it: two decimals, and nothing where nothing is known."""
    columns = face_numbers(grouped, rows, home)
    for name in (*_SIDES, "score") if columns else ():
        digits = 4 if name == "score" else 2
        columns[name] = ["" if math.isnan(one) else f"{one:.{digits}f}" for one in columns[name]]
    return columns


def write_boxes(folder: Path, grouped: GroupedImages, rows: Sequence[int], home: Path) -> None:
    """Write `boxes.csv`, a line per image in order, for formats without boxes; nothing without photos."""
    columns = face_columns(grouped, rows, home)
    if columns:
        numbers = [int(grouped.identity[row]) for row in rows]
        named: Columns = {"row": rows, "identity": numbers, "name": [grouped.name(one) for one in numbers]}
        write_csv(folder / BOXES, named | columns)


def write_class_table(folder: Path, grouped: GroupedImages) -> None:
    """Write `identities.csv`: class, identity, name, and how many images."""
    people = grouped.people.tolist()
    counts = np.bincount(grouped.classes[grouped.identity >= 0], minlength=len(people)).tolist()
    columns = {
        "class": range(len(people)),
        "identity": people,
        "name": [grouped.name(one) for one in people],
        "images": counts,
    }
    write_csv(folder / "identities.csv", columns)

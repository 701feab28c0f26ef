"""Identities that are names: comparable between two sets of views, which their numbers are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cdp.data.array_files import open_npy, read_npz, reading
from cdp.data.image_names import read_lines
from cdp.types.arrays import AnyArray


def read_identity_names(path: str | Path) -> AnyArray | None:
    """The identities of views or of an identities file as they are written there; None where they are numbers.

    Views number the names of each file by themselves, so number 3 of one file and number 3 of another may be two
    people. Names that are the same in both files are one person.
    """
    place = Path(path)
    with reading(place):
        raw = _read_raw(place)
    if raw is None or raw.dtype.kind not in "US":
        return None
    names = raw.astype(str).ravel()
    if all(name.removeprefix("-").isdecimal() for name in names):
        return None
    return names


def _read_raw(place: Path) -> AnyArray | None:
    if place.is_dir():
        candidates = [place / name for name in ("identities.npy", "identities.txt", "meta.txt")]
        found = [file for file in candidates if file.is_file()]
        return _read_raw(found[0]) if found else None
    if place.suffix == ".npy":
        return open_npy(place)
    if place.suffix == ".npz":
        return read_npz(place).get("identities")
    if place.suffix == ".parquet":
        import pyarrow.parquet as pq

        columns = [name for name in pq.read_schema(place).names if name in ("identity", "identities")]
        if not columns:
            return None
        return np.array([str(value) for value in pq.read_table(place, columns=columns[-1:])[0].to_pylist()])
    if place.suffix == ".bin":
        return None
    return np.array([line.strip() for line in read_lines(place)])

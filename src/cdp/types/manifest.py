"""Manifest: which images, in which order, with which identity; the row number is the image id everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError, name_rows, rows_not_utf8
from cdp.types.arrays import ByteArray, LongArray, read_only


@dataclass(frozen=True, eq=False)
class Manifest:
    """n images in a fixed order: their locations and identities, without pixels.

    Attributes:
        locations: per row a file path, or `ARCHIVE!ENTRY` for an image in a .zip, .tar or .rec file; relative
            ones are relative to `root`.
        identities: int64 (n,), -1 = unknown. The numbers need not be dense: a part of a manifest keeps the
            numbers of the whole, so that two parts can be compared.
        names: identity number -> name, where known; "" for a number that has none.
        root: the folder that relative locations start from.
        turns: uint8 (n,), quarter turns counterclockwise (0..3) that the reader applies, or None for none.

    Examples:
        >>> from cdp import Manifest
        >>> images = Manifest(("anna/1.jpg", "anna/2.jpg", "bob/1.jpg"), [0, 0, 1], ("Anna", "Bob"))
        >>> images.n_identities, images.describe(2)
        (2, 'row 2 (bob/1.jpg)')
    """

    locations: tuple[str, ...]
    identities: LongArray
    names: tuple[str, ...] | None = None
    root: str = "."
    turns: ByteArray | None = None

    def __post_init__(self) -> None:
        locations = tuple(self.locations)
        if not locations:
            raise InputError("Manifest: there are no images.", code="manifest-empty")
        if set(map(type, locations)) != {str} or "" in locations:
            odd = [row for row, path in enumerate(locations) if not isinstance(path, str) or not path]
            raise InputError(
                f"Manifest: {name_rows(odd)} (counted from 0) give no location; "
                "write a file path or ARCHIVE!ENTRY for each.",
                code="manifest-locations-missing",
                row=odd[0],
                count=len(odd),
            )
        if odd := rows_not_utf8((*locations, str(self.root))):
            is_row = odd[0] < len(locations)
            what = (
                f"the paths of {name_rows(odd)} (counted from 0) are"
                if is_row
                else f"the folder {self.root} is"
            )
            raise InputError(
                f"Manifest: {what} not UTF-8, and no table can hold that; rename it.",
                code="manifest-not-utf8",
                **({"row": odd[0]} if is_row else {"folder": self.root}),
            )
        identities = _as_whole_numbers("identities", self.identities, len(locations))
        low = np.flatnonzero(identities < -1)
        if low.size:
            raise InputError(
                f"Manifest: {name_rows(low)} (counted from 0) have an identity below -1; "
                "identities are 0, 1, 2, …, and -1 where unknown.",
                code="manifest-identity-negative",
                row=low[0],
                count=len(low),
            )
        names = None if self.names is None else tuple(self.names)
        if names is not None and int(identities.max()) >= len(names):
            raise InputError(
                f"Manifest: identity {int(identities.max())} has no name ({len(names):,} names given); "
                "give one name per identity number, or none.",
                code="manifest-identity-unnamed",
                identity=int(identities.max()),
                names=len(names),
            )
        object.__setattr__(self, "locations", locations)
        object.__setattr__(self, "identities", read_only(identities, np.int64))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "root", str(self.root))
        if self.turns is not None:
            turns = _as_whole_numbers("turns", self.turns, len(locations))
            wrong = np.flatnonzero((turns < 0) | (turns > 3))
            if wrong.size:
                raise InputError(
                    f"Manifest: {name_rows(wrong)} (counted from 0) have a turn outside 0..3 quarter turns.",
                    code="manifest-turn-out-of-range",
                    row=wrong[0],
                    count=len(wrong),
                )
            object.__setattr__(self, "turns", read_only(turns, np.uint8))

    @property
    def digest(self) -> str:
        """SHA-256 of locations, identities and turns: the same for the same images in the same order."""
        digest = hashlib.sha256("\0".join(self.locations).encode())
        digest.update(self.identities.tobytes())
        digest.update(b"" if self.turns is None else self.turns.tobytes())
        return digest.hexdigest()

    @property
    def n_images(self) -> int:
        """Number of rows."""
        return len(self.locations)

    @property
    def n_identities(self) -> int:
        """Number of different known identities."""
        return len(np.unique(self.identities[self.identities >= 0]))

    @property
    def sizes(self) -> LongArray:
        """Images per known identity, int64 (n_identities,), in the order of the identity numbers."""
        return np.unique(self.identities[self.identities >= 0], return_counts=True)[1].astype(np.int64)

    @property
    def classes(self) -> LongArray:
        """The identities as 0..n_identities-1 in the order of their numbers, int64 (n,); -1 = unknown."""
        classes = np.full(self.n_images, -1, np.int64)
        known = self.identities >= 0
        classes[known] = np.unique(self.identities[known], return_inverse=True)[1]
        return classes

    def take(self, rows: npt.ArrayLike) -> Manifest:
        """Select images by row numbers or mask, in that order; identities keep their numbers."""
        index = np.arange(self.n_images)[np.asarray(rows)]
        return Manifest(
            locations=tuple(self.locations[row] for row in index.tolist()),
            identities=self.identities[index],
            names=self.names,
            root=self.root,
            turns=None if self.turns is None else self.turns[index],
        )

    def describe(self, row: int) -> str:
        """`row 17 (faces/anna/3.jpg)`, for messages about one image."""
        return f"row {row} ({self.locations[row]})"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a .csv or .parquet table (`path`, `identity`, …) that `Manifest.load` reads back.

        Relative locations are written relative to the table's folder. The file appears whole or not at all.
        """
        from cdp.data.manifest_tables import write_table

        write_table(self, path, force=force)

    @classmethod
    def load(cls, path: str | Path) -> Manifest:
        """Return a manifest from a .csv or .parquet table; `cdp.read_manifest` also reads images in place."""
        from cdp.data.manifest_tables import read_table

        return read_table(path)

    def __len__(self) -> int:
        return self.n_images

    def __repr__(self) -> str:
        unknown = int(np.count_nonzero(self.identities < 0))
        without = f", {unknown:,} images without" if unknown else ""
        return f"Manifest: {self.n_images:,} images, {self.n_identities:,} identities{without}"


def _as_whole_numbers(what: str, given: Sequence[int] | npt.NDArray[Any], n_images: int) -> npt.NDArray[Any]:
    array = np.asarray(given)
    if array.shape != (n_images,):
        raise InputError(
            f"Manifest: {what} have shape {array.shape} for {n_images:,} images; one per row is needed.",
            code="manifest-shape-wrong",
            what=what,
            expected=n_images,
            found=array.shape,
        )
    if array.dtype.kind not in "iu":
        raise InputError(
            f"Manifest: {what} must be whole numbers, got {array.dtype}.",
            code="manifest-not-whole",
            what=what,
            found=str(array.dtype),
        )
    if array.dtype.kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError(
            f"Manifest: {what} must fit 64-bit signed numbers.", code="manifest-too-large", what=what
        )
    return array

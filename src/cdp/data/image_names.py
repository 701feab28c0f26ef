"""Which row of the embeddings is an image called by name, and which names a list holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cdp.errors import InputError
from cdp.storage.array_files import read_lines


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in the order of their first occurrence."""
    return [name for name, count in Counter(names).items() if count > 1]


def name_some(names: Sequence[str], most: int = 5) -> str:
    """Write `a, b and 240 more` for an error message."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def ending_parts(name: str) -> list[str]:
    """`a/b/c.jpg` as c.jpg, b/c.jpg, a/b/c.jpg: all a list may call an image, shortest first."""
    parts = PurePosixPath(name.strip().replace("\\", "/")).parts
    parts = tuple(part for part in parts if part != "/")
    return ["/".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]


def _bare(name: str) -> str:
    """Strip the file extension, before or after a `#`: a.jpg#7 and a#7.jpg both become a#7."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + "#".join(part.rpartition(".")[0] or part for part in file.split("#"))


@dataclass(frozen=True, eq=False)
class ImageNames:
    """The names of the embedded images, to be looked up by any ending of their path.

    `lfw/Ann_Lee/Ann_Lee_0001.jpg` is found as itself, as `Ann_Lee/Ann_Lee_0001.jpg` and as
    `Ann_Lee_0001.jpg`, as long as only one image ends so. Where no image has the very name, one that differs
    in nothing but its file extension does: crops are often kept as .png.

    Attributes:
        names: one per row of the embeddings.
        source: where the names were read, for error messages.
    """

    names: tuple[str, ...]
    source: str
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows: dict[str, int] = {}
        for row, name in enumerate(self.names):
            endings = ending_parts(name)
            # An ending that two images share finds neither of them.
            for ending in endings + [f"{_bare(ending)}.*" for ending in endings]:
                rows[ending] = -1 if ending in rows else row
        object.__setattr__(self, "_rows", rows)
        twice = repeated(self.names)
        if twice:
            raise InputError(
                f"{self.source}: {name_some(twice)} is listed twice; one row per image.",
                code="image-name-repeated",
                file=self.source,
                names=tuple(twice),
            )

    def row(self, name: str, asked_by: str) -> int:
        """Return the row of an image.

        Args:
            name: the image's path or an ending of it.
            asked_by: the file and line that name the image, for the error message.
        """
        wanted = ending_parts(name)
        row = -2
        if wanted:
            row = self._rows.get(wanted[-1], self._rows.get(f"{_bare(wanted[-1])}.*", -2))
        if row == -1:
            raise InputError(
                f"{asked_by} names {name}, and several images of {self.source} end so.",
                code="image-name-ambiguous",
                name=name,
                source=self.source,
                asked_by=asked_by,
            )
        if row < 0:
            raise InputError(
                f"{asked_by} names {name}, which is not among the {len(self.names):,} images of "
                f"{self.source}; embed it, or take it off the list.",
                code="image-name-unknown",
                name=name,
                source=self.source,
                asked_by=asked_by,
            )
        return row


def read_image_names(file: Path) -> ImageNames:
    """Return a list of images, one path per line, in the order of the embeddings."""
    return ImageNames(tuple(line.strip() for line in read_lines(file)), str(file))

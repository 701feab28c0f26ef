"""View models of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdp.web.page_views import Chart, Swatch, Table, Tile
from cdp.web.report.report_inputs import SIDE


@dataclass(frozen=True)
class Box:
    """One image of a gallery: its picture as a data URI, or its path, or a question mark without either.

    Attributes:
        link: address of its photo.
        row: of the image in the collection.
    """

    hint: str
    kind: str
    name: str = ""
    confidence: str = ""
    source: str = ""
    side: int = SIDE
    link: str = ""
    row: int = -1


@dataclass(frozen=True)
class Run:
    """Images side by side, and how many more there are."""

    boxes: Sequence[Box]
    more: int


@dataclass(frozen=True)
class GalleryRow:
    """A group or an identity with its images; a gap separates the runs."""

    name: str
    about: str
    runs: Sequence[Run]


@dataclass(frozen=True)
class Gallery:
    """Rows of images with a title."""

    title: str
    reading: str
    rows: Sequence[GalleryRow]


@dataclass(frozen=True)
class Section:
    """A part of the page; what is empty is left out. Without a `link` in the navigation, only the note.

    Attributes:
        after: a sentence below the galleries.
    """

    name: str
    link: str
    title: str
    lead: str = ""
    text: str = ""
    tiles: Sequence[Tile] = ()
    charts: Sequence[Chart] = ()
    wide: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    recipe: str = ""
    legend: Sequence[Swatch] = ()
    note: str = ""
    galleries: Sequence[Gallery] = ()
    after: str = ""


@dataclass(frozen=True)
class ReportPage:
    """The whole report; `counts` are the sizes of the parts, `notes` warnings on top."""

    title: str
    heading: str
    counts: str
    notes: Sequence[str]
    sections: Sequence[Section]
    version: str

"""View models of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdp.web.page_views import Chart, Swatch, Table, Tile
from cdp.web.report.artifacts import SIDE


@dataclass(frozen=True)
class Box:
    """One image of a gallery: its picture, a question mark if it cannot be read, or its path if none can.

    Attributes:
        hint: path, identity and label in words.
        kind: `other`, `missed` or empty.
        name: its path; empty where there are pictures.
        source: the picture as a data URI; empty if there is none.
    """

    hint: str
    kind: str
    name: str = ""
    confidence: str = ""
    source: str = ""
    side: int = SIDE


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
class Folded:
    """A table or a text that is shown on demand."""

    title: str
    table: Table | None = None
    text: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page; what is empty is left out.

    Attributes:
        name: its anchor.
        link: its name in the navigation; empty = neither link nor title, the note alone.
        charts: side by side; `wide` ones below each other.
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
    folded: Sequence[Folded] = ()
    legend: Sequence[Swatch] = ()
    note: str = ""
    galleries: Sequence[Gallery] = ()


@dataclass(frozen=True)
class ReportPage:
    """The whole report.

    Attributes:
        title: of the window.
        heading: of the page.
        counts: how many images of how many identities each part has.
        notes: warnings on top.
        version: of cdp.
    """

    title: str
    heading: str
    counts: str
    notes: Sequence[str]
    sections: Sequence[Section]
    version: str

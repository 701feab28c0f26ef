"""View models that several pages share: what a chart, a table and a tile show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Html(str):
    """Text that is markup already, so that neither templates nor `svg.element` escape it."""

    def __html__(self) -> str:
        """Return what templates take as it is."""
        return str(self)


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its length and interval, its color class, and a remark next to it."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    kind: str = "cdp"
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One curve, or one bar per bin: its name, its color class, its values."""

    name: str
    kind: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Swatch:
    """An entry of a legend: a color class and its meaning."""

    kind: str
    words: str


@dataclass(frozen=True)
class Chart:
    """A picture as SVG and how to read it; with a `scale` below, the picture scrolls sideways."""

    picture: Html
    caption: str
    title: str = ""
    wide: bool = False
    legend: Sequence[Swatch] = ()
    scale: Html | None = None


@dataclass(frozen=True)
class Table:
    """Cells as text; the first `words` columns are words, the others numbers. A `fold` title hides it."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    words: int = 1
    fold: str = ""


@dataclass(frozen=True)
class Tile:
    """One number in large type with its name."""

    value: str
    name: str
    note: str = ""

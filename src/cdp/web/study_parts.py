"""Pieces of HTML for the page of a study, which cdp_lab puts together itself, in the looks of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdp.types.arrays import FloatArray
from cdp.web.page_views import Chart, Html, Table
from cdp.web.rendering import packaged, render, render_part
from cdp.web.report.mediator_section import weights_chart
from cdp.web.svg import element, join


def html_document(title: str, *body: str | None) -> str:
    """Return a whole HTML document that needs nothing but itself."""
    return render("standalone.html", title=title, style=style_sheet(), content=join(body))


def style_sheet() -> Html:
    """Return the style of all pages."""
    return packaged("style.css")


def paragraph(*pieces: str | None, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return element("p", *pieces, class_=class_)


def section(name: str, title: str, *pieces: str | None) -> Html:
    """Return a part of the page."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *pieces, id=name, aria_labelledby=f"{name}-title")


def side_by_side(*pieces: str | None) -> Html:
    """Figures next to one another where there is room."""
    return element("div", *pieces, class_="grid")


def figure(picture: Html, caption: str, title: str) -> Html:
    """Return a picture and how to read it."""
    return render_part("figure", Chart(picture, caption, title))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", words: int = 1) -> Html:
    """Return a table; the first `words` columns are words, the others numbers."""
    return render_part("table", Table(header, rows, caption, words))


def heat_map(weights: FloatArray, columns: Sequence[str], blocks: Mapping[str, Sequence[int]]) -> Html:
    """Return the first layer of a mediator as colors."""
    return render_part("figure", weights_chart(weights, columns, blocks))

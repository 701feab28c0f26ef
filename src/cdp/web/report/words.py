"""Numbers as people read them, and the sentences and tables that several sections share."""

from __future__ import annotations

from collections.abc import Sequence

from cdp.web.report.markup import Html, element, join

UNKNOWN = "—"


def percent(value: float | None) -> str:
    """`93.7 %`."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def count(value: float | None) -> str:
    """`12,345`."""
    return UNKNOWN if value is None else f"{int(value):,}"


def counted(value: int, singular: str, plural: str | None = None) -> str:
    """`1 group`, `12 groups`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def seconds(value: float | None) -> str:
    """`0.4 s`, `34 s`, `8 min 32 s`, `2 h 05 min`."""
    if value is None:
        return UNKNOWN
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def size_in_memory(value: float | None) -> str:
    """`812 MB`, `1.9 GB`, in powers of ten as --memory-budget is."""
    if value is None:
        return UNKNOWN
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None, words: int = 1
) -> Html:
    """A table in a box that scrolls by itself; the first `words` columns are words, the others numbers."""

    def line(cells: Sequence[str], scope: str) -> Html:
        made = []
        for at, cell in enumerate(cells):
            tag, of = ("th", scope) if scope == "col" or at == 0 else ("td", None)
            made.append(element(tag, cell, scope=of, class_=None if at < words else "n"))
        return element("tr", *made)

    inner = element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", line(header, "col")),
        element("tbody", *(line(row, "row") for row in rows)),
    )
    return scrolling(inner, caption or "table")


def scrolling(inner: Html, name: str) -> Html:
    """A box that scrolls sideways by itself, so that the page does not."""
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=name)


def folded(title: str, inner: Html) -> Html:
    """What is shown only when it is asked for."""
    return element("details", element("summary", title), inner)


def tile(value: str, name: str, note: str = "") -> Html:
    """One number in large type with what it is."""
    remark = element("small", note) if note else None
    return element("div", element("b", value), element("span", name), remark, class_="tile")


def paragraph(*pieces: str | None, class_: str | None = None) -> Html:
    """A paragraph."""
    return element("p", *pieces, class_=class_)


def section(name: str, title: str, *pieces: str | None) -> Html:
    """A part of the page that the navigation leads to."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *pieces, id=name, aria_labelledby=f"{name}-title")


def figure(
    picture: str,
    caption: str,
    title: str | None = None,
    wide: bool = False,
    entries: Sequence[tuple[str, str]] = (),
) -> Html:
    """A picture, what its colors mean (as for `legend`), and how to read it."""
    heading = element("h3", title) if title else None
    colors = legend(entries) if entries else None
    kind = "wide" if wide else None
    return element("figure", heading, picture, colors, element("figcaption", caption), class_=kind)


def side_by_side(*pieces: str | None) -> Html:
    """Figures beside one another where there is room."""
    return element("div", join(pieces), class_="grid")


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """Swatches and their meaning: (CSS class, words)."""
    swatches = [
        element("span", element("i", class_=f"swatch {kind}", aria_hidden="true"), words)
        for kind, words in entries
    ]
    return element("p", *swatches, class_="legend")

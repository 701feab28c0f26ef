"""What was said so far, with the way back; and what applying it changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdp.web.report.markup import Html, element
from cdp.web.review.page_parts import View, button, form, nothing, page, pager, shots
from cdp.web.words import counted, paragraph

ENTRIES_PER_PAGE = 30


@dataclass(frozen=True)
class Told:
    """Entries of the journal that were written at once, as they are shown.

    Attributes:
        numbers: of the entries.
        words: what was said.
        when: at what time, in UTC.
        source: by whom.
        images: of whom, a few of them.
        undone: whether it still counts.
        waits: whether it is not applied yet.
        is_undo: whether it took something back.
    """

    numbers: tuple[int, ...]
    words: str
    when: str
    source: str
    images: tuple[int, ...]
    undone: bool
    waits: bool
    is_undo: bool = False


def history_page(view: View, told: Sequence[Told], number: int, notice: Html | None) -> str:
    """The journal, the latest first."""
    n_pages = max(1, -(-len(told) // ENTRIES_PER_PAGE))
    number = min(max(number, 1), n_pages)
    shown = told[(number - 1) * ENTRIES_PER_PAGE : number * ENTRIES_PER_PAGE]
    return page(
        view,
        "history",
        element("h1", "What was said"),
        paragraph(
            f"{counted(len(told), 'answer')}, the latest first. Nothing is ever removed: to undo is an entry of its own.",
            class_="note",
        ),
        *(_entry(view, one) for one in shown),
        None if shown else nothing("Nothing yet."),
        pager(view, ["history"], number, n_pages),
        notice=notice,
    )


def _entry(view: View, told: Told) -> Html:
    state = "undone" if told.undone else "waits for Apply" if told.waits else ""
    undo = (
        None if told.undone or told.is_undo else form(view, "undo", button("Undo"), number=list(told.numbers))
    )
    when = told.when[:19].replace("T", " ")
    who = element(
        "div",
        element("b", told.words),
        element("span", f"{when} UTC" + (f", {told.source}" if told.source else "")),
        element("em", state, class_="badge") if state else None,
        class_="who said",
    )
    kind = "group undone" if told.undone else "group"
    return element(
        "div",
        who,
        shots(view, told.images, selectable=False),
        undo,
        class_=kind,
        data_card=True,
        tabindex="-1",
    )


def changes_page(
    view: View, sentences: Sequence[tuple[str, tuple[int, ...]]], summary: str, notice: Html | None
) -> str:
    """What applying the answers changed: a sentence per event, with images."""
    rows = [
        element(
            "div",
            element("div", element("b", words), class_="who said"),
            shots(view, images, selectable=False),
            class_="group",
            data_card=True,
            tabindex="-1",
        )
        for words, images in sentences
    ]
    go_on = element("a", "Go on with the questions", href=view.address(), class_="button")
    return page(
        view,
        "history",
        element("h1", "What changed"),
        paragraph(summary),
        *rows,
        paragraph(go_on),
        notice=notice,
    )

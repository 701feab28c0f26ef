"""The first page: what is most worth asking, a row of images on either side, yes or no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdp.web.report.markup import Html, element
from cdp.web.review.page_parts import View, button, field, form, nothing, page, person_link, shots
from cdp.web.review.pair_evidence import evidence_in_words
from cdp.web.words import counted, paragraph


@dataclass(frozen=True)
class Asked:
    """One question as it is shown: are these images and those one person?

    Attributes:
        key: says which question it is, however often it is asked.
        title: the question in words.
        one: rows of the images on one side.
        other: rows on the other side.
        within: whether both sides are in one group now, so that "no" splits it.
        groups: the groups that the images are in, one or two.
        sizes: how many images either side stands for.
        why: why it is asked.
    """

    key: str
    title: str
    one: tuple[int, ...]
    other: tuple[int, ...]
    within: bool
    groups: tuple[int, ...]
    sizes: tuple[int, int]
    why: str


def question_page(view: View, questions: Sequence[Asked], notice: Html | None) -> str:
    """The questions, the most valuable first."""
    cards = [_card(view, question) for question in questions]
    body = cards or [
        nothing(
            "No question is left. Apply the answers if some wait, look through the groups, or export them: cdp export."
        )
    ]
    return page(view, "questions", *body, notice=notice)


def _card(view: View, asked: Asked) -> Html:
    words = evidence_in_words(view.evidence.between(asked.one, asked.other))
    no = "No, split here" if asked.within else "No, two people"
    actions = element(
        "div",
        button("Yes, one person", "y", kind="main", value="same"),
        button(no, "n", kind="main", value="split" if asked.within else "different"),
        button("Another time", "o", value="later"),
        element("span", class_="gap"),
        element("span", "Selected:", class_="more"),
        button("Not this person", "x", value="out"),
        button("Reject", "r", value="reject"),
        class_="actions",
    )
    sides = element(
        "div",
        _side(view, asked, 0),
        element("span", "?", class_="versus", aria_hidden="true"),
        _side(view, asked, 1),
        class_="sides",
    )
    return element(
        "article",
        element("h2", asked.title),
        paragraph(asked.why, " ", words, class_="note"),
        form(
            view,
            "answer",
            sides,
            actions,
            one=[row for row in asked.one if row not in view.leaving] or list(asked.one),
            other=[row for row in asked.other if row not in view.leaving] or list(asked.other),
            question=asked.key,
        ),
        class_="card",
        data_card=True,
        tabindex="-1",
    )


def _side(view: View, asked: Asked, side: int) -> Html:
    rows, size = (asked.one, asked.other)[side], asked.sizes[side]
    group = asked.groups[min(side, len(asked.groups) - 1)]
    if group < 0:
        heading: str = "In no group"
    elif asked.within:
        others = "Others of the group" if size > 1 else "Another of the group"
        heading = others if side == 1 and asked.sizes[0] == 1 else counted(size, "image")
    else:
        heading = person_link(view, group)
    more = None
    if size > len(rows):
        place = view.address("group", group)
        more = element("a", f"{len(rows)} of {size:,} shown; all of the group", href=place, class_="more")
    name = "other" if side else "one"
    return element("div", element("h3", heading), shots(view, rows, side=name), more, class_="side")


def said(view: View, words: str, numbers: Sequence[int], details: str = "") -> Html:
    """What was just put on disk, with the way back."""
    undo = form(view, "undo", button("Undo", "u"), number=list(numbers)) if numbers else None
    detail = element("span", details, class_="more") if details else None
    return element("div", element("span", words), detail, undo, class_="notice", role="status")


def refused(words: str) -> Html:
    """Why something was not done."""
    return element("div", element("span", words), class_="notice refused", role="alert")


def name_field(names: Sequence[str], value: str = "") -> Html:
    """Where a name is typed; the names that are there are offered."""
    options = [element("option", value=name) for name in names]
    text = field(
        "text",
        "name",
        value,
        placeholder="Name",
        aria_label="Name",
        list="names",
        maxlength=200,
        data_key="e",
        autocomplete="off",
    )
    return element("span", text, element("datalist", *options, id="names"))

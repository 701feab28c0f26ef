"""What all review pages share: the frame, thumbnails to select, buttons with their keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdp.types.arrays import FloatArray
from cdp.web.report.markup import Html, element, join
from cdp.web.review.group_index import GroupIndex
from cdp.web.review.pair_evidence import PairEvidence
from cdp.web.words import counted, paragraph

KEYS = (
    ("j k", "next, previous row"),
    ("← →", "next, previous image; Shift selects on the way"),
    ("Space", "select the image"),
    ("Enter", "see it large; Escape closes"),
    ("*", "select all of the row, or none"),
    ("y n", "yes, no"),
    ("o", "another time"),
    ("s", "split off what is selected, as one other person"),
    ("x", "take out what is selected: not this person"),
    ("m", "move what is selected to another person"),
    ("g", "merge the selected groups"),
    ("c", "all shown are one person"),
    ("e", "name"),
    ("r", "reject: no face, or in no group"),
    ("u", "undo"),
    ("a", "apply the answers"),
    ("/", "search"),
    ("1 2 3", "questions, groups, history"),
    ("[ ]", "page back, page on"),
    ("?", "these keys"),
)


@dataclass(frozen=True, eq=False)
class View:
    """What a page is drawn from: the groups as they are now, and what waits to be applied.

    Attributes:
        title: what the collection is called.
        prefix: what every address starts with.
        index: the groups.
        evidence: what the models said.
        paths: where the images lie, if known.
        has_pictures: whether they can be shown.
        waiting: how many corrections wait to be applied.
        touched: the groups that they speak of.
        leaving: the images that they take out of their group.
        progress: how far the review is, in words, and as a share.
        has_report: whether there is a report to link to.
    """

    title: str
    prefix: str
    index: GroupIndex
    evidence: PairEvidence
    paths: Sequence[str] | None
    has_pictures: bool
    waiting: int
    touched: frozenset[int]
    leaving: frozenset[int]
    progress: tuple[str, float]
    has_report: bool

    @property
    def confidence(self) -> FloatArray:
        """How firmly every image is tied to its group."""
        return self.index.confidence

    def person(self, number: int) -> str:
        """What a group is called: its name, else its number."""
        return self.index.names.get(number) or f"person {number}"

    def address(self, *parts: object, **query: object) -> str:
        """The address of a page of this server."""
        from urllib.parse import urlencode

        asked = urlencode({key: value for key, value in query.items() if value not in ("", None)})
        return "/".join((self.prefix, *map(str, parts))) + (f"?{asked}" if asked else "")


def page(view: View, here: str, *body: str | None, notice: Html | None = None, search: str = "") -> str:
    """A whole page in the looks of the report."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{view.title}: review"),
        element("link", rel="stylesheet", href=view.address("style.css")),
        element("link", rel="icon", href=view.address("icon.svg")),
        element("script", src=view.address("review.js"), defer=True),
    )
    footer = element(
        "footer",
        "Every answer is on disk before this page says so.",
        element("span", " Press ", element("kbd", "?"), " for the keys.", class_="hint"),
    )
    main = element("main", notice, *body)
    inner = element(
        "body", _navigation(view, here, search), main, footer, _keys(), _viewer(), data_prefix=view.prefix
    )
    return f"<!doctype html>\n{element('html', head, inner, lang='en')}\n"


def _navigation(view: View, here: str, search: str) -> Html:
    places = [
        ("questions", "Questions", "1", ""),
        ("groups", "Groups", "2", "groups"),
        ("history", "History", "3", "history"),
    ]
    links = [
        element(
            "a",
            words,
            href=view.address(path),
            data_key=key,
            aria_current="page" if name == here else None,
            title=f"key {key}",
        )
        for name, words, key, path in places
    ]
    if view.has_report:
        links.append(element("a", "Report", href=view.address("report"), target="_blank", rel="noopener"))
    find = element(
        "form",
        field(
            "search",
            "find",
            search,
            placeholder="Name or number",
            aria_label="Search groups by name or number",
            data_key="/",
        ),
        method="get",
        action=view.address("groups"),
        class_="find",
        role="search",
    )
    words, share = view.progress
    meter = element(
        "span",
        element("progress", value=f"{share:.4f}", max="1", aria_label="Progress"),
        element("span", words),
        class_="progress",
    )
    apply = form(
        view,
        "apply",
        button(
            "Apply" + (f" {view.waiting:,}" if view.waiting else ""),
            "a",
            kind="main" if view.waiting else "",
            disabled=not view.waiting,
        ),
        class_="apply",
    )
    return element(
        "nav",
        element("div", element("b", view.title), *links, find, meter, apply),
        aria_label="Pages",
        class_="top",
    )


def _keys() -> Html:
    rows = [element("div", element("dt", *_as_keys(keys)), element("dd", words)) for keys, words in KEYS]
    close = element("button", "Close", type="button", data_close=True)
    return element("dialog", element("h2", "Keys"), element("dl", *rows), close, id="keys", aria_label="Keys")


def _as_keys(keys: str) -> list[Html]:
    return [element("kbd", one) for one in keys.split()]


def _viewer() -> Html:
    inner = [
        element("img", alt=""),
        element("p", class_="note"),
        element("button", "Close", type="button", data_close=True),
    ]
    return element("dialog", *inner, id="viewer", aria_label="Large picture")


def form(view: View, action: str, *inner: str | None, class_: str | None = None, **hidden: object) -> Html:
    """A form that posts to an action; hidden fields that are lists are repeated."""
    fields = []
    for name, value in hidden.items():
        values = value if isinstance(value, list | tuple) else [value]
        fields += [field("hidden", name, str(one)) for one in values]
    return element("form", *fields, *inner, method="post", action=view.address("do", action), class_=class_)


def field(kind: str, name: str, value: str = "", **attributes: str | float | bool | None) -> Html:
    """An input of a form."""
    return element("input", type=kind, name=name, value=value, **attributes)


def button(
    words: str, key: str = "", *, kind: str = "", disabled: bool = False, value: str | None = None
) -> Html:
    """A button that shows its key; `value` tells several buttons of one form apart."""
    return element(
        "button",
        words,
        element("kbd", key) if key else None,
        type="submit",
        name="how" if value is not None else None,
        value=value,
        class_=kind or None,
        data_key=key or None,
        disabled=disabled,
    )


def shots(view: View, rows: Iterable[int], *, selectable: bool = True, side: str = "") -> Html:
    """Images side by side, each to be selected; by row number where there is no picture."""
    return element("div", *(_shot(view, int(row), selectable, side) for row in rows), class_="shots")


def _shot(view: View, row: int, selectable: bool, side: str) -> Html:
    group = int(view.index.identity[row])
    path = "" if view.paths is None else view.paths[row]
    certain = f"{view.confidence[row]:.2f}" if group >= 0 else ""
    hint = (
        f"image {row}"
        + (f", {path}" if path else "")
        + (f", confidence {certain}" if certain else ", in no group")
    )
    kind = "shot leaving" if row in view.leaving else "shot"
    hint += ", leaves this group with Apply" if row in view.leaving else ""
    picture: Html
    if view.has_pictures:
        made = element(
            "img",
            src=view.address("thumbnail", row),
            alt=hint,
            title=hint,
            width=96,
            height=96,
            loading="lazy",
            decoding="async",
        )
        picture = made
    else:
        name = path.rpartition("/")[2] if path else ""
        picture = element(
            "span", element("b", f"{row}"), element("i", name) if name else None, class_="box", title=hint
        )
    zoom = (
        element(
            "button", "⤢", type="button", class_="zoom", tabindex="-1", aria_label=f"see image {row} large"
        )
        if view.has_pictures
        else None
    )
    if not selectable:
        return element("span", picture, zoom, class_=kind, data_row=str(row))
    # Only what is not nearly certain is worth a number on the picture.
    shown = element("small", certain) if group >= 0 and view.confidence[row] < 0.995 else None
    check = field("checkbox", "image", str(row), aria_label=hint, data_side=side or None)
    return element("label", check, picture, shown, zoom, class_=kind, data_row=str(row))


def person_link(view: View, number: int) -> Html:
    """A group's name, leading to it, with how many images it has."""
    waits = element("em", "waits for Apply", class_="badge") if number in view.touched else None
    size = counted(view.index.size(number), "image")
    link = element("a", view.person(number), href=view.address("group", number))
    return join([link, element("span", f" {size}", class_="more"), waits])


def pager(view: View, path: Sequence[object], number: int, n_pages: int, **query: object) -> Html | None:
    """Links to the pages before and after."""
    if n_pages <= 1:
        return None

    def link(words: str, to: int, key: str) -> Html:
        if not 1 <= to <= n_pages:
            return element("span", words, class_="more")
        return element("a", words, href=view.address(*path, **query, page=to), data_key=key)

    return element(
        "p",
        link("← before", number - 1, "["),
        element("span", f"page {number:,} of {n_pages:,}"),
        link("after →", number + 1, "]"),
        class_="pager",
    )


def nothing(words: str) -> Html:
    """A sentence where there is nothing to show."""
    return paragraph(words, class_="lead")

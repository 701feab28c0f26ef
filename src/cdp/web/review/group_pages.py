"""All groups, page by page; and one group with everything that can be done to it."""

from __future__ import annotations

import numpy as np

from cdp.web.report.markup import Html, element, join
from cdp.web.review.group_index import ORDERS
from cdp.web.review.page_parts import View, button, field, form, nothing, page, pager, person_link, shots
from cdp.web.review.pair_evidence import evidence_in_words
from cdp.web.review.question_page import name_field
from cdp.web.words import counted, paragraph

GROUPS_PER_PAGE = 25
IMAGES_PER_PAGE = 200
_IN_A_ROW = 10
_MOST_NAMES = 500


def groups_page(view: View, order: str, text: str, number: int, notice: Html | None) -> str:
    """Rows of groups to look through, select and merge."""
    found = view.index.listed(order, text)
    n_pages = max(1, -(-len(found) // GROUPS_PER_PAGE))
    number = min(max(number, 1), n_pages)
    shown = found[(number - 1) * GROUPS_PER_PAGE : number * GROUPS_PER_PAGE].tolist()
    what = counted(len(found), "group") + (f" with {text!r} in the name" if text else "")
    links = join(
        (
            element("b", words)
            if name == order
            else element("a", words, href=view.address("groups", order=name, find=text))
            for name, words in ORDERS.items()
        ),
        between=" · ",
    )
    alone = len(view.index.alone)
    rest = (
        join([" · ", element("a", counted(alone, "image") + " in no group", href=view.address("alone"))])
        if alone
        else None
    )
    rows = [_row(view, group) for group in shown]
    tools = element(
        "div",
        button("Merge", "g", kind="main", value="merge"),
        name_field(_names(view)),
        button("Name", value="name"),
        button("Reject", "r", value="reject"),
        element("span", "for the groups with a check", class_="more"),
        class_="actions sticky",
    )
    body = form(
        view, "groups", tools, *rows, back=view.address("groups", order=order, find=text, page=number)
    )
    return page(
        view,
        "groups",
        paragraph(what, rest),
        paragraph(links, class_="note"),
        body
        if rows
        else nothing(
            "No group is called so. Names are given on a group's page, or with several selected here."
        ),
        pager(view, ["groups"], number, n_pages, order=order, find=text),
        notice=notice,
        search=text,
    )


def _row(view: View, group: int) -> Html:
    members = view.index.members(group)
    shown = _spread(members, _IN_A_ROW)
    about = f"confidence {view.index.certain(group):.2f}"
    check = field("checkbox", "group", str(group), aria_label=f"select {view.person(group)}", class_="pick")
    who = element("div", element("b", person_link(view, group)), element("span", about), class_="who")
    # What is shown is what is confirmed when the group is merged.
    rows = [field("hidden", f"shown{group}", str(row)) for row in shown if row not in view.leaving]
    return element(
        "div", element("label", check, class_="picker"), who, shots(view, shown, selectable=False), *rows, class_="group",
        data_card=True, tabindex="-1", data_open=view.address("group", group), id=f"g{group}",
    )  # fmt: skip


def group_page(view: View, group: int, number: int, notice: Html | None) -> str:
    """One group: its images, the least certain first, what can be done, and who else it may be."""
    members = view.index.members(group)
    if not len(members):
        gone = "There is no such group any more; its images were merged, moved or rejected."
        return page(view, "groups", nothing(gone), notice=notice)
    n_pages = -(-len(members) // IMAGES_PER_PAGE)
    number = min(max(number, 1), n_pages)
    shown = members[(number - 1) * IMAGES_PER_PAGE : number * IMAGES_PER_PAGE].tolist()
    # What is said of the group is not said of the images that leave it.
    staying = [row for row in shown if row not in view.leaving]
    waits = element("em", "waits for Apply", class_="badge") if group in view.touched else None
    about = f"{counted(len(members), 'image')}, confidence {view.index.certain(group):.2f}, the least certain first."
    naming = form(
        view,
        "name",
        name_field(_names(view), view.index.names.get(group, "")),
        button("Name"),
        group=group,
        image=staying,
        class_="actions",
    )
    tools = element(
        "div",
        element("span", "Selected:", class_="more"),
        button("Split off", "s", kind="main", value="split"),
        button("Not this person", "x", value="out"),
        *_move_or_reject(),
        element("span", class_="gap"),
        button("All shown are one person", "c", value="confirm"),
        class_="actions sticky",
    )
    images = form(
        view, "images", tools, shots(view, shown), element("datalist", *_people(view), id="people"), group=group, shown=staying,
        back=view.address("group", group, page=number),
    )  # fmt: skip
    return page(
        view,
        "groups",
        element("h1", view.person(group), waits),
        paragraph(about, class_="note"),
        naming,
        element("article", images, class_="card", data_card=True, tabindex="-1"),
        pager(view, ["group", group], number, n_pages),
        _similar(view, group, np.asarray(members)),
        notice=notice,
    )


def _similar(view: View, group: int, members: np.ndarray) -> Html | None:
    """Other groups that the models tie to this one, each with a button to merge."""
    near = view.evidence.nearest_groups(members[:2000], view.index.identity)
    if not near:
        return None
    own = _spread(members, _IN_A_ROW)
    rows = []
    for other, _ in near:
        shown = _spread(view.index.members(other), _IN_A_ROW)
        words = evidence_in_words(
            view.evidence.between(members[:2000].tolist(), view.index.members(other)[:2000].tolist())
        )
        rows.append(
            element(
                "article",
                element("h3", person_link(view, other)),
                paragraph(words, class_="note"),
                form(
                    view, "answer", shots(view, shown), element(
                        "div",
                        button("Yes, one person", "y", value="same"),
                        button("No, two people", "n", value="different"),
                        class_="actions",
                    ),
                    one=own, other=shown, back=view.address("group", group),
                ),
                class_="card", data_card=True, tabindex="-1",
            )
        )  # fmt: skip
    return element("section", element("h2", "Is this the same person?"), *rows)


def alone_page(view: View, number: int, notice: Html | None) -> str:
    """The images in no group, page by page; several together become a person."""
    alone = view.index.alone
    n_pages = max(1, -(-len(alone) // IMAGES_PER_PAGE))
    number = min(max(number, 1), n_pages)
    shown = alone[(number - 1) * IMAGES_PER_PAGE : number * IMAGES_PER_PAGE].tolist()
    tools = element(
        "div",
        element("span", "Selected:", class_="more"),
        button("One person", "y", kind="main", value="together"),
        *_move_or_reject(),
        class_="actions sticky",
    )
    images = form(
        view, "images", tools, shots(view, shown), element("datalist", *_people(view), id="people"), group=-1, shown=shown,
        back=view.address("alone", page=number),
    )  # fmt: skip
    return page(
        view,
        "groups",
        element("h1", "Images in no group"),
        paragraph(
            f"{counted(len(alone), 'image')}: no pair of theirs was sure enough, or they were rejected.",
            class_="note",
        ),
        element("article", images, class_="card", data_card=True, tabindex="-1")
        if shown
        else nothing("There is none."),
        pager(view, ["alone"], number, n_pages),
        notice=notice,
    )


def _move_or_reject() -> list[Html]:
    """What can be done to selected images on every page that shows some."""
    target = field(
        "text",
        "target",
        placeholder="Name or number",
        aria_label="Move to",
        list="people",
        data_key="m",
        autocomplete="off",
    )
    return [target, button("Move there", value="move"), button("Reject", "r", value="reject")]


def _names(view: View) -> list[str]:
    return sorted(set(view.index.names.values()))[:_MOST_NAMES]


def _people(view: View) -> list[Html]:
    return [element("option", value=name) for name in _names(view)]


def _spread(members: np.ndarray, most: int) -> list[int]:
    """Some members of a group: the least certain ones and evenly spaced others."""
    if len(members) <= most:
        return [int(row) for row in members]
    doubtful = members[: most // 3]
    others = members[np.linspace(most // 3, len(members) - 1, most - len(doubtful)).astype(np.int64)]
    return [int(row) for row in (*doubtful, *others)]

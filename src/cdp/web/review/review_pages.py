"""From the state of a review to what each page shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cdp.types.arrays import LongArray
from cdp.web.review.group_index import ORDERS
from cdp.web.review.pair_probabilities import probabilities_in_words
from cdp.web.review.review_views import (
    Asked,
    Card,
    EntriesPage,
    Entry,
    GroupRow,
    GroupsPage,
    HistoryEntry,
    ImagesPage,
    Pager,
    SameNamePage,
    Shot,
    Side,
    View,
)
from cdp.web.review.same_names import Namesake
from cdp.web.words import counted, decimals

KEYS = (
    ("j k", "next, previous row"),
    ("← →", "next, previous image; Shift selects on the way"),
    ("Space", "select the image"),
    ("Enter", "see its photo; Escape closes"),
    ("*", "select all of the row, or none"),
    ("y n", "yes, no"),
    ("o", "skip"),
    ("s", "split off what is selected, as one other person"),
    ("x", "take out what is selected: not this person"),
    ("m", "move what is selected to another person"),
    ("g", "merge the selected groups"),
    ("c", "all shown are one person"),
    ("e", "name"),
    ("r", "reject: no face, or belongs to no group"),
    ("u", "undo"),
    ("a", "apply the answers"),
    ("/", "search"),
    ("1 2 3", "questions, groups, history"),
    ("[ ]", "page back, page on"),
    ("?", "these keys"),
)
GROUPS_PER_PAGE = 25
IMAGES_PER_PAGE = 200
ENTRIES_PER_PAGE = 30
_IN_A_ROW = 10
_MOST_COMPARED = 2000


def shots(view: View, rows: Iterable[int]) -> list[Shot]:
    """Return images as the page shows them."""
    return [_shot(view, int(row)) for row in rows]


def _shot(view: View, row: int) -> Shot:
    path = "" if view.paths is None else view.paths[row]
    photo = "" if view.photos is None else view.photos[row]
    confidence, leaving = float(view.index.confidence[row]), row in view.leaving
    words = [photo] if photo else [f"image {row}", *([path] if path else [])]
    is_grouped = view.index.group_of(row) >= 0
    words.append(f"confidence {decimals(confidence)}" if is_grouped else "in no group")
    words += ["leaves this group with Apply"] if leaving else []
    # Only what is not nearly certain is worth a number on the picture.
    mark = decimals(confidence) if is_grouped and confidence < 0.995 else ""
    return Shot(row, ", ".join(words), path.rpartition("/")[2], mark, leaving, bool(photo))


def _pager(number: int, n_items: int, per_page: int, *path: object, **query: object) -> tuple[Pager, slice]:
    """Return the page that is asked for, or the nearest there is, and the items on it."""
    n_pages = max(1, -(-n_items // per_page))
    number = min(max(number, 1), n_pages)
    return Pager(number, n_pages, path, query), slice((number - 1) * per_page, number * per_page)


def question_cards(view: View, questions: Sequence[Asked]) -> list[Card]:
    """Return the questions, the most valuable first."""
    return [
        Card(
            asked.key,
            asked.title,
            f"{asked.why} {probabilities_in_words(view.probabilities.between(asked.one, asked.other))}",
            asked.within,
            [_side(view, asked, 0), _side(view, asked, 1)],
        )
        for asked in questions
    ]


def _side(view: View, asked: Asked, side: int) -> Side:
    rows, size = (asked.one, asked.other)[side], asked.sizes[side]
    group = asked.groups[min(side, len(asked.groups) - 1)]
    heading = "In no group" if group < 0 else counted(size, view.thing) if asked.within else ""
    if group >= 0 and asked.within and side == 1 and asked.sizes[0] == 1:
        heading = "Others of the group" if size > 1 else "Another of the group"
    more = f"{len(rows)} of {size:,} shown; all of the group" if size > len(rows) else ""
    name = "other" if side else "one"
    return Side(name, group, heading, "", _answering(view, rows), shots(view, rows), more)


def _answering(view: View, rows: Sequence[int]) -> Sequence[int]:
    """Return the images that an answer is about: those that stay in their group."""
    return view.staying(rows) or rows


def groups_page(view: View, order: str, text: str, number: int) -> GroupsPage:
    """Rows of groups in one of `ORDERS`, all or those of a name."""
    found = view.index.listed(order, text)
    pager, part = _pager(number, len(found), GROUPS_PER_PAGE, "groups", order=order, find=text)
    what = counted(len(found), "group") + (f" with {text!r} in the name" if text else "")
    rows = [_group_row(view, group) for group in found[part].tolist()]
    return GroupsPage(what, order, ORDERS, text, rows, pager)


def _group_row(view: View, group: int) -> GroupRow:
    shown = _spread(view.index.members(group), _IN_A_ROW)
    # What is shown is what is confirmed when the group is merged.
    return GroupRow(group, decimals(view.index.certain(group)), shots(view, shown), view.staying(shown))


def group_page(view: View, group: int, number: int) -> ImagesPage | None:
    """Build the page of a group, least certain images first, with similar groups; None if it is gone."""
    members = view.index.members(group)
    if not len(members):
        return None
    pager, part = _pager(number, len(members), IMAGES_PER_PAGE, "group", group)
    shown = members[part].tolist()
    confidence = decimals(view.index.certain(group))
    return ImagesPage(
        group,
        view.person(group),
        f"{counted(len(members), view.thing)}, confidence {confidence}, the least certain first.",
        view.staying(shown),
        shots(view, shown),
        pager,
        _answering(view, _spread(members, _IN_A_ROW)),
        _similar(view, members),
    )


def _similar(view: View, members: LongArray) -> list[Side]:
    """Other groups that the models tie to this one."""
    sides = []
    members = members[:_MOST_COMPARED]
    for group, _ in view.probabilities.nearest_groups(members, view.index.identity):
        others = view.index.members(group)
        between = view.probabilities.between(members.tolist(), others[:_MOST_COMPARED].tolist())
        shown = _spread(others, _IN_A_ROW)
        words, rows = probabilities_in_words(between), _answering(view, shown)
        sides.append(Side("other", group, "", words, rows, shots(view, shown)))
    return sides


def alone_page(view: View, number: int) -> ImagesPage:
    """Return the images in no group, page by page; several together become a person."""
    alone = view.index.alone
    pager, part = _pager(number, len(alone), IMAGES_PER_PAGE, "alone")
    shown = alone[part].tolist()
    about = f"{counted(len(alone), view.thing)}: no sufficiently probable pair, or rejected."
    return ImagesPage(-1, f"{view.thing.capitalize()}s in no group", about, shown, shots(view, shown), pager)


def same_name_page(view: View, name: str, rows: Sequence[int], others: Sequence[Namesake]) -> SameNamePage:
    """Return the question whether a name that was typed means a group that has it already."""
    sides = []
    for one in others:
        shown = one.rows[:_IN_A_ROW]
        heading = "" if one.group >= 0 else "In no group"
        sides.append(Side("other", one.group, heading, "", shown, shots(view, shown)))
    own = shots(view, _spread(np.array(rows, np.int64), _IN_A_ROW))
    return SameNamePage(name, rows, own, sides, [one.rows[0] for one in others])


def history_page(view: View, entries: Sequence[HistoryEntry], number: int) -> EntriesPage:
    """Return the journal, the latest first."""
    pager, part = _pager(number, len(entries), ENTRIES_PER_PAGE, "history")
    answers = counted(len(entries), "answer")
    about = f"{answers}, latest first. Undoing adds an entry; nothing is removed."
    return EntriesPage("History", about, [_entry(view, one) for one in entries[part]], pager)


def _entry(view: View, entry: HistoryEntry) -> Entry:
    when = f"{entry.when[:19].replace('T', ' ')} UTC" + (f", {entry.source}" if entry.source else "")
    state = "undone" if entry.undone else "waits for Apply" if entry.waits else ""
    numbers = () if entry.undone or entry.is_undo else entry.numbers
    return Entry(entry.words, shots(view, entry.images), when, state, numbers)


def changes_page(view: View, summary: str, sentences: Sequence[tuple[str, tuple[int, ...]]]) -> EntriesPage:
    """Return what applying the answers changed: a sentence per event, with images."""
    return EntriesPage(
        "What changed", summary, [Entry(words, shots(view, images)) for words, images in sentences]
    )


def _spread(members: LongArray, most: int) -> list[int]:
    """Return some members of a group: the least certain ones and evenly spaced others."""
    if len(members) <= most:
        return [int(row) for row in members]
    doubtful = members[: most // 3]
    others = members[np.linspace(most // 3, len(members) - 1, most - len(doubtful)).astype(np.int64)]
    return [int(row) for row in (*doubtful, *others)]

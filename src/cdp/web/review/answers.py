"""Turn submitted forms into corrections; forms name images, never group numbers, which may have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from cdp.collection.corrections import Correction, different, merge_groups, named, rejected, same, split_group
from cdp.errors import InputError
from cdp.web.review.group_index import GroupIndex

_MOST_ANCHORS = 3
Fields = Mapping[str, Sequence[str]]


def answer_question(
    fields: Fields, index: GroupIndex, leaving: frozenset[int] = frozenset()
) -> list[Correction]:
    """Corrections of an answer to "are these images and those one person?".

    Args:
        leaving: images that corrections take out of their group already.
    """
    one, other, selected = (rows_of(fields, name) for name in ("one", "other", "image"))
    how = _first(fields, "how")
    if how in ("out", "reject"):
        _need(selected, "Select images first.", "images-not-selected")
        return [rejected(*selected)] if how == "reject" else _take_out(selected, (one, other), index, leaving)
    _need(one and other, "The question has no images.", "question-without-images")
    if how == "same":
        return merge_groups(one, other)
    if how == "split":
        return split_group(one, other)
    if how == "different":
        return [different(one[-1], other[-1])]
    raise InputError(f"{how!r} is not an answer; reload the page.", code="answer-unknown", value=how)


def _take_out(
    selected: Sequence[int], sides: Sequence[Sequence[int]], index: GroupIndex, leaving: frozenset[int]
) -> list[Correction]:
    """Record that each image differs from its group, by the surest image that stays there.

    An image on the same side is preferred, because a pair across the sides would answer the question.
    """
    gone = {*selected, *leaving}
    found = []
    for row in selected:
        group = index.group_of(row)
        _need(
            group >= 0,
            f"Image {row} is in no group; answer the question, or reject the image.",
            "image-in-no-group",
        )
        nearby = [near for side in sides if row in side for near in side if index.group_of(near) == group]
        staying = [near for near in nearby if near not in gone]
        staying = staying or [near for near in index.members(group).tolist() if near not in gone]
        _need(
            staying,
            "All images of the group are selected; select those that are not this person.",
            "all-images-selected",
        )
        found.append(different(row, max(staying, key=lambda near: (index.confidence[near], near))))
    return found


def change_images(
    fields: Fields, index: GroupIndex, leaving: frozenset[int] = frozenset()
) -> list[Correction]:
    """Corrections of an action on selected images of a group, or of none; `leaving` as above."""
    shown, selected = rows_of(fields, "shown"), rows_of(fields, "image")
    how, rest = _first(fields, "how"), [row for row in shown if row not in set(selected)]
    if how == "confirm":
        _need(len(shown) > 1, "One image alone cannot be confirmed.", "confirm-one-image")
        return [same(*shown)]
    _need(selected, "Select images first.", "images-not-selected")
    if how == "reject":
        return [rejected(*selected)]
    if how == "together":
        _need(len(selected) > 1, "Select two images or more.", "images-too-few-selected")
        return [same(*selected)]
    anchors = _anchors(fields, index, {*selected, *leaving})
    if how == "move":
        target = find_person(_first(fields, "target"), index)
        members = [int(row) for row in index.members(target)[-_MOST_ANCHORS:]]
        apart = [different(selected[0], anchor) for anchor in anchors if anchor not in members]
        return [same(*selected, *members), *apart]
    _need(
        bool(rest) and bool(anchors),
        "All images are selected; select those that are somebody else.",
        "all-images-selected",
    )
    if how == "split":
        together = [same(*selected)] if len(selected) > 1 else []
        return [*together, *(different(selected[0], anchor) for anchor in anchors)]
    if how == "out":
        return [different(row, anchor) for row in selected for anchor in anchors[:1]]
    raise InputError(f"{how!r} is not an action; reload the page.", code="action-unknown", value=how)


def change_groups(fields: Fields) -> list[Correction]:
    """Corrections of what is done to the selected groups; of each, the images that were shown count."""
    groups = [one for one in fields.get("group", ()) if one.isdecimal()]
    shown = [rows_of(fields, f"shown{one}") for one in groups]
    how = _first(fields, "how")
    _need(shown and all(shown), "Select groups first.", "groups-not-selected")
    rows = [row for images in shown for row in images]
    if how == "reject":
        return [rejected(*rows)]
    _need(len(shown) > 1, "Select two groups or more.", "groups-too-few-selected")
    if how == "merge":
        return [same(*rows)]
    raise InputError(f"{how!r} is not an action; reload the page.", code="action-unknown", value=how)


def images_to_name(fields: Fields) -> list[int]:
    """Return the images that a form names: those of one group, or those shown of the selected ones."""
    if "how" not in fields:
        rows = rows_of(fields, "image")
        _need(rows, "The form names no images.", "form-without-images")
        return rows
    groups = [one for one in fields.get("group", ()) if one.isdecimal()]
    rows = [row for one in groups for row in rows_of(fields, f"shown{one}")]
    _need(rows, "Select groups first.", "groups-not-selected")
    return rows


def name_images(fields: Fields) -> list[Correction]:
    """Corrections that give images a name, and say who they are if others have that name.

    `who` says that they are the same person as the images `other`, or somebody else than each of these.
    """
    name, rows, other = person_name(fields), images_to_name(fields), rows_of(fields, "other")
    who = _first(fields, "who")
    if who == "same":
        _need(other, "The form names no images.", "form-without-images")
        return [named(name, *rows), *merge_groups(rows, other)]
    return [named(name, *rows), *(different(rows[-1], one) for one in other if who == "different")]


def person_name(fields: Fields) -> str:
    """Return the name that was typed, in one spelling: no spaces at its ends, one between words."""
    name = " ".join(_first(fields, "name").split())
    _need(name, "Type a name first.", "name-missing")
    return name


def find_person(text: str, index: GroupIndex) -> int:
    """Return the group of a name or number that was typed.

    Raises:
        InputError: there is none, or there are several.
    """
    wanted = " ".join(text.split()).casefold()
    _need(wanted, "Type a name or number to move to.", "target-group-missing")
    called = [
        number
        for number, name in index.names.items()
        if wanted in (name.casefold(), index.called(number).casefold()) and index.size(number)
    ]
    digits = wanted.removeprefix("person").strip(" -#")
    if not called and digits.isdecimal() and len(digits) < 10 and index.size(int(digits)):
        called = [int(digits)]
    if len(called) != 1:
        found = "nobody" if not called else "several people"
        raise InputError(
            f"{found} called {text.strip()!r}; type a name or a number as the page Groups shows it.",
            code="group-name-unknown",
            value=text.strip(),
        )
    return called[0]


def stamped(corrections: Sequence[Correction], source: str) -> list[Correction]:
    """Stamp the corrections of one action with one time, by which they are undone together."""
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    return [msgspec.structs.replace(one, when=now, source=source) for one in corrections]


def rows_of(fields: Fields, name: str) -> list[int]:
    """Return the rows that a form lists under a name, each once.

    Raises:
        InputError: something else stands there.
    """
    texts = fields.get(name, ())
    if not all(text.isascii() and text.isdecimal() and len(text) < 12 for text in texts):
        raise InputError(
            f"The form has something under {name!r} that is not a row; reload the page.",
            code="form-row-wrong",
            field=name,
        )
    return list(dict.fromkeys(map(int, texts)))


def _anchors(fields: Fields, index: GroupIndex, gone: set[int]) -> list[int]:
    """Return the surest images of the group that some leave, by which they are kept apart from it."""
    group = _first(fields, "group")
    if not group.isdecimal() or len(group) > 9:
        return []
    # A stale page may speak of a group that is gone; then the images shown stand for it.
    members = index.members(int(group)).tolist() or rows_of(fields, "shown")
    return [row for row in members if row not in gone][-_MOST_ANCHORS:]


def _first(fields: Fields, name: str) -> str:
    values = fields.get(name, ())
    return values[0] if values else ""


def _need(fact: object, otherwise: str, code: str) -> None:
    if not fact:
        raise InputError(otherwise, code=code)

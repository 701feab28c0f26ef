"""Corrections and changes in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from cdp.collection.corrections import Correction
from cdp.collection.numbering import Event
from cdp.web.review.group_index import GroupIndex
from cdp.web.words import counted


def batches(journal: Sequence[Correction]) -> list[list[Correction]]:
    """Entries that were written by one action, together."""
    return [
        list(group)
        for _, group in groupby(journal, key=lambda one: (one.when, one.source, one.kind == "undo"))
    ]


def correction_in_words(
    entries: Sequence[Correction], index: GroupIndex, by_number: Mapping[int, Correction]
) -> str:
    """Return the corrections of one action, in words."""
    said = []
    undone = [one.undoes for one in entries if one.kind == "undo"]
    if undone:
        taken_back = [by_number[number] for number in undone if number in by_number]
        inner = correction_in_words(taken_back, index, {}) if taken_back and by_number else "an entry"
        said.append(f"undone: {inner}")
    for kind, words in (
        ("name", ""),
        ("same", "one person"),
        ("different", "not the same person"),
        ("reject", "in no group"),
    ):
        found = [one for one in entries if one.kind == kind]
        if not found:
            continue
        images = len({image for one in found for image in one.images})
        who = _people([image for one in found for image in one.images], index)
        words = f"called {found[-1].name!r}" if kind == "name" else words
        said.append(f"{counted(images, 'image')} of {who}: {words}")
    return "; ".join(said)


def _people(images: Sequence[int], index: GroupIndex) -> str:
    numbers = list(
        dict.fromkeys(int(index.identity[image]) for image in images if image < len(index.identity))
    )
    called = [index.called(number) for number in numbers[:3]]
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return " and ".join(called) + more if len(called) < 3 else ", ".join(called) + more


def event_in_words(event: Event, index: GroupIndex, most: int) -> tuple[str, tuple[int, ...]]:
    """Describe (what happened to an identity, a few images of where it is now)."""
    one, other = index.called(event.identity), index.called(event.other)
    images = counted(event.images, "image")
    words = {
        "merged": f"{one} is now part of {other} ({images})",
        "split": f"{images} of {one} became {other}",
        "moved": f"{images} of {one} went to {other}",
        "dissolved": f"{one} is gone: {images} in no group now",
        "named": f"person {event.identity} is called {event.name!r}",
        "renamed": f"person {event.identity} is called {event.name!r}",
    }.get(event.kind, event.kind)
    why = f" ({event.why})" if event.why and event.kind not in ("named", "dissolved") else ""
    shown = event.other if event.other >= 0 else event.identity
    return f"{words}{why}.", tuple(index.members(shown)[:most].tolist())

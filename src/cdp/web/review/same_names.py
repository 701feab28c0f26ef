"""Groups that have a name already, when somebody else is given it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.collection.corrections import Correction, to_constraints
from cdp.types.constraints import Constraints, said_of_pairs
from cdp.web.review.group_index import GroupIndex


@dataclass(frozen=True)
class Namesake:
    """A group that has a name.

    Attributes:
        group: its number; -1 for images in no group.
        rows: images that carry the name, the surest first.
    """

    group: int
    rows: tuple[int, ...]


def find_namesakes(
    name: str, rows: Sequence[int], index: GroupIndex, corrections: Sequence[Correction]
) -> list[Namesake]:
    """Other groups of a name, of which it is not said yet whether they are the person of some images.

    Args:
        name: that the images are to get.
        rows: the images.
        index: the groups as they are now.
        corrections: those that count, applied or not.
    """
    given = to_constraints(corrections, len(index.identity))
    own = {index.group_of(row) for row in rows} - {-1}
    found: dict[int, list[int]] = {}
    for row, called in given.named.items():
        if called == name and row not in rows and index.group_of(row) not in own:
            found.setdefault(index.group_of(row), []).append(row)
    for number, called in index.names.items():
        # Named after a labeled identity, and by nobody since.
        if called == name and number not in own | found.keys():
            members = index.members(number).tolist()
            if members and not any(row in given.named for row in members):
                found[number] = members
    said = Constraints(given.n_images, given.must, given.cannot)
    namesakes = []
    for group, members in found.items():
        pairs = np.array([[rows[0], member] for member in members])
        if not said_of_pairs(pairs, said).any():
            members.sort(key=lambda row: (-float(index.confidence[row]), row))
            namesakes.append(Namesake(group, tuple(members)))
    return sorted(namesakes, key=lambda one: (-index.size(one.group), one.group))

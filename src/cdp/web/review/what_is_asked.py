"""The questions of a collection as they are shown: which images stand on either side, and why it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from cdp.collection.collection import Collection
from cdp.collection.corrections import Correction, to_constraints
from cdp.collection.questions import KINDS, Questions, open_questions
from cdp.types.arrays import BoolArray
from cdp.types.constraints import constrain_parts, join_certain, said_of_pairs
from cdp.web.review.group_index import GroupIndex
from cdp.web.review.review_views import Asked
from cdp.web.words import counted

_ON_A_SIDE = 10
Called = Callable[[int], str]


class Queue:
    """All questions of a collection as it is now, ranked once; what is answered meanwhile is passed over."""

    def __init__(self, collection: Collection, thing: str = "image") -> None:
        self._collection, self._thing = collection, thing

    @cached_property
    def _questions(self) -> Questions:
        return open_questions(self._collection)

    @cached_property
    def _parts(self) -> GroupIndex:
        """The parts of groups that questions are about."""
        return GroupIndex(self._questions.part, self._collection.confidence, {})

    def ask(
        self, corrections: Sequence[Correction], postponed: Sequence[str], most: int, called: Called
    ) -> list[Asked]:
        """Return the most valuable questions that no correction answers; those put off come last.

        Args:
            called: number of a group -> what it is called.
        """
        is_open = self._open(corrections)
        first: list[Asked] = []
        later: dict[str, Asked] = {}
        for at in np.flatnonzero(is_open).tolist():
            asked = self._asked(at, called)
            if asked.key in postponed:
                later[asked.key] = asked
            else:
                first.append(asked)
            if len(first) == most:
                break
        return [*first, *(later[key] for key in postponed if key in later)][:most]

    def n_left(self, corrections: Sequence[Correction]) -> int:
        """Count the open questions that are worth asking."""
        return self._questions.take(self._open(corrections)).n_worth_asking

    def _open(self, corrections: Sequence[Correction]) -> BoolArray:
        """Return which questions are not answered; what follows from answers is not asked either."""
        part, images = self._questions.part, self._questions.images
        given = constrain_parts(to_constraints(corrections, len(part)), part)
        pairs = part[images]
        answered = (said_of_pairs(pairs, given) != 0) | np.isin(pairs, given.rejected).any(axis=1)
        # An image that was just put into a group is not asked about again before Apply.
        atom = join_certain(given)
        is_joined = np.bincount(atom, minlength=1)[atom] > 1
        placed = is_joined[pairs] & (self._collection.identity[images] < 0)
        is_open: BoolArray = ~answered & ~placed.any(axis=1)
        return is_open

    def _asked(self, at: int, called: Called) -> Asked:
        questions = self._questions
        one, other = (int(image) for image in questions.images[at])
        groups = tuple(int(self._collection.identity[image]) for image in (one, other))
        kind = KINDS[int(questions.kind[at])]
        within = kind in ("mixed", "doubtful")
        names = [called(group) for group in groups]
        title, why = self._words(kind, groups, names, tuple(questions.sizes[at].tolist()))
        return Asked(
            key=f"{one}-{other}",
            title=title,
            one=self._shown(one),
            other=self._shown(other),
            within=within,
            groups=groups[:1] if within else groups,
            sizes=(int(questions.sizes[at, 0]), int(questions.sizes[at, 1])),
            why=why,
        )

    def _shown(self, image: int) -> tuple[int, ...]:
        """Return some images of a part; the one that stands for it is the last."""
        members = self._parts.members(int(self._questions.part[image]))
        others = members[members != image]
        if len(others) >= _ON_A_SIDE:
            others = others[np.linspace(0, len(others) - 1, _ON_A_SIDE - 1).astype(np.int64)]
        return (*map(int, others), image)

    def _words(
        self, kind: str, groups: tuple[int, ...], names: Sequence[str], sizes: tuple[int, ...]
    ) -> tuple[str, str]:
        one, other = names
        pairs = counted(sizes[0] * sizes[1], "pair")
        if kind == "mixed":
            return (
                f"Are all {self._thing}s of {one} one person?",
                f"At a stricter threshold the group falls into {sizes[0]:,} and "
                f"{counted(sizes[1], self._thing)}; the answer "
                f"resolves {pairs} of {self._thing}s.",
            )
        if kind == "doubtful":
            return (
                f"Does this {self._thing} belong to {one}?",
                "It is the least certain image of the group.",
            )
        if kind == "split":
            why = f"They may be one person in two groups; the answer resolves {pairs} of {self._thing}s."
            return f"Are {one} and {other} one person?", why
        if max(groups) < 0:
            return f"Are these two {self._thing}s one person?", "Both are in no group."
        someone = one if groups[0] >= 0 else other
        return (
            f"Does this {self._thing} belong to {someone}?",
            "It is in no group; this group is the most similar.",
        )

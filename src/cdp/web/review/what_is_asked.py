"""The questions of a collection as they are shown: which images stand on either side, and why it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations

import numpy as np

from cdp.collection.collection import Collection
from cdp.collection.corrections import Correction
from cdp.collection.questions import KINDS, Questions, questions_left, rank_questions
from cdp.types.arrays import BoolArray, IntArray
from cdp.web.report.words import counted
from cdp.web.review.group_index import GroupIndex
from cdp.web.review.question_page import Asked

_ON_A_SIDE = 10
_PRECISION = 0.99


class Queue:
    """All questions of a collection as it is now, ranked once; what is answered meanwhile is passed over."""

    def __init__(self, collection: Collection, index: GroupIndex) -> None:
        self._collection, self._index = collection, index

    @cached_property
    def _questions(self) -> Questions:
        one = self._collection
        return rank_questions(one.scored, one.identity, one.confidence, one.settings, one.constraints)

    @cached_property
    def _parts(self) -> GroupIndex:
        """The parts of groups that questions are about."""
        return GroupIndex(self._questions.part, self._collection.confidence, {})

    def ask(self, corrections: Sequence[Correction], postponed: Sequence[str], most: int) -> list[Asked]:
        """The most valuable questions that no correction answers; those put off come last."""
        is_open = self._open(corrections)
        first: list[Asked] = []
        later: dict[str, Asked] = {}
        for at in np.flatnonzero(is_open).tolist():
            asked = self._asked(at)
            if asked.key in postponed:
                later[asked.key] = asked
            else:
                first.append(asked)
            if len(first) == most:
                break
        return [*first, *(later[key] for key in postponed if key in later)][:most]

    def n_left(self, corrections: Sequence[Correction]) -> int:
        """About how many more answers until the expected precision is 0.99."""
        left = self._questions.take(self._open(corrections))
        return questions_left(left, self._collection.identity, _PRECISION)

    def _open(self, corrections: Sequence[Correction]) -> BoolArray:
        """Which questions are not answered; what follows from answers is not asked either."""
        questions = self._questions
        parts = questions.part[questions.images]
        settled = _Settled(questions.part, corrections)
        # An image that somebody has just put into a group is not asked about again before groups are made anew.
        placed = settled.are_joined(parts) & (self._collection.identity[questions.images] < 0)
        return ~settled.are_answered(parts) & ~placed.any(axis=1)

    def _asked(self, at: int) -> Asked:
        questions = self._questions
        one, other = (int(image) for image in questions.images[at])
        groups = tuple(int(self._collection.identity[image]) for image in (one, other))
        kind = KINDS[int(questions.kind[at])]
        within = kind in ("mixed", "doubtful")
        title, why = self._words(kind, groups, tuple(questions.sizes[at].tolist()))
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
        """Some images of a part; the one that stands for it is the last."""
        members = self._parts.members(int(self._questions.part[image]))
        others = members[members != image]
        if len(others) >= _ON_A_SIDE:
            others = others[np.linspace(0, len(others) - 1, _ON_A_SIDE - 1).astype(np.int64)]
        return (*map(int, others), image)

    def _words(self, kind: str, groups: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[str, str]:
        one, other = (self._index.names.get(group) or f"person {group}" for group in groups)
        pairs = counted(sizes[0] * sizes[1], "pair")
        if kind == "mixed":
            return (
                f"Is everybody in {one} one person?",
                f"Asked more strictly, the models take the group apart, into {sizes[0]:,} and {sizes[1]:,} images; "
                f"the answer settles {pairs} of images.",
            )
        if kind == "doubtful":
            return f"Does this image belong to {one}?", "Its tie to the others is the weakest of the group."
        if kind == "split":
            why = f"They may be one person in two groups; the answer settles {pairs} of images."
            return f"Are {one} and {other} one person?", why
        if max(groups) < 0:
            return "Are these two images one person?", "Both are in no group."
        someone = one if groups[0] >= 0 else other
        return (
            f"Does this image belong to {someone}?",
            "It is in no group, and this is the one it is most like.",
        )


class _Settled:
    """What corrections say about parts: which are one, which are two, which are in no group."""

    def __init__(self, part: IntArray, corrections: Sequence[Correction]) -> None:
        n_parts = int(part.max(initial=-1)) + 1
        self._one = list(range(n_parts))
        self._rejected = np.zeros(n_parts, np.bool_)
        by_name: dict[str, int] = {}
        apart: list[tuple[int, int]] = []
        for said in corrections:
            parts = [int(part[image]) for image in said.images if image < len(part)]
            if said.kind == "different":
                apart += combinations(parts, 2)
            elif said.kind == "reject":
                self._rejected[parts] = True
            elif said.kind in ("same", "name") and parts:
                for other in parts[1:]:
                    self._join(parts[0], other)
                if said.kind == "name":
                    self._join(by_name.setdefault(said.name, parts[0]), parts[0])
        apart += combinations(by_name.values(), 2) if len(by_name) <= 2000 else ()
        self._n_parts = n_parts
        self._root = np.array([self._find(one) for one in range(n_parts)], np.int64)
        self._apart = np.unique([self._key(self._root[one], self._root[other]) for one, other in apart])

    def are_answered(self, parts: IntArray) -> BoolArray:
        """Of pairs of parts, int (m, 2), which are settled."""
        roots = self._root[parts]
        low, high = roots.min(axis=1), roots.max(axis=1)
        found: BoolArray = (low == high) | np.isin(low * self._n_parts + high, self._apart)
        return found | self._rejected[parts].any(axis=1)

    def are_joined(self, parts: IntArray) -> BoolArray:
        """Which parts are one with another."""
        found: BoolArray = (np.bincount(self._root, minlength=self._n_parts)[self._root] > 1)[parts]
        return found

    def _key(self, one: int, other: int) -> int:
        return int(min(one, other)) * self._n_parts + int(max(one, other))

    def _find(self, one: int) -> int:
        while self._one[one] != one:
            self._one[one] = self._one[self._one[one]]
            one = self._one[one]
        return one

    def _join(self, one: int, other: int) -> None:
        self._one[self._find(one)] = self._find(other)

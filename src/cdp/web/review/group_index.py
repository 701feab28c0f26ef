"""Groups by number, size, confidence and name, found without looking at every image again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cdp.types.arrays import DoubleArray, FloatArray, IntArray, LongArray
from cdp.web.person_names import PersonNames

ORDERS = {
    "large": "largest first",
    "doubtful": "least certain first",
    "small": "smallest first",
    "number": "by number",
    "name": "by name",
}


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """The groups of n images; sorted once, so that any group is a slice.

    Attributes:
        identity: int (n,), the group of every image, -1 = none.
        confidence: float (n,).
        names: number -> name.
    """

    identity: IntArray
    confidence: FloatArray
    names: Mapping[int, str]

    @cached_property
    def _order(self) -> LongArray:
        """All images in groups, group by group, the least certain first."""
        rows = np.flatnonzero(self.identity >= 0)
        return rows[np.lexsort((rows, self.confidence[rows], self.identity[rows]))]

    @cached_property
    def numbers(self) -> LongArray:
        """The numbers of all groups, ascending."""
        return np.unique(self.identity[self.identity >= 0]).astype(np.int64)

    @cached_property
    def _starts(self) -> LongArray:
        return np.searchsorted(self.identity[self._order], np.append(self.numbers, np.iinfo(np.int64).max))

    @cached_property
    def sizes(self) -> LongArray:
        """Images of each group, in the order of `numbers`."""
        return np.diff(self._starts)

    @cached_property
    def mean_confidence(self) -> DoubleArray:
        """Mean confidence of each group, in the order of `numbers`."""
        if not len(self.numbers):
            return np.zeros(0)
        sums = np.add.reduceat(self.confidence[self._order].astype(np.float64), self._starts[:-1])
        means: DoubleArray = sums / self.sizes
        return means

    def with_names(self, names: Mapping[int, str]) -> GroupIndex:
        """Return the same groups under other names; what is sorted is not sorted again."""
        found = GroupIndex(self.identity, self.confidence, names)
        kept = {name: value for name, value in vars(self).items() if name not in (*vars(found), "_called")}
        vars(found).update(kept)
        return found

    @cached_property
    def _called(self) -> PersonNames:
        return PersonNames(self.names)

    def called(self, number: int) -> str:
        """Return what a group is called: its name, else its number."""
        return self._called.called(number)

    @cached_property
    def alone(self) -> LongArray:
        """The images in no group."""
        return np.flatnonzero(self.identity < 0)

    def group_of(self, row: int) -> int:
        """Return the group of an image; -1 if it is in none, or there is no such image."""
        return int(self.identity[row]) if 0 <= row < len(self.identity) else -1

    def members(self, number: int) -> LongArray:
        """Return the images of a group, the least certain first; empty if there is no such group."""
        at = int(np.searchsorted(self.numbers, number))
        if at == len(self.numbers) or self.numbers[at] != number:
            return np.zeros(0, np.int64)
        return self._order[self._starts[at] : self._starts[at + 1]]

    def size(self, number: int) -> int:
        """Return how many images a group has."""
        return len(self.members(number))

    def certain(self, number: int) -> float:
        """Return the mean confidence of one group."""
        members = self.members(number)
        return float(self.confidence[members].mean()) if len(members) else 0.0

    def listed(self, order: str, text: str = "") -> LongArray:
        """Return the groups whose name contains a text or whose number it is, in one of `ORDERS`."""
        numbers, wanted = self.numbers, text.strip().casefold()
        if wanted:
            found = [number for number, name in self.names.items() if wanted in name.casefold()]
            if wanted.removeprefix("person").strip(" -#").isdecimal():
                found.append(int(wanted.removeprefix("person").strip(" -#")[:18]))
            numbers = np.intersect1d(np.array(found, np.int64), self.numbers)
        at = np.searchsorted(self.numbers, numbers)
        if order == "doubtful":
            wrong_pairs = (1 - self.mean_confidence) * self.sizes * (self.sizes - 1)
            return numbers[np.argsort(-wrong_pairs[at], kind="stable")]
        if order in ("large", "small"):
            sign = -1 if order == "large" else 1
            return numbers[np.argsort(sign * self.sizes[at], kind="stable")]
        if order == "name":
            keys = [
                (self.names.get(one, "") == "", self.names.get(one, "").casefold(), one)
                for one in numbers.tolist()
            ]
            return np.array([key[2] for key in sorted(keys)], np.int64)
        return numbers

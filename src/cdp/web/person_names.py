"""What pages call people: by name, else by the number that labels.csv has for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class PersonNames:
    """Names of people by their number.

    Attributes:
        names: number -> name; two people may have the same.
    """

    names: Mapping[int, str]

    @cached_property
    def _shared(self) -> frozenset[str]:
        """Names that several people have."""
        counts = Counter(name for number, name in self.names.items() if number >= 0)
        return frozenset(name for name, times in counts.items() if times > 1)

    def called(self, number: int) -> str:
        """Return a person's name, with the number if several people share it; `person 12` without a name.

        >>> PersonNames({3: "Ann", 4: "Bob", 7: "Bob"}).called(4)
        'Bob (person 4)'
        """
        if number < 0:
            return "no group"
        name = self.names.get(number, "")
        if not name:
            return f"person {number}"
        return f"{name} (person {number})" if name in self._shared else name

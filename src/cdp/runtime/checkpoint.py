"""What a long step has done so far, kept from time to time: whoever is killed loses a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cdp.types.arrays import FloatArray, IntArray
from cdp.types.graphs import UnfinishedLists

Noun = TypeVar("Noun")

# Between two times that something is kept: a minute, or longer, so that saving takes at most a tenth of the
# time. To write and hash lists takes about a second per million images.
_SECONDS = 60.0
_LONGEST_SHARE = 0.1


@dataclass
class Checkpoint(Generic[Noun]):
    """How a step keeps what is not finished, and what was kept by the same step when it was stopped.

    Attributes:
        load: what was kept, or None.
        save: keep this.
    """

    load: Callable[[], Noun | None] = lambda: None
    save: Callable[[Noun], None] | None = None
    _next: float = field(default_factory=lambda: time.monotonic() + _SECONDS)

    def keep(self, make: Callable[[], Noun]) -> None:
        """Keep what is made, if it is time to."""
        begun = time.monotonic()
        if self.save is not None and begun >= self._next:
            self.save(make())
            ended = time.monotonic()
            self._next = ended + max(_SECONDS, (ended - begun) / _LONGEST_SHARE)


@dataclass
class ListCheckpoint(Checkpoint[UnfinishedLists]):
    """The same of lists of neighbors."""

    def resume(self, best: FloatArray, ids: IntArray) -> int:
        """Fill the lists with what was kept; returns how much of the work that was, 0 if nothing was."""
        found = self.load()
        if found is None or found.neighbors.shape != ids.shape:
            return 0
        best[:], ids[:] = found.similarity, found.neighbors
        return found.done

    def note(self, done: int, best: FloatArray, ids: IntArray) -> None:
        """Save the lists if it is time to; `done` is the work that is in them."""
        self.keep(lambda: UnfinishedLists(ids, best, done))

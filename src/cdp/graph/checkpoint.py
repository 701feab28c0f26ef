"""Lists of a search that is not finished, kept from time to time: whoever is killed loses a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cdp.types.arrays import FloatArray, IntArray
from cdp.types.graphs import UnfinishedLists

# Between two times that lists are kept: writing and hashing them takes about a second per million images.
_SECONDS = 60.0


@dataclass
class Checkpoint:
    """How lists are kept, and what was kept by a search for the same graph that was stopped.

    Attributes:
        load: what was kept, or None.
        save: keep this.
    """

    load: Callable[[], UnfinishedLists | None] = lambda: None
    save: Callable[[UnfinishedLists], None] | None = None
    _kept: float = field(default_factory=time.monotonic)

    def resume(self, best: FloatArray, ids: IntArray) -> int:
        """Fill the lists with what was kept; returns how much of the work that was, 0 if nothing was."""
        found = self.load()
        if found is None or found.neighbors.shape != ids.shape:
            return 0
        best[:], ids[:] = found.similarity, found.neighbors
        return found.done

    def note(self, done: int, best: FloatArray, ids: IntArray) -> None:
        """Keep the lists, if it is time to; so much of the work is in them."""
        if self.save is not None and time.monotonic() - self._kept >= _SECONDS:
            self.save(UnfinishedLists(ids, best, done))
            self._kept = time.monotonic()

"""The most memory a piece of work held: the system's own count, set back at the start where the system allows that."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path
from types import TracebackType


class PeakMemory:
    """`with PeakMemory() as memory: ...; memory.peak` is in bytes, of this process, all it held before included.

    `memory.grown` is how far it rose above what was held before; None where the system does not tell (it is read from
    Linux's /proc).
    """

    peak: int = 0
    grown: int | None = None

    def __enter__(self) -> PeakMemory:
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self._before = _resident("VmRSS")
        except OSError:
            # Elsewhere the count only ever grows: then it is the peak of the run so far.
            self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        peak = _resident("VmHWM")
        if peak is not None and self._before is not None:
            self.grown = max(0, peak - self._before)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.peak = peak or (most if sys.platform == "darwin" else 1024 * most)


def _resident(kind: str) -> int | None:
    try:
        found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None

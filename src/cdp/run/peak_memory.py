"""Peak memory of a block of code, from the system's counter, reset where possible."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path
from types import TracebackType


class PeakMemory:
    """Measure peak memory: `with PeakMemory() as memory: ...; memory.peak` in bytes.

    Includes everything the process held before.

    `memory.grown` is how far it rose above what was held before; None where the system does not tell (it is
    read from Linux's /proc).
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

"""The most memory a stage held: the system's own count, set back at the start where the system allows that."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType


class PeakMemory:
    """`with PeakMemory() as memory: ...; memory.peak` is in bytes, of this process, all it held before included."""

    peak: int = 0

    def __enter__(self) -> PeakMemory:
        # Elsewhere the count only ever grows: then it is the peak of the run so far.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.peak = _peak()


def _peak() -> int:
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most

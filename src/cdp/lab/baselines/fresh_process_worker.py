"""The other side of `run_apart`: python -m cdp.lab.baselines.fresh_process_worker MODULE FUNCTION FOLDER."""

from __future__ import annotations

import json
import re
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np


def main(module: str, function: str, folder: Path) -> None:
    """Prepare, then label under the clock, then write labels and figures."""
    work = getattr(import_module(module), function)(folder)
    before = _start_peak()
    started = time.perf_counter()
    labels = work()
    seconds = time.perf_counter() - started
    peak = _resident("VmHWM")
    grown = None if before is None or peak is None else max(0, peak - before)
    np.save(folder / "labels.npy", labels.labels)
    (folder / "figures.json").write_text(json.dumps({"seconds": seconds, "peak_bytes": grown}))


def _start_peak() -> int | None:
    """Resident bytes now; from here on the peak is counted anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _resident("VmRSS")


def _resident(kind: str) -> int | None:
    try:
        found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

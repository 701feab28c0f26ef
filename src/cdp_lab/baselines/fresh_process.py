"""Labeling in a process of its own, to learn its seconds and its peak memory.

The process runs `python -m cdp_lab.baselines.fresh_process MODULE FUNCTION FOLDER`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from cdp.errors import CdpError
from cdp.run.peak_memory import PeakMemory
from cdp.types import Labels
from cdp.types.arrays import IntArray

Prepare = Callable[[Path], Callable[[], Labels]]


@dataclass(frozen=True, eq=False)
class MeasuredLabels:
    """Labels and what they cost.

    Attributes:
        labels: int32 (n,), -1 = discarded.
        seconds: of the labeling alone, after reading, importing and compiling.
        peak_bytes: the most resident memory above what the process held before the labeling; None if unknown.
    """

    labels: IntArray
    seconds: float
    peak_bytes: int | None


def run_in_fresh_process(prepare: Prepare, folder: Path, name: str) -> MeasuredLabels:
    """`prepare(folder)` in a fresh process, then what it returned, measured.

    A process of its own, because native memory is visible only as the memory of a whole process, and because
    memory that an earlier method gave back to the allocator would hide what the next one takes.

    Args:
        prepare: a function at the top of a module: reads what it needs from the folder, warms up, and returns
            the work to be measured.
        folder: where the inputs are stored; the labels are left there too.
        name: what is labeling, for the message if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, prepare.__module__, prepare.__qualname__, str(folder)],
        capture_output=True,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        text=True,
        check=False,
    )
    if done.returncode < 0:
        raise CdpError(
            f"{name}: its process was stopped by signal {-done.returncode}, perhaps for lack of memory; "
            "give fewer images or leave this method out.",
            code="baseline-stopped",
            baseline=name,
            signal=-done.returncode,
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        sentence = re.sub(r"^[\w.]+: ", "", last[0])  # without the name of the exception
        raise CdpError(f"{name}: {sentence}", code="baseline-failed", baseline=name)
    figures = json.loads((folder / "figures.json").read_text())
    labels: IntArray = np.load(folder / "labels.npy", allow_pickle=False)
    return MeasuredLabels(labels, figures["seconds"], figures["peak_bytes"])


def _measure(module: str, function: str, folder: Path) -> None:
    """In the process: prepare, then label under the clock, then write labels and figures."""
    work = getattr(import_module(module), function)(folder)
    with PeakMemory() as memory:
        started = time.perf_counter()
        labels = work()
        seconds = time.perf_counter() - started
    np.save(folder / "labels.npy", labels.labels)
    (folder / "figures.json").write_text(json.dumps({"seconds": seconds, "peak_bytes": memory.grown}))


if __name__ == "__main__":
    _measure(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

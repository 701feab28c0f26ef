"""Labeling in a process of its own, to learn its seconds and its peak memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.errors import CdpError
from cdp.types import Labels
from cdp.types.arrays import IntArray

Prepare = Callable[[Path], Callable[[], Labels]]


@dataclass(frozen=True, eq=False)
class Run:
    """What a labeling gave and cost.

    Attributes:
        labels: int32 (n,), -1 = discarded.
        seconds: of the labeling alone, after reading, importing and compiling.
        peak_bytes: the most resident memory above what the process held before the labeling; None where the
            system does not tell (it is read from Linux's /proc).
    """

    labels: IntArray
    seconds: float
    peak_bytes: int | None


def run_apart(prepare: Prepare, folder: Path, name: str) -> Run:
    """`prepare(folder)` in a fresh process, then what it returned, measured.

    A process of its own, because native memory is visible only as the memory of a whole process, and because
    memory that an earlier method gave back to the allocator would hide what the next one takes.

    Args:
        prepare: a function at the top of a module: reads what it needs from the folder, warms up, and returns
            the work to be measured.
        folder: where the inputs lie; the labels are left there too.
        name: what is labeling, for the message if it fails.
    """
    command = [sys.executable, "-m", "cdp.lab.baselines.fresh_process_worker"]
    done = subprocess.run(
        [*command, prepare.__module__, prepare.__qualname__, str(folder)],
        capture_output=True,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        text=True,
        check=False,
    )
    if done.returncode < 0:
        raise CdpError(
            f"{name}: its process was stopped by signal {-done.returncode}, perhaps for lack of memory; "
            "give fewer images or leave this method out."
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        sentence = re.sub(r"^[\w.]+: ", "", last[0])  # without the name of the exception
        raise CdpError(f"{name}: {sentence}")
    figures = json.loads((folder / "figures.json").read_text())
    labels: IntArray = np.load(folder / "labels.npy", allow_pickle=False)
    return Run(labels, figures["seconds"], figures["peak_bytes"])

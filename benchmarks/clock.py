"""Measuring: seconds, and the peak of resident memory in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Seconds that `work` took, and what it returned."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The least of several timings: noise only ever adds."""
    return min(timed(work)[0] for _ in range(repeats))


def in_own_process(module: str, **settings: Any) -> dict[str, Any]:
    """`module.child(**settings)` in a fresh interpreter, and its peak resident memory in MB."""
    code = (
        "import importlib, json, re, sys\n"
        "figures = importlib.import_module(sys.argv[1]).child(**json.loads(sys.argv[2]))\n"
        # Not getrusage: its peak is inherited from the process that started this one.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())\n"
        "figures['peak_mb'] = round(int(peak[1]) / 1000)\n"
        "print(json.dumps(figures))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, module, json.dumps(settings)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures

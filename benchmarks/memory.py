"""Memory kept: the most that `cdp label` holds above its libraries and above mapped files, by memory budget.

Each run is a process of its own that first labels a handful of images, so that libraries are loaded and loops compiled; what it
holds then is what the budget is counted above. Anonymous memory (`RssAnon` of /proc/self/status) is looked at every two milliseconds.
"""

from __future__ import annotations

import ctypes
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.clock import in_own_process


def measure(*, quick: bool) -> dict[str, Any]:
    """Peaks by preset and budget."""
    from cdp_lab.synthetic import synthetic_views

    n_people, runs = (
        (500, [("best", "64MB")])
        if quick
        else (5000, [("best", "64MB"), ("paper", "64MB"), ("best", "256MB"), ("best", "1GB")])
    )
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cdp-memory-") as home:
        for name, people in (("few", 100), ("many", n_people)):
            split = synthetic_views(people, members=2, seed=1)
            split.labeled.save(Path(home) / name / "labeled")
            split.unlabeled.save(Path(home) / name / "unlabeled")
        n_images = split.labeled.n_images + split.unlabeled.n_images
        for preset, budget in runs:
            run = in_own_process("benchmarks.memory", home=home, preset=preset, budget=budget)
            figures[f"{preset} {budget}"] = run
            print(
                f"{n_images:,} x 128 x 3, {preset:5} budget {budget:>6}: {run['most_mb']:4} MB kept, most in the step "
                f"{run['step']!r}, {run['steps'].get('graphs', 0)} MB in 'graphs'; {run['base_mb']} MB before; {run['cpu']:.0f} CPU seconds",
                flush=True,
            )
    return figures


def child(home: str, preset: str, budget: str) -> dict[str, Any]:
    """What labeling the many images held above what labeling the few had left."""
    label(Path(home) / "few", preset, budget)
    label(Path(home) / "few", preset, budget)
    ctypes.CDLL(None).malloc_trim(0)
    before, start = anonymous(), time.process_time()
    with watching() as peaks:
        label(Path(home) / "many", preset, budget)
    step = max(peaks, key=lambda one: peaks[one])
    return {
        "most_mb": round((peaks[step] - before) / 1e6),
        "step": step,
        "steps": {name: round((peak - before) / 1e6) for name, peak in peaks.items()},
        "base_mb": round(before / 1e6),
        "cpu": round(time.process_time() - start, 1),
    }


def label(folder: Path, preset: str, budget: str) -> None:
    """`cdp label` of a folder's views, on one thread."""
    from cdp.cli.label_command import Files, Labeling, label_embeddings
    from cdp.runtime.progress import no_progress
    from cdp.runtime.settings import RuntimeSettings
    from cdp.scoring.settings import ConsensusSettings

    files = Files(str(folder / "unlabeled"), folder / "labeled")
    how = Labeling(folder / "faces", ConsensusSettings.of(preset), force=True, quiet=True)
    engine = RuntimeSettings(memory_budget=budget, threads=1, device="cpu")
    label_embeddings(files, how, how.open_runtime(engine, no_progress))


def anonymous() -> int:
    """Bytes that this process holds in no file."""
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


@contextmanager
def watching() -> Iterator[dict[str, int]]:
    """The most anonymous memory by step of the labeling, filled as it goes on."""
    from cdp.runtime.runtime import Runtime

    peaks: dict[str, int] = {}
    current, is_over = ["before"], threading.Event()
    timed = Runtime.step

    @contextmanager
    def named(work: Runtime, name: str) -> Iterator[None]:
        current[0] = name
        with timed(work, name):
            yield
        current[0] = f"after {name}"

    def look() -> None:
        while not is_over.wait(0.002):
            peaks[current[0]] = max(peaks.get(current[0], 0), anonymous())

    watcher = threading.Thread(target=look)
    Runtime.step = named  # type: ignore[method-assign]
    watcher.start()
    try:
        yield peaks
    finally:
        is_over.set()
        watcher.join()
        Runtime.step = timed  # type: ignore[method-assign]

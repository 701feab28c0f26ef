"""`python -m benchmarks [NAME ...] [--quick] [--out FILE]`: run them all, or some; print and keep the figures.

Long ones continue from the figures that FILE has (`RESUMABLE`); remove it to measure everything again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import time
from functools import partial
from pathlib import Path

import cdp

NAMES = (
    "consensus",
    "propagation",
    "memory",
    "search",
    "peers",
    "scale",
    "startup",
    "fuzz",
    "bad_input",
    "hostile_requests",
    "kills",
    "lfw",
    "presets",
    "unlabeled_albums",
    "lfw_unlabeled",
    "known_people",
    "album_questions",
    "identification",
    "collections",
    "training",
    "contention",
    "onnx_embedding",
    "detectors",
    "ray_overhead",
    "graph_growth",
    "grouping_memory",
)

RESUMABLE = ("unlabeled_albums", "lfw_unlabeled")
"""Benchmarks whose `measure` takes the figures kept so far, and a function that keeps more."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which ones; all if none is named")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that they run")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    settings = parser.parse_args()
    results: dict[str, object] = {
        "cdp": cdp.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "quick": settings.quick,
    }
    out: Path | None = settings.out
    kept = json.loads(out.read_text()) if out and out.is_file() else {}
    for name in settings.names or NAMES:
        print(f"\n== {name} ==", flush=True)
        started = time.perf_counter()
        run = importlib.import_module(f"benchmarks.{name}").measure
        if name in RESUMABLE:
            keep = partial(_keep, out, results, name)
            figures = run(quick=settings.quick, kept=kept.get(name, {}), keep=keep)
        else:
            figures = run(quick=settings.quick)
        results[name] = {**figures, "seconds_in_all": round(time.perf_counter() - started, 1)}
    if out:
        _write(out, results)
        print(f"\nwritten to {out}")


def _keep(out: Path | None, results: dict[str, object], name: str, figures: dict[str, object]) -> None:
    results[name] = figures
    if out:
        _write(out, results)


def _write(out: Path, results: dict[str, object]) -> None:
    part = out.with_name(f".{out.name}.part")
    part.write_text(json.dumps(results, indent=2) + "\n")
    part.replace(out)


if __name__ == "__main__":
    main()

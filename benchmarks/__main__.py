"""`python -m benchmarks [NAME ...] [--quick] [--out FILE]`: run them all, or some; print and keep the figures."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import time
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
    "lfw",
    "presets",
    "unsupervised",
    "unlabeled_albums",
    "albums",
    "one_person",
    "identification",
    "collections",
    "training",
    "onnx_embedding",
    "detectors",
    "ray_overhead",
    "grouping_memory",
)


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
    for name in settings.names or NAMES:
        print(f"\n== {name} ==", flush=True)
        started = time.perf_counter()
        figures = importlib.import_module(f"benchmarks.{name}").measure(quick=settings.quick)
        results[name] = {**figures, "seconds_in_all": round(time.perf_counter() - started, 1)}
    if settings.out:
        settings.out.write_text(json.dumps(results, indent=2) + "\n")
        print(f"\nwritten to {settings.out}")


if __name__ == "__main__":
    main()

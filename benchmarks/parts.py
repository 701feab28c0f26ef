"""Parts of a long benchmark: each is kept as it is finished, so that a killed run goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Part = Callable[[], Any]


def run_parts(benchmark: str, parts: Mapping[str, Part], only: list[str] | None = None) -> dict[str, Any]:
    """The figures of all parts, measured now or before, in `work/benchmarks/BENCHMARK`, or where $CDP_PARTS says.

    Args:
        benchmark: name of the folder.
        parts: name -> what measures it.
        only: measure only parts whose name begins with one of these; None = all.
    """
    folder = Path(os.environ.get("CDP_PARTS", "work/benchmarks")) / benchmark
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for name, measure in parts.items():
        file = folder / f"{name.replace(', ', '-').replace(' ', '_')}.json"
        wanted = only is None or name.startswith(tuple(only))
        if not file.exists() and wanted:
            print(f"-- {name}", flush=True)
            partial = file.with_suffix(".partial")
            partial.write_text(json.dumps(measure()))
            partial.replace(file)
        if file.exists():
            figures[name] = json.loads(file.read_text())
    return figures

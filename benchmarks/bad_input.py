"""Bad values and bad files for all options of all commands: how many are refused in a sentence, and which are not."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

SEED = 47


def measure(*, quick: bool) -> dict[str, Any]:
    home = Path(__file__).parents[1]
    sys.path[:0] = [str(home / "tests"), str(home)]
    from bad_inputs import Bench, pick_cases

    cases = pick_cases(108 if quick else 1080, SEED)
    counts: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="bad-input-") as folder:
        bench = Bench(Path(folder))
        for number, case in enumerate(cases):
            verdict = bench.run(case)
            ended = {0: "done", 1: "refused", 2: "refused", None: "hangs"}.get(verdict.code, "tracebacks")
            counts[ended] += 1
            slowest = max(slowest, verdict.seconds)
            if verdict.problem:
                counts["problems"] += 1
                print(f"{case}: {verdict.problem}\n    {verdict.said[-300:]}", flush=True)
            elif number % 100 == 99:
                print(f"{number + 1:,} of {len(cases):,}", flush=True)
    figures = {"cases": len(cases), **counts, "slowest_seconds": round(slowest, 1)}
    print(", ".join(f"{name}: {count:,}" for name, count in figures.items()))
    return figures

"""Files of every kind that cdp reads, changed at random: how many are read, refused in a sentence, or neither."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

SEED = 5


def measure(*, quick: bool) -> dict[str, Any]:
    home = Path(__file__).parents[1]
    sys.path[:0] = [str(home / "tests"), str(home)]
    from fuzzing import fuzz, make_kinds

    n_cases = 100 if quick else 2_600
    figures: dict[str, Any] = {"cases_per_kind": n_cases}
    total = {"read": 0, "refused": 0, "unforeseen": 0, "failures": 0}
    with tempfile.TemporaryDirectory(prefix="fuzzed-") as folder:
        for kind in make_kinds(Path(folder)):
            # Of a whole album each reading goes through all commands.
            outcome = fuzz(kind, n_cases // 50 if kind.name.startswith("album") else n_cases, SEED)
            counts = {name: getattr(outcome, name) for name in ("read", "refused", "unforeseen")}
            counts["failures"] = len(outcome.failures)
            total = {name: total[name] + counts[name] for name in total}
            figures[kind.name] = {**counts, "slowest_seconds": round(outcome.slowest, 3)}
            print(
                f"{kind.name:40} {outcome.read:6,} read, {outcome.refused:6,} refused ({outcome.unforeseen:,} by the last "
                f"resort), {len(outcome.failures):,} failures; slowest {outcome.slowest:.2f} s",
                flush=True,
            )
            for failure in outcome.failures[:10]:
                print(f"    {failure[:300]}")
    print(", ".join(f"{count:,} {name}" for name, count in total.items()))
    return {**figures, "total": total}

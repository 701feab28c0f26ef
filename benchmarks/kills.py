"""Every command that writes, killed at any moment or on a full disk, and typed again: are the same bytes there?"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

SEED = 1


def measure(*, quick: bool) -> dict[str, Any]:
    home = Path(__file__).parents[1]
    sys.path[:0] = [str(home / "tests"), str(home)]
    from bad_inputs import Bench
    from kills import WRITERS, kill_often

    n_timed, n_counted, n_full = (1, 1, 1) if quick else (5, 15, 10)
    problems: list[str] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        bench = Bench(Path(folder))
        for writer in WRITERS:
            found = list(kill_often(bench, writer, n_timed, n_counted, n_full, SEED, counts.update))
            problems += found
            print(f"{writer.words}: {dict(counts)}, {len(found)} problems", flush=True)
            for one in found:
                print(f"    {one[:400]}", flush=True)
    figures = {"commands": len(WRITERS), **counts, "problems": len(problems)}
    print(figures)
    return figures

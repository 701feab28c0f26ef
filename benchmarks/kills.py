"""Every command that writes, killed at any moment and typed again: whether the same bytes are there as without."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

SEED = 1


def measure(*, quick: bool) -> dict[str, Any]:
    home = Path(__file__).parents[1]
    sys.path[:0] = [str(home / "tests"), str(home)]
    from bad_inputs import Bench
    from kills import WRITERS, kill_often

    n_kills = 1 if quick else 5
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        bench = Bench(Path(folder))
        for writer in WRITERS:
            found = list(kill_often(bench, writer, n_kills, SEED))
            problems += found
            print(f"{writer.words}: {n_kills} kills, {len(found)} problems", flush=True)
            for one in found:
                print(f"    {one[:400]}", flush=True)
    figures = {"commands": len(WRITERS), "kills": n_kills * len(WRITERS), "problems": len(problems)}
    print(figures)
    return figures

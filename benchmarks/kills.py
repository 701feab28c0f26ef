"""Every command that writes, killed at any moment or on a full disk, and typed again: are the same bytes there?"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

SEED = 3


def measure(*, quick: bool) -> dict[str, Any]:
    home = Path(__file__).parents[1]
    sys.path[:0] = [str(home / "tests"), str(home)]
    from bad_inputs import Bench
    from killed_review import kill_review
    from kills import WRITERS, kill_often

    often, seldom = ((1, 1, 1), (1, 1, 0)) if quick else ((5, 15, 10), (2, 5, 2))
    problems: list[str] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        bench = Bench(Path(folder))
        for writer in WRITERS:
            moments = seldom if writer.takes_long else often
            found = list(kill_often(bench, writer, *moments, SEED, counts.update))
            problems += found
            _tell(writer.words, counts, found)
        found = list(kill_review(bench, *often[:2], SEED, counts.update))
        problems += found
        _tell("review faces", counts, found)
    figures = {"commands": len(WRITERS) + 1, **counts, "problems": len(problems)}
    print(figures)
    return figures


def _tell(words: str, counts: Counter[str], found: list[str]) -> None:
    print(f"{words}: {dict(counts)}, {len(found)} problems", flush=True)
    for one in found:
        print(f"    {one[:400]}", flush=True)

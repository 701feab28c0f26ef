"""What importing costs: `import cdp` against `import numpy`, and `cdp --help`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks.clock import best_of


def measure(*, quick: bool) -> dict[str, Any]:
    repeats = 2 if quick else 5

    def run(*words: str) -> float:
        return best_of(
            repeats, lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True)
        )

    figures = {
        "python": run("-c", "pass"),
        "numpy": run("-c", "import numpy"),
        "cdp": run("-c", "import cdp"),
        "cdp_and_numpy": run("-c", "import numpy, cdp"),
        "help": run("-m", "cdp", "--help"),
    }
    for name, seconds in figures.items():
        print(f"{name:14s} {1000 * seconds:6.0f} ms")
    return figures

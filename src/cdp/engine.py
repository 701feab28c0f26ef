"""What a computation may take of the machine; results do not depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from cdp.memory import parse_bytes
from cdp.settings import check_settings, setting

MOST_THREADS = 4096
"""More than any machine has cores; beyond it a number of threads is a slip."""


@dataclass(frozen=True)
class Engine:
    """Device, threads and memory."""

    device: str = setting(
        "auto",
        "Where networks and k-NN searches compute: auto (a GPU if there is one), cpu, cuda, cuda:1, mps.",
    )
    threads: int = setting(
        0,
        "Threads that compute and decode; 0 = all cores.",
        meaning="a number of threads",
        low=0,
        high=MOST_THREADS,
    )
    memory_budget: str = setting(
        "2GB", "What blocks and decoded images may take together, e.g. 500MB.", check=parse_bytes
    )

    def __post_init__(self) -> None:
        check_settings(self, getattr(self, "section", ""))

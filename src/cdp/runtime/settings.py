"""What a computation runs on and may take; results do not depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdp.runtime.memory import parse_bytes
from cdp.settings import check_settings, setting

if TYPE_CHECKING:
    from cdp.runtime.ray_pool import RayPool

ON_RAY = ("engine", "ray_address")
"""Settings of RuntimeSettings that a command has only if it gives work to Ray."""
MOST_THREADS = 4096
"""More than any machine has cores; beyond it a number of threads is a slip."""


@dataclass(frozen=True)
class RuntimeSettings:
    """Device, threads, memory, and whether blocks of work go to Ray."""

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
        "2GB",
        "What labeling may take above its libraries and mapped files, and decoded images while training, e.g. 500MB.",
        check=parse_bytes,
    )
    engine: Literal["threads", "ray"] = setting(
        "threads",
        "Where blocks of work run: on threads of this process, or on the machines of a Ray cluster.",
    )
    ray_address: str = setting(
        "local",
        "The Ray cluster: auto (the one that this node belongs to), its address, e.g. head:6379, or local (this machine "
        "alone: its threads do the work, and Ray gives networks a GPU each where it has several).",
    )

    def __post_init__(self) -> None:
        check_settings(self, getattr(self, "section", ""))

    @property
    def share(self) -> int:
        """A quarter of the memory budget, in bytes: one for blocks under way, one for arrays, two for all that must be held."""
        return max(1, parse_bytes(self.memory_budget) // 4)

    def ray_pool(self) -> RayPool:
        """The cluster at the address."""
        from cdp.runtime.ray_pool import RayPool

        return RayPool(self.ray_address, self.threads, self.memory_budget)

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
        "Device for networks and k-NN search: auto (a GPU if available), cpu, cuda, cuda:1, mps.",
    )
    threads: int = setting(
        0,
        "Number of threads; 0 = all cores.",
        meaning="a number of threads",
        low=0,
        high=MOST_THREADS,
    )
    memory_budget: str = setting(
        "2GB",
        "Memory limit for working data, excluding libraries and memory-mapped files, e.g. 500MB.",
        check=parse_bytes,
    )
    engine: Literal["threads", "ray"] = setting(
        "threads",
        "Execution on threads of this process, or on a Ray cluster.",
    )
    ray_address: str = setting(
        "local",
        "Ray cluster: auto (the one of this node), an address such as head:6379, or local (this machine).",
    )

    def __post_init__(self) -> None:
        check_settings(self, getattr(self, "section", ""))

    @property
    def share(self) -> int:
        """Return a quarter of the memory budget in bytes.

        One is for blocks in progress, one for arrays, two for what must stay in memory.
        """
        return max(1, parse_bytes(self.memory_budget) // 4)

    def ray_pool(self) -> RayPool:
        """Return the cluster at the address."""
        from cdp.runtime.ray_pool import RayPool

        return RayPool(self.ray_address, self.threads, self.memory_budget)

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

    def workers_for(self, block_bytes: int) -> int | RayPool:
        """As many threads as have room for such a block each; a pool, which bounds what is under way by itself, whole.

        Blocks themselves must not depend on the number of threads, or results would.
        """
        workers = self.workers
        if not isinstance(workers, int):
            return workers
        from cdp.runtime.parallel import count_threads

        return max(1, min(count_threads(workers), self.share // max(1, block_bytes)))

    @property
    def search_device(self) -> str:
        """Where k-NN searches compute: on Ray, the cores of all nodes are worth more than one GPU here."""
        return self.device if isinstance(self.workers, int) else "cpu"

    @property
    def embedders(self) -> int | RayPool:
        """What networks run on: as other blocks; but on Ray each worker gets a GPU where there are any, unless the device is cpu."""
        if self.engine == "threads" or self.device == "cpu":
            return self.workers
        from cdp.runtime.devices import count_gpus

        pool = self.ray_pool()
        return self.threads if pool.is_this_machine and count_gpus() < 2 else pool.with_gpus()

    @property
    def workers(self) -> int | RayPool:
        """What blocks run on, for `cdp.runtime.parallel.map_shared`: threads too where Ray has no other machine."""
        if self.engine == "threads" or self.ray_pool().is_this_machine:
            return self.threads
        return self.ray_pool()

    def ray_pool(self) -> RayPool:
        """The cluster at the address."""
        from cdp.runtime.ray_pool import RayPool

        return RayPool(self.ray_address, self.threads, self.memory_budget)

"""`Runtime`: one object for how computations run. Results never depend on it.

Every step takes one `runtime` and nothing else about how it runs:

    runtime.map(function, shared, blocks)       blocks on threads, or on the machines of a Ray cluster
    runtime.empty(shape, dtype)                 an array in memory if it fits the budget, else in a spill file
    runtime.rows_per_block(bytes_per_row)       how many rows fit the memory of a block
    runtime.cache, runtime.checkpoint(...)      finished steps by key, and unfinished ones every minute
    runtime.progress(step, done, total)         progress bars
    with runtime.step(name): ...                timings
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from cdp.runtime.checkpoint import ListCheckpoint
from cdp.runtime.memory import give_back, parse_bytes, rows_within
from cdp.runtime.parallel import Item, Result, Shared, count_threads, map_blocks
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.spill import SpillFiles
from cdp.runtime.step_cache import StepCache
from cdp.types.arrays import AnyArray
from cdp.types.graphs import UnfinishedLists

if TYPE_CHECKING:
    from cdp.runtime.ray_pool import RayPool

_ALONE = (
    "engine = 'ray', but the cluster has no other machine: this machine's threads do the work. Start Ray on "
    "the others (`ray start --head` here, `ray start --address=…` there), and set ray_address = 'auto'."
)


@dataclass(frozen=True, eq=False)
class Runtime:
    """How computations run: threads or Ray, device, memory budget, cached steps, progress and timings.

    Attributes:
        settings: device, threads, memory budget, Ray.
        cache: finished steps, by key.
        progress: called as the work goes on.
        folder: of spill files; None = the cache's, or the system's for temporary files. On Ray, one that all
            nodes see.
        timings: seconds by step, so far.
        wants_gpus: whether each Ray task gets a GPU where the cluster has any.
        shared_spill: spill files of the runtime that this one is derived from; None = new ones.

    Examples:
        >>> from cdp import Runtime, knn_graph
        >>> runtime = Runtime.of(threads=1, memory_budget="100MB")
        >>> knn_graph([[1.0, 0.0], [0.0, 1.0]], k=1, runtime=runtime).k
        1
    """

    settings: RuntimeSettings = field(default_factory=RuntimeSettings)
    cache: StepCache = field(default_factory=StepCache)
    progress: Progress = no_progress
    folder: Path | None = None
    timings: dict[str, float] = field(default_factory=dict)
    wants_gpus: bool = False
    shared_spill: SpillFiles | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.shared_spill is None:
            is_shared = self.pool is not None
            spill = SpillFiles(self.block_memory, self.cache.folder or self.folder, is_shared=is_shared)
            object.__setattr__(self, "shared_spill", spill)
            if self.settings.engine == "ray" and not is_shared:
                warnings.warn(_ALONE, stacklevel=3)

    @classmethod
    def of(
        cls,
        *,
        cache: StepCache | None = None,
        progress: Progress = no_progress,
        folder: Path | None = None,
        **settings: Any,
    ) -> Runtime:
        """Create a runtime from settings by name: `Runtime.of(threads=1, memory_budget="64MB")`."""
        return cls(RuntimeSettings(**settings), cache or StepCache(), progress, folder)

    # Workers.

    @property
    def pool(self) -> RayPool | None:
        """The Ray cluster; None where threads do the work, also where Ray has no other machine."""
        if self.settings.engine == "threads":
            return None
        pool = self.settings.ray_pool()
        if self.wants_gpus:
            from cdp.runtime.devices import count_gpus

            if self.settings.device == "cpu":
                return None if pool.is_this_machine else pool
            return None if pool.is_this_machine and count_gpus() < 2 else pool.with_gpus()
        return None if pool.is_this_machine else pool

    @property
    def n_threads(self) -> int:
        """Threads to use in this process."""
        return count_threads(self.settings.threads if self.pool is None else 0)

    def map(
        self,
        function: Callable[[Shared, Item], Result],
        shared: Shared,
        items: Iterable[Item],
        *,
        block_bytes: int = 0,
    ) -> Iterator[Result]:
        """Yield function(shared, item) for every item, in order, on threads or on Ray.

        `shared` is what all items need and nobody changes; it is sent to other processes once. Items are
        taken from their iterator as workers become free, so a late item may depend on early results where
        that changes nothing but the time it takes. The function belongs to a module; it is no closure.
        Threads are fewer where blocks of `block_bytes` each would not fit the memory budget; blocks
        themselves must not depend on the number of threads, or results would.
        """
        pool = self.pool
        if pool is not None:
            return pool.map(function, shared, items)
        return self.map_here(partial(function, shared), items, block_bytes=block_bytes)

    def map_here(
        self, function: Callable[[Item], Result], items: Iterable[Item], *, block_bytes: int = 0
    ) -> Iterator[Result]:
        """Yield function(item) in order, on as many threads as have memory for their blocks."""
        return map_blocks(function, items, self.with_threads_for(block_bytes).n_threads)

    def with_threads_for(self, block_bytes: int) -> Runtime:
        """Return the same runtime with as many threads as have memory for a block of this size each."""
        if not block_bytes or self.pool is not None:
            return self
        threads = max(1, min(self.n_threads, self.block_memory // block_bytes))
        return replace(self, settings=replace(self.settings, threads=threads))

    def here(self, threads: int | None = None) -> Runtime:
        """Return the same runtime without Ray, and with another number of threads if given."""
        threads = self.settings.threads if threads is None else threads
        return replace(self, settings=replace(self.settings, engine="threads", threads=threads))

    def on_gpus(self) -> Runtime:
        """Return the same runtime for tasks that run networks: on Ray each gets a GPU where there are any."""
        return replace(self, wants_gpus=True)

    @property
    def search_device(self) -> str:
        """The device of k-NN searches: on Ray, the cores of all nodes are worth more than one GPU here."""
        return self.settings.device if self.pool is None else "cpu"

    # Memory.

    @property
    def spill(self) -> SpillFiles:
        """Large arrays, in memory while they fit the budget, else in temporary files."""
        assert self.shared_spill is not None
        return self.shared_spill

    @property
    def block_memory(self) -> int:
        """Return a quarter of the memory budget in bytes.

        One is for blocks in progress, one for arrays, two for what must stay in memory.
        """
        return max(1, parse_bytes(self.settings.memory_budget) // 4)

    def rows_per_block(self, bytes_per_row: int, at_least: int = 1024) -> int:
        """Return the rows that fit the memory of a block, with a minimum to keep overhead low."""
        return rows_within(self.block_memory, bytes_per_row, at_least)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
        """Allocate an array to be filled: in memory while it fits the budget, else in a spill file."""
        return self.spill.empty(shape, dtype)

    def full(self, shape: int | tuple[int, ...], value: float, dtype: npt.DTypeLike) -> AnyArray:
        """Allocate an array that holds one value everywhere."""
        return self.spill.full(shape, value, dtype)

    def copy(self, array: AnyArray) -> AnyArray:
        """Copy an array, to be changed."""
        return self.spill.copy(array)

    def finished(self, array: AnyArray) -> AnyArray:
        """Return an array that is final; other processes get a spill file by name."""
        return self.spill.done(array)

    # Steps.

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, and return the memory that it freed to the system."""
        start = time.perf_counter()
        yield
        give_back()
        self.timings[name] = round(self.timings.get(name, 0.0) + time.perf_counter() - start, 3)

    def list_checkpoint(self, key: str) -> ListCheckpoint:
        """Periodic checkpoint of neighbor lists under a key; none without a key or a cache folder."""
        cache = self.cache if key else StepCache()
        return ListCheckpoint(*cache.keeping("lists", key, UnfinishedLists))

"""Blocks of work on the machines of a Ray cluster."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from itertools import islice
from typing import Any
from uuid import uuid4

from cdp.errors import CdpError, InputError, MissingExtraError, install_command
from cdp.runtime.memory import parse_bytes
from cdp.runtime.packing import Packed, pack, unpack
from cdp.runtime.parallel import Item, Result, Shared, count_threads, on_one_thread

# What a task costs in addition to its blocks, some milliseconds, must not matter, and little be lost with a
# worker.
_SECONDS_PER_TASK = 1.0
_FASTEST_GROWTH = 16
# A task is tried again where its worker or node was lost; one that kills whatever runs it must end.
_RETRIES = 5
_TASKS_PER_PLACE = 2
_PATIENCE = 60.0
_SECONDS_TO_ANSWER = 10.0
_LOOK_AGAIN = 5.0


@dataclass(frozen=True)
class RayPool:
    """Workers of Ray.

    Attributes:
        address: of the cluster; `local` = one of this machine's own, which ends with this process.
        threads: cores of that one; 0 = all.
        memory_budget: what blocks and results that are under way may take, half of it at most.
        wants_gpu: whether each task gets a GPU, where the cluster has any.
        cores: of one machine, for each task.
    """

    address: str = "local"
    threads: int = 0
    memory_budget: str = "2GB"
    wants_gpu: bool = False
    cores: int = 1

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise MissingExtraError(
                f'engine="ray" needs Ray, which is not installed; run {install_command("ray")}.',
                code="ray-missing",
                extra="ray",
            )

    @property
    def is_this_machine(self) -> bool:
        """Test whether there is no other machine, without starting Ray; threads then do the work."""
        if self.address == "local" and ("ray" not in sys.modules or not sys.modules["ray"].is_initialized()):
            return True
        nodes = [node for node in self._connect().nodes() if node["Alive"]]
        # A head without cores of its own waits for machines that are started when there is work.
        has_cores = all(node["Resources"].get("CPU") for node in nodes)
        return len(nodes) == 1 and has_cores and nodes[0]["NodeManagerHostname"] == socket.gethostname()

    def with_gpus(self) -> RayPool:
        """Return the same workers for tasks that compute on a GPU where there is one."""
        return replace(self, wants_gpu=True)

    @property
    def machines(self) -> list[int]:
        """How many cores every machine of the cluster has, the most first."""
        nodes = self._connect().nodes()
        return sorted((int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]), reverse=True)

    def map(
        self, function: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[Result]:
        """function(shared, item) for every item, in order.

        As many blocks as take about a second go to a worker together; how many does not change their results.
        """
        ray = self._connect()
        run = _make_remote(**self._resources(ray))
        reference, key = ray.put(pack(shared)), uuid4().hex
        waiting, running, load = iter(items), deque[Any](), _Load(parse_bytes(self.memory_budget) // 2)
        places = _Places(self)
        # Blocks that nobody waits for any more, after an error, run to their end: `ray.cancel` can meet a
        # task that ends just then, and Ray (2.60: "Tried to complete task that was not pending") then ends
        # this whole process.
        while True:
            while len(running) < _TASKS_PER_PLACE * places.count() and load.fits(len(running)):
                if not (group := list(islice(waiting, load.n_blocks))):
                    break
                packed = pack(group)
                load.see_blocks(packed.n_bytes)
                running.append(run.remote(function, reference, packed, key))
            if not running:
                return
            seconds, packed = _fetch(ray, running[0], places)
            running.popleft()
            results = unpack(packed, copy=True)
            load.see_results(seconds, len(results), packed.n_bytes)
            del packed
            yield from results

    def _connect(self) -> Any:
        import ray

        if ray.is_initialized():
            return ray
        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
        try:
            if self.address == "local":
                cores = count_threads(self.threads)
                with _only_errors():  # a warning that tokens are used, which is as it should be
                    ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
            else:
                _knock_at(self.address)
                ray.init(address=self.address, **quiet)
        except Exception as error:  # Ray raises whatever there is, plain Exception too
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            if self.address == "local":
                raise CdpError(
                    f"Ray did not start on this machine: {reason}", code="ray-not-started"
                ) from error
            raise InputError(
                f"ray_address = {self.address!r}: no Ray cluster answers ({reason}); start one with `ray "
                "start --head`, or omit the address to use this machine.",
                code="ray-cluster-unreachable",
                key="ray_address",
                value=self.address,
            ) from None
        return ray

    def _resources(self, ray: Any) -> dict[str, float]:
        there = ray.cluster_resources()
        n_gpus = int(there.get("GPU", 0)) if self.wants_gpu else 0
        if not n_gpus:
            return {"num_cpus": self.cores}
        return {"num_gpus": 1, "num_cpus": max(1, int(there.get("CPU", 1)) // n_gpus)}


def _knock_at(address: str) -> None:
    """Fail at once where nothing listens; Ray itself tries for minutes without a word."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()


@contextmanager
def _only_errors() -> Iterator[None]:
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@cache
def _make_remote(**resources: float) -> Any:
    """Make `run_blocks` a Ray task, once, because Ray ships each new function to its workers."""
    import ray

    make: Any = ray.remote
    return make(max_retries=_RETRIES, max_calls=0, **resources)(run_blocks)


# In a worker: what the blocks of the last key share.
_unpacked: dict[str, Any] = {}


def run_blocks(
    function: Callable[[Shared, Item], Result], shared: Packed, group: Packed, key: str
) -> tuple[float, Packed] | CdpError:
    """Run some blocks in a worker; return seconds and results, or what was refused.

    What all blocks of a key share is unpacked once: mapping files again takes a tenth of a task's time.
    """
    start = time.perf_counter()
    try:
        if key not in _unpacked:
            _unpacked.clear()
            _unpacked[key] = unpack(shared)
        common = _unpacked[key]
        with on_one_thread("blas"):
            results = [function(common, item) for item in unpack(group)]
    except CdpError as error:  # Ray would print what is raised in blocks that nobody waits for any more
        return error
    return time.perf_counter() - start, pack(results)


class _Load:
    """How many blocks go into one task, and whether another may be under way."""

    def __init__(self, budget: int) -> None:
        self.n_blocks = 1
        self._budget = budget
        self._per_task = 0
        self._results = 0

    def fits(self, n_running: int) -> bool:
        return n_running == 0 or (n_running + 1) * (self._per_task + self._results) <= self._budget

    def see_blocks(self, n_bytes: int) -> None:
        self._per_task = n_bytes

    def see_results(self, seconds: float, n_blocks: int, n_bytes: int) -> None:
        fitting = int(n_blocks * _SECONDS_PER_TASK / max(seconds, 1e-6))
        per_block = max(1, n_bytes // n_blocks)
        # A task may take an eighth of the memory at most, so that several are under way.
        roomy = max(1, self._budget // 8 // per_block)
        self.n_blocks = max(1, min(fitting, _FASTEST_GROWTH * n_blocks, roomy))
        self._results = per_block * self.n_blocks


class _Places:
    """Where tasks of a number of cores can run at once; machines may come and go."""

    def __init__(self, pool: RayPool) -> None:
        self._pool = pool
        self._looked = -_LOOK_AGAIN
        self._count = 1
        self._missing_since: float | None = None

    def count(self) -> int:
        """Return how many there are; at least one, as another machine may join."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            found = sum(cores // self._pool.cores for cores in self._pool.machines)
            self._missing_since = None if found else self._missing_since or now
            self._count = max(1, found)
        return self._count

    def check(self) -> None:
        """Give up where there has been none for a minute: nobody would ever do the work."""
        self.count()
        if self._missing_since is not None and time.monotonic() - self._missing_since > _PATIENCE:
            cores = self._pool.cores
            missing = "core" if cores == 1 else f"machine with {cores} cores"
            raise CdpError(
                f"The Ray cluster has had no {missing} for {_PATIENCE:.0f} seconds; add a node (`ray start "
                "--address=…`), and run the same command again.",
                code="ray-cores-missing",
                cores=cores,
            )


def _fetch(ray: Any, reference: Any, places: _Places) -> tuple[float, Packed]:
    """Return what a task returned, once it is there; what it raised is raised here."""
    try:
        while not ray.wait([reference], timeout=_LOOK_AGAIN)[0]:
            places.check()
        answer: tuple[float, Packed] | CdpError = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise CdpError(
            f"Ray: a block failed {_RETRIES} times ({reason}); run the same command again (finished "
            "steps are kept), with a smaller memory_budget if memory ran out.",
            code="ray-block-failed",
            retries=_RETRIES,
        ) from error
    if isinstance(answer, CdpError):
        raise answer
    return answer

"""Approximate k-NN graphs on a Ray cluster: each model's graph on one machine, several models at once.

Where that would leave too many machines idle, all of them search one graph after the other (cell_ranges.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdp.knn.cell_ranges import MOST_RANGES
from cdp.knn.search import each_knn_graph
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.step_cache import StepCache
from cdp.storage.artifacts import load, save
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import LongArray

if TYPE_CHECKING:
    from cdp.runtime.ray_pool import RayPool

# CPU time of an approximate search on threads: seconds per image at a million images, and the power of their
# number that it grows with (`python -m benchmarks.graph_growth`).
_SECONDS_PER_IMAGE = 20e-6
_GROWTH = 0.3
# Where ranges of cells go to all machines, tasks take a fifth more CPU time than threads, and the driver this
# much per image on one core (`python -m benchmarks.ray_overhead graph`).
RANGES_COST = 1.2
DRIVER_SECONDS = 1e-6
# Ranges are worth it where they save this much of the time.
_WORTH_IT = 1.05


@dataclass(frozen=True, eq=False)
class GraphTask:
    """The graph of one model, searched by one machine.

    Attributes:
        embeddings: of the model.
        key: of the graph, for checkpoints.
        path: where the graph is written, on storage that all machines see; absolute, as each works in a
            folder of its own.
    """

    embeddings: Embeddings
    key: str
    path: Path


@dataclass(frozen=True, eq=False)
class GraphOptions:
    """Options common to all graphs, sent to every machine.

    Attributes:
        k: number of neighbors.
        method: `exact`, `approximate` or `auto`.
        recall: asked for.
        seed: of samples and k-means.
        identities: of labeled images, where the recall is that among neighbors of the same identity.
        settings: of a machine's runtime.
        folder: of its spill files, absolute.
        cache: of its checkpoints, absolute.
    """

    k: int
    method: str
    recall: float
    seed: int
    identities: LongArray | None
    settings: RuntimeSettings
    folder: Path | None
    cache: StepCache


def find_machines(pool: RayPool | None, n_graphs: int, n_images: int) -> RayPool | None:
    """Return workers of a whole machine each; None if all machines on one graph at a time are faster."""
    cores = [] if pool is None else [count for count in pool.machines if count]
    if pool is None or n_graphs == 0 or not cores:
        return None
    per_machine = choose_cores(cores, n_graphs, n_images)
    return None if per_machine is None else replace(pool, cores=per_machine)


def choose_cores(cores: Sequence[int], n_graphs: int, n_images: int) -> int | None:
    """Choose the cores of machines that search a graph each; None = all machines search one after the other.

    Args:
        cores: of every machine, the most first.
        n_graphs: to search.
        n_images: of each.
    """
    # In units of the CPU time of one graph.
    seconds, per_machine = min(
        (-(-n_graphs // number) / count, count) for number, count in enumerate(cores, 1)
    )
    driver = DRIVER_SECONDS / (_SECONDS_PER_IMAGE * (n_images / 1e6) ** _GROWTH)
    by_ranges = n_graphs * (driver + RANGES_COST / min(sum(cores), MOST_RANGES))
    return per_machine if seconds <= _WORTH_IT * by_ranges else None


def make_options(
    machines: RayPool,
    runtime: Runtime,
    *,
    k: int,
    method: str,
    recall: float,
    seed: int,
    identities: LongArray | None,
) -> GraphOptions:
    """Options for machines that work like this runtime, on threads of their own."""
    settings = replace(runtime.settings, engine="threads", device="cpu", threads=machines.cores)
    folder = runtime.spill.folder
    return GraphOptions(
        k, method, recall, seed, identities, settings, folder and folder.absolute(), runtime.cache.absolute()
    )


def make_tasks(models: Sequence[Embeddings], keys: Sequence[str], runtime: Runtime) -> list[GraphTask]:
    """Make one task per model; graphs are written to the step cache, or to a temporary folder."""
    cache, tasks = runtime.cache.absolute(), []
    for embeddings, key in zip(models, keys, strict=True):
        is_cached = key and cache.folder is not None
        path = cache.find("graph", key) if is_cached else runtime.spill.new_path().absolute()
        tasks.append(GraphTask(embeddings, key, path))
    return tasks


def search_on_machines(
    machines: RayPool, options: GraphOptions, tasks: Sequence[GraphTask], runtime: Runtime
) -> Iterator[KnnGraph]:
    """Yield the graphs of several models, in order, each searched by the threads of one machine."""
    step = "k-NN graphs"
    runtime.progress(step, 0, len(tasks))
    for number, (task, _) in enumerate(zip(tasks, machines.map(_search, options, tasks), strict=True), 1):
        runtime.progress(step, number, len(tasks))
        yield load(task.path, KnnGraph, check=False)


def _search(options: GraphOptions, task: GraphTask) -> None:
    """Search one graph and write it to a file, as all graphs together might not fit in memory."""
    (graph,) = each_knn_graph(
        [task.embeddings],
        options.k,
        options.method,
        runtime=Runtime(options.settings, options.cache, folder=options.folder),
        recall=options.recall,
        seed=options.seed,
        identities=options.identities,
        keys=[task.key],
    )
    save(graph, task.path, force=True)

"""Approximate k-NN graphs on a cluster: the whole of a model's on one machine, several models at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cdp.knn.search import each_knn_graph, warn_of_recall
from cdp.runtime.checkpoint import ListCheckpoint
from cdp.runtime.progress import Progress
from cdp.runtime.ray_pool import RayPool
from cdp.runtime.spill import SpillFiles
from cdp.runtime.step_cache import StepCache
from cdp.knn.settings import SearchSettings
from cdp.storage.artifacts import load, save
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import LongArray
from cdp.types.graphs import UnfinishedLists

# Of an approximate search, the share that the process that was started does itself where its blocks go to all machines: lists are filled there
# (measured with two nodes).
_IN_ONE_PLACE = 0.2


@dataclass(frozen=True, eq=False)
class GraphTask:
    """What one machine is asked for.

    Attributes:
        step: what it is called where it is warned of.
        embeddings: of the model.
        key: of the graph in the cache.
        path: where the graph is kept, on storage that all machines see; absolute, as each works in a folder of its own.
    """

    step: str
    embeddings: Embeddings
    key: str
    path: Path


@dataclass(frozen=True, eq=False)
class GraphOptions:
    """What all machines are told.

    Attributes:
        settings: of the search.
        identities: of known images, where neighbors of the same identity are asked for.
        seed: of samples and clusters.
        cores: of a machine.
        room: what arrays may hold in its memory.
        folder: of temporary files, absolute.
        cache: where unfinished lists are kept, absolute.
    """

    settings: SearchSettings
    identities: LongArray | None
    seed: int
    cores: int
    room: int
    folder: Path | None
    cache: StepCache


def find_machines(workers: int | RayPool, n_graphs: int) -> RayPool | None:
    """Workers that are a machine each, as many as have all graphs first; None if the blocks of one graph after the other are faster on all."""
    cores = [] if isinstance(workers, int) else [count for count in workers.machines if count]
    if isinstance(workers, int) or n_graphs == 0 or not cores:
        return None
    seconds, per_machine = min(
        (-(-n_graphs // number) / count, count) for number, count in enumerate(cores, 1)
    )
    by_blocks = n_graphs * (_IN_ONE_PLACE / cores[0] + (1 - _IN_ONE_PLACE) / sum(cores))
    return replace(workers, cores=per_machine) if seconds <= by_blocks else None


def search_on_machines(
    pool: RayPool, options: GraphOptions, tasks: Sequence[GraphTask], progress: Progress
) -> Iterator[KnnGraph]:
    """The graphs of several models, in order, each searched by the threads of one machine.

    Warns:
        UserWarning: a graph has a lower recall than was asked for.
    """
    step = "k-NN graphs"
    progress(step, 0, len(tasks))
    for number, (task, _) in enumerate(zip(tasks, pool.map(_search, options, tasks), strict=True), 1):
        progress(step, number, len(tasks))
        graph = load(task.path, KnnGraph)
        if options.identities is None and graph.recall is not None:
            warn_of_recall(task.step, graph.recall, options.settings.recall)
        yield graph


def _search(options: GraphOptions, task: GraphTask) -> None:
    """Search one graph and keep it in a file: all of them might not fit into what may be under way."""
    settings = options.settings
    (graph,) = each_knn_graph(
        [task.embeddings],
        settings.k,
        settings.method,
        recall=settings.recall,
        seed=options.seed,
        threads=options.cores,
        device="cpu",
        scratch=SpillFiles(options.room, options.folder),
        identities=options.identities,
        checkpoints=[ListCheckpoint(*options.cache.keeping("lists", task.key, UnfinishedLists))],
    )
    save(graph, task.path, force=True)

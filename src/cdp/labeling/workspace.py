"""How labeling is done: engine, cache, progress and times; and the graphs, which all steps share."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cdp.errors import InputError
from cdp.knn.exact import BLOCK_ROWS
from cdp.knn.ivf_search import APPROXIMATE_VERSION
from cdp.knn.recall import measure_same_identity_recall
from cdp.knn.search import choose_method, each_knn_graph, warn_of_recall
from cdp.labeling.distributed_graphs import GraphOptions, GraphTask, find_machines, search_on_machines
from cdp.runtime.checkpoint import ListCheckpoint
from cdp.runtime.memory import give_back
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.spill import SpillFiles
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.settings import SearchSettings
from cdp.types import Embeddings, KnnGraph, Views
from cdp.types.arrays import LongArray
from cdp.types.graphs import UnfinishedLists

Graphs = Sequence[KnnGraph] | Mapping[str, KnnGraph]

_ALONE = (
    "engine = 'ray', and there is no other machine than this one: its threads do the work. Start Ray on the others "
    "(`ray start --head` here, `ray start --address=…` there), and set ray_address = 'auto'."
)


@dataclass
class Workspace:
    """How the work is done; nothing here changes a result.

    Attributes:
        engine: device, threads, memory.
        cache: of finished steps.
        progress: called as the work goes on.
        seconds: what each step has taken so far.
        folder: of temporary files; None = that of the cache, or the system's. On Ray, one that all nodes see.
        scratch: large arrays, in memory or in such files.
        same_identity_recall: by model, of the true neighbors of the same identity the share that an approximate graph has,
            where identities are known.
    """

    engine: RuntimeSettings = field(default_factory=RuntimeSettings)
    cache: StepCache = field(default_factory=StepCache)
    progress: Progress = no_progress
    seconds: dict[str, float] = field(default_factory=dict)
    folder: Path | None = None
    same_identity_recall: dict[str, float] = field(default_factory=dict)
    scratch: SpillFiles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        is_shared = not isinstance(self.engine.workers, int)
        self.scratch = SpillFiles(self.engine.share, self.cache.folder or self.folder, is_shared=is_shared)
        if self.engine.engine == "ray" and not is_shared:
            warnings.warn(_ALONE, stacklevel=3)

    @property
    def runtime(self) -> Runtime:
        """The same as a `Runtime`, with the same spill files and timings."""
        return Runtime(
            self.engine,
            self.cache,
            self.progress,
            self.folder,
            timings=self.seconds,
            shared_spill=self.scratch,
        )

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, and give back the memory that it needed."""
        start = time.perf_counter()
        yield
        give_back()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)


def concatenate(parts: Sequence[Views], work: Workspace) -> Views:
    """The images of several parts as one: in memory where there is room, else in temporary files."""
    if len(parts) == 1:
        return parts[0]
    size = sum(model.source.nbytes for views in parts for model in views)
    if not work.scratch.has_room(size):
        return Views.concatenate(parts, work.scratch.new_path())
    whole = Views.concatenate(parts)
    for model in whole:
        work.scratch.hold(model.source)
    return whole


def find_graphs(
    views: Views,
    settings: SearchSettings,
    given: Graphs | None = None,
    *,
    seed: int = 0,
    work: Workspace | None = None,
    part: str = "",
    known: LongArray | None = None,
    keys: Mapping[str, str] | None = None,
) -> dict[str, KnnGraph]:
    """The k-NN graphs of all models, base first: given, from the cache, or searched now.

    Where identities are `known` (0 or more), the recall asked for is that among neighbors of the same identity, unless `recall_of` says
    otherwise, and what approximate graphs have of them is measured. `keys` are those of `graph_keys`, where they are at hand.
    """
    work = work or Workspace()
    if known is not None and not has_shared(known):
        known = None
    goal = known if settings.recall_of == "same_identity" else None
    graphs = _by_name(views, given, settings.k)
    if keys is None:
        keys = graph_keys(views, settings, known, seed=seed, cache=work.cache, given=graphs)
    for name, key in keys.items():
        kept = work.cache.get("graph", key, KnnGraph)
        graphs |= {} if kept is None else {name: kept}
    missing = [name for name in views.names if name not in graphs]
    models = [model for name, model in zip(views.names, views, strict=True) if name in missing]
    with work.step(f"{part}graphs"):
        searched = _search(models, missing, settings, goal, keys, seed, work, part)
        for name, graph in zip(missing, searched, strict=True):
            graphs[name] = graph
            if not work.cache.has("graph", keys.get(name, "")):
                work.cache.put("graph", keys.get(name, ""), graph)
            work.cache.drop("lists", keys.get(name, ""))
            if work.cache.folder is not None:
                # From now on as a file that is mapped, not as arrays that are held.
                graphs[name] = work.cache.get("graph", keys[name], KnnGraph) or graph
            del graph
        if known is not None:
            asked = 0.0 if goal is None else settings.recall
            _measure_same_identity(views, graphs, known, asked, seed, work)
    return {name: graphs[name] for name in views.names}


def _search(
    models: Sequence[Embeddings],
    names: Sequence[str],
    settings: SearchSettings,
    goal: LongArray | None,
    keys: Mapping[str, str],
    seed: int,
    work: Workspace,
    part: str,
) -> Iterator[KnnGraph]:
    """The graphs of some models, in order: on a cluster each by one machine where that is faster, else one after the other by all."""
    workers = work.engine.workers_for(search_bytes(models))
    steps = [f"{part}{name}" for name in names]
    n_approximate = sum(choose_method(settings.method, one.n_images) == "approximate" for one in models)
    machines = find_machines(workers, n_approximate)
    if machines is not None:
        cache, folder = work.cache.absolute(), work.scratch.folder
        about = (machines.cores, work.engine.share, folder and folder.absolute(), cache)
        paths = [
            cache.find("graph", keys[name]) if name in keys else work.scratch.new_path().absolute()
            for name in names
        ]
        kept = [keys.get(name, "") for name in names]
        tasks = map(GraphTask, [f"k-NN graph {step}" for step in steps], models, kept, paths)
        return search_on_machines(
            machines, GraphOptions(settings, goal, seed, *about), list(tasks), work.progress
        )
    return each_knn_graph(
        models,
        settings.k,
        settings.method,
        recall=settings.recall,
        names=steps,
        seed=seed,
        threads=workers,
        device=work.engine.search_device,
        progress=work.progress,
        scratch=work.scratch,
        identities=goal,
        checkpoints=[
            ListCheckpoint(*work.cache.keeping("lists", keys.get(name, ""), UnfinishedLists))
            for name in names
        ],
    )


def graph_keys(
    views: Views,
    settings: SearchSettings,
    known: LongArray | None,
    *,
    seed: int,
    cache: StepCache,
    given: Collection[str] = (),
) -> dict[str, str]:
    """Under which key the graph of every model is kept, but for those that are given; none where nothing is kept."""
    keys: dict[str, str] = {}
    has_goal = known is not None and settings.recall_of == "same_identity" and has_shared(known)
    for name, model in zip(views.names, views, strict=True):
        if name not in given and cache.folder is not None:
            about = search_inputs(settings, model.n_images, seed)
            if has_goal and "approximate" in about:
                about.append(cache.hash(known))
            keys[name] = step_key("graph", 4, None, [cache.hash(model.source), about])
    return keys


def search_bytes(models: Sequence[Embeddings]) -> int:
    """What a search takes per thread, half of which has its place among all that must be held."""
    return BLOCK_ROWS * max((model.dimensions for model in models), default=1) * 4 + 2**22


def has_shared(known: LongArray) -> bool:
    """Whether two images are of one known identity."""
    numbers = known[known >= 0]
    return len(np.unique(numbers)) < len(numbers)


def _measure_same_identity(
    views: Views,
    graphs: Mapping[str, KnnGraph],
    known: LongArray,
    recall: float,
    seed: int,
    work: Workspace,
) -> None:
    """Keep it in the workspace, and warn where it is less than was asked for."""
    for name, model in zip(views.names, views, strict=True):
        if graphs[name].method != "approximate":
            continue
        found = measure_same_identity_recall(
            model,
            graphs[name],
            known,
            seed=seed,
            threads=work.engine.workers_for(search_bytes([model])),
            device=work.engine.search_device,
        )
        if found is not None:
            work.same_identity_recall[name] = found
            warn_of_recall(f"k-NN graph {name}", found, recall, "the neighbors of the same identity")


def search_inputs(settings: SearchSettings, n_images: int, seed: int) -> list[object]:
    """What a graph depends on beside the embeddings; an exact one does not depend on recall and seed."""
    method = choose_method(settings.method, n_images)
    return [settings.k, method, *([] if method == "exact" else [settings.recall, seed, APPROXIMATE_VERSION])]


def _by_name(views: Views, given: Graphs | None, k: int) -> dict[str, KnnGraph]:
    """Given graphs by model, cut to k neighbors."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(given) != len(views):
            raise InputError(
                f"{len(given)} k-NN graphs for {len(views)} models; one per model is needed, base first.",
                code="graphs-models-differ",
                expected=len(views),
                found=len(given),
            )
        given = dict(zip(views.names, given, strict=True))
    for name, graph in given.items():
        if name not in views.names:
            raise InputError(
                f"A k-NN graph is given for {name!r}; the models are {', '.join(views.names)}.",
                code="graph-model-unknown",
                model=name,
            )
        if graph.k < k:
            raise InputError(
                f"The k-NN graph of {name!r} has {graph.k} neighbors per image, and k = {k}; search it again, or "
                f"set k = {graph.k}.",
                code="graph-k-differs",
                model=name,
                expected=k,
                found=graph.k,
            )
    return {
        name: KnnGraph(graph.neighbors[:, :k], graph.similarity[:, :k], graph.method, graph.recall)
        for name, graph in given.items()
    }

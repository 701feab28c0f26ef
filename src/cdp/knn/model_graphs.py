"""k-NN graphs of all models of the same images: given, from the step cache, or searched now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cdp.errors import InputError
from cdp.knn.ivf_search import APPROXIMATE_VERSION
from cdp.knn.recall import measure_same_identity_recall
from cdp.knn.search import choose_method, each_knn_graph, warn_of_recall
from cdp.knn.settings import SearchSettings
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache, step_key
from cdp.types import KnnGraph, Views
from cdp.types.arrays import LongArray

Graphs = Sequence[KnnGraph] | Mapping[str, KnnGraph]
"""Given graphs: base first, or by model."""


@dataclass(frozen=True, eq=False)
class ModelGraphs:
    """The k-NN graph of every model.

    Attributes:
        graphs: by model, base first.
        keys: under which they are cached; none for given graphs, or without a cache folder.
        same_identity_recall: by model, recall of an approximate graph among true neighbors with the same
            identity, where identities are labeled.
    """

    graphs: dict[str, KnnGraph]
    keys: Mapping[str, str] = field(default_factory=dict)
    same_identity_recall: Mapping[str, float] = field(default_factory=dict)

    @property
    def base(self) -> KnnGraph:
        """The graph of the base model."""
        return next(iter(self.graphs.values()))

    def __iter__(self) -> Iterator[KnnGraph]:
        return iter(self.graphs.values())


def find_graphs(
    views: Views,
    settings: SearchSettings,
    given: Graphs | None = None,
    *,
    seed: int = 0,
    runtime: Runtime,
    part: str = "",
    identities: LongArray | None = None,
) -> ModelGraphs:
    """Return the k-NN graphs of all models, base first.

    Where images are labeled (`identities` of 0 or more), an approximate search aims at the recall among
    neighbors with the same identity, and what its graphs reach is measured. `part` precedes the model's name
    in progress and timings.
    """
    labeled = identities if identities is not None and has_shared(identities) else None
    graphs = _by_name(views, given, settings.k)
    keys = graph_keys(views, settings, labeled, seed=seed, cache=runtime.cache, given=graphs)
    for name, key in keys.items():
        kept = runtime.cache.get("graph", key, KnnGraph)
        graphs |= {} if kept is None else {name: kept}
    missing = [name for name in views.names if name not in graphs]
    recalls = {}
    with runtime.step(f"{part}graphs"):
        searched = each_knn_graph(
            [model for name, model in zip(views.names, views, strict=True) if name in missing],
            settings.k,
            settings.method,
            runtime=runtime,
            recall=settings.recall,
            names=[f"{part}{name}" for name in missing],
            seed=seed,
            identities=labeled,
            keys=[keys.get(name, "") for name in missing],
        )
        for name, graph in zip(missing, searched, strict=True):
            graphs[name] = _keep(graph, keys.get(name, ""), runtime.cache)
            del graph
        if labeled is not None:
            recalls = _measure_same_identity(views, graphs, labeled, settings.recall, seed, runtime)
    return ModelGraphs({name: graphs[name] for name in views.names}, keys, recalls)


def _keep(graph: KnnGraph, key: str, cache: StepCache) -> KnnGraph:
    """Cache a graph; from then on it is a mapped file instead of arrays in memory."""
    if cache.folder is None:
        return graph
    if not cache.has("graph", key):
        cache.put("graph", key, graph)
    cache.drop("lists", key)
    return cache.get("graph", key, KnnGraph) or graph


def graph_keys(
    views: Views,
    settings: SearchSettings,
    labeled: LongArray | None,
    *,
    seed: int,
    cache: StepCache,
    given: Collection[str] = (),
) -> dict[str, str]:
    """Return the cache key of every model's graph, except for given ones; none without a cache folder."""
    keys: dict[str, str] = {}
    for name, model in zip(views.names, views, strict=True):
        if name not in given and cache.folder is not None:
            about = search_inputs(settings, model.n_images, seed)
            if labeled is not None and "approximate" in about:
                about.append(cache.hash(labeled))
            keys[name] = step_key("graph", 4, None, [cache.hash_embeddings(model), about])
    return keys


def has_shared(identities: LongArray) -> bool:
    """Return whether two labeled images have the same identity."""
    numbers = identities[identities >= 0]
    return len(np.unique(numbers)) < len(numbers)


def _measure_same_identity(
    views: Views,
    graphs: Mapping[str, KnnGraph],
    labeled: LongArray,
    recall: float,
    seed: int,
    runtime: Runtime,
) -> dict[str, float]:
    """Recall by model, among neighbors with the same identity; warn where it is less than was asked for."""
    recalls = {}
    for name, model in zip(views.names, views, strict=True):
        if graphs[name].method != "approximate":
            continue
        found = measure_same_identity_recall(model, graphs[name], labeled, runtime=runtime, seed=seed)
        if found is not None:
            recalls[name] = found
            warn_of_recall(f"k-NN graph {name}", found, recall, "the neighbors of the same identity")
    return recalls


def search_inputs(settings: SearchSettings, n_images: int, seed: int) -> list[object]:
    """Return what a graph depends on besides the embeddings; exact ones ignore recall and seed."""
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
                f"The k-NN graph of {name!r} has {graph.k} neighbors per image, and k = {k}; search it "
                f"again, or set k = {graph.k}.",
                code="graph-k-differs",
                model=name,
                expected=k,
                found=graph.k,
            )
    return {
        name: KnnGraph(graph.neighbors[:, :k], graph.similarity[:, :k], graph.method, graph.recall)
        for name, graph in given.items()
    }

"""Graphs for a command: given as files, kept from an earlier run, or searched now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdp.data.knn_files import read_knn
from cdp.errors import InputError
from cdp.graph.search import choose_method, each_knn_graph
from cdp.progress import Progress
from cdp.store import hash_array, load, save
from cdp.types import Embeddings, KnnGraph, Views


@dataclass(frozen=True)
class GraphSearch:
    """How graphs are searched, and where they are kept; with `keep`, a killed run loses one graph at most."""

    k: int
    method: str
    seed: int
    threads: int
    keep: Path | None

    def place(self, embeddings: Embeddings) -> Path | None:
        """The folder of this model's graph, named by all that it depends on."""
        if self.keep is None:
            return None
        method = choose_method(self.method, embeddings.n_images)
        depends = [hash_array(embeddings.source), self.k, method]
        if method != "exact":
            depends.append(self.seed)
        return self.keep / f"knn-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:24]}"


def find_graphs(
    views: Views,
    search: GraphSearch,
    given: Mapping[str, KnnGraph] | None = None,
    *,
    progress: Progress,
    part: str = "",
) -> list[KnnGraph]:
    """The graphs of all models, base first."""
    graphs = dict(given or {})
    models = {name: model for name, model in zip(views.names, views, strict=True) if name not in graphs}
    places = {name: search.place(model) for name, model in models.items()}
    for name, place in places.items():
        if place is not None and place.exists():
            graphs[name] = load(place, KnnGraph)
    missing = [name for name in models if name not in graphs]
    found = each_knn_graph(
        [models[name] for name in missing],
        search.k,
        search.method,
        names=[f"{part}{name}" for name in missing],
        seed=search.seed,
        threads=search.threads,
        progress=progress,
    )
    for name, graph in zip(missing, found, strict=True):
        graphs[name] = graph
        place = places[name]
        if place is not None:
            save(
                graph,
                place,
                force=True,
                settings={"k": search.k},
                made_from={name: hash_array(models[name].source)},
            )
    return [graphs[name] for name in views.names]


def read_given_graphs(entries: Sequence[str], views: Views, k: int) -> dict[str, KnnGraph]:
    """The graphs of `--knn NAME=FILE` entries, cut to k neighbors."""
    graphs = {}
    models = dict(zip(views.names, views, strict=True))
    for entry in entries:
        name, separator, file = entry.partition("=")
        if not separator or name not in models:
            raise InputError(f"--knn {entry}: write NAME=FILE with a name from {', '.join(models)}.")
        graph = read_knn(file, models[name])
        if graph.k < k:
            raise InputError(f"{file} has {graph.k} neighbors per image, --k asks for {k}.")
        graphs[name] = KnnGraph(graph.neighbors[:, :k], graph.similarity[:, :k], f"file {file}")
    return graphs

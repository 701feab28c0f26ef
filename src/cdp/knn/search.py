"""k-NN graphs of one or several models, by exact or approximate search."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.knn.exact import exact_graph
from cdp.knn.ivf_search import approximate_graph
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import LongArray

METHODS = ("auto", "exact", "approximate")
# Up to this many images exact search takes seconds.
EXACT_UP_TO = 30_000
RECALL = 0.97


def knn_graph(
    embeddings: Embeddings | npt.ArrayLike,
    k: int = 20,
    method: str = "auto",
    *,
    recall: float = RECALL,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> KnnGraph:
    """Search the k nearest neighbors of every image by cosine similarity (paper, section 3.1.i).

    Args:
        embeddings: `Embeddings` or a plain array (n, d); its rows need not have unit length.
        k: number of neighbors, not counting the image itself.
        method: `exact`, `approximate`, or `auto`: exact up to 30,000 images.
        recall: share of the true neighbors that an approximate search should find. The cheapest parameters
            that reach it are chosen, which may mean exact search. The graph's `recall` is the one measured,
            on a sample of images.
        seed: random seed of the approximate search.
        runtime: threads, device, memory budget and progress; the graph does not depend on it.

    Examples:
        >>> from cdp import knn_graph
        >>> graph = knn_graph([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], k=2)
        >>> graph.neighbors.tolist(), graph.method
        ([[1, 2], [0, 2], [1, 0]], 'exact')
    """
    model = embeddings if isinstance(embeddings, Embeddings) else Embeddings(np.asarray(embeddings))
    return knn_graphs([model], k, method, recall=recall, seed=seed, runtime=runtime)[0]


def knn_graphs(
    models: Sequence[Embeddings],
    k: int = 20,
    method: str = "auto",
    *,
    runtime: Runtime | None = None,
    **options: Any,
) -> list[KnnGraph]:
    """Search the graphs of several models of the same images, with the options of `each_knn_graph`."""
    return list(each_knn_graph(models, k, method, runtime=runtime or Runtime(), **options))


def each_knn_graph(
    models: Sequence[Embeddings],
    k: int,
    method: str,
    *,
    runtime: Runtime,
    recall: float = RECALL,
    names: Sequence[str] | None = None,
    seed: int = 0,
    identities: LongArray | None = None,
    keys: Sequence[str] = (),
) -> Iterator[KnnGraph]:
    """Yield the graphs of several models, one at a time: each can be saved before the next is searched.

    Args:
        models: of the same images.
        k: number of neighbors.
        method: `exact`, `approximate` or `auto`.
        runtime: how the searches run; on a Ray cluster, each approximate graph may be searched by one
            machine.
        recall: asked for of approximate searches.
        names: of the models, for progress reports and warnings.
        seed: random seed of approximate searches.
        identities: of labeled images (0 or more). The recall asked for is then that among neighbors of the
            same identity, and the caller measures it and warns of a miss.
        keys: one per model, under which unfinished lists are checkpointed.

    Warns:
        UserWarning: an approximate graph has a lower recall than was asked for.
    """
    _check_recall(recall)
    for embeddings in models:
        check_k(k, embeddings.n_images)
    steps = [f"k-NN graph {name}" for name in names] if names else ["k-NN graph"] * len(models)
    keys = keys or [""] * len(models)
    about: dict[str, Any] = {"recall": recall, "seed": seed, "identities": identities}
    graphs = _on_machines(models, keys, runtime, k=k, method=method, **about)
    if graphs is None:
        graphs = (
            exact_graph(embeddings, k, runtime=runtime, step=step, key=key)
            if choose_method(method, embeddings.n_images) == "exact"
            else approximate_graph(embeddings, k, runtime=runtime, step=step, key=key, **about)
            for embeddings, step, key in zip(models, steps, keys, strict=True)
        )
    for step, graph in zip(steps, graphs, strict=True):
        if identities is None and graph.recall is not None:
            warn_of_recall(step, graph.recall, recall)
        yield graph
        del graph


def _on_machines(
    models: Sequence[Embeddings], keys: Sequence[str], runtime: Runtime, *, method: str, **about: Any
) -> Iterator[KnnGraph] | None:
    """Search each graph on one machine of the cluster; None where that is not faster."""
    if runtime.pool is None:
        return None
    from cdp.knn.distributed import find_machines, make_options, make_tasks, search_on_machines

    n_approximate = sum(choose_method(method, one.n_images) == "approximate" for one in models)
    n_images = max((one.n_images for one in models), default=0)
    machines = find_machines(runtime.pool, n_approximate, n_images)
    if machines is None:
        return None
    options = make_options(machines, runtime, method=method, **about)
    return search_on_machines(machines, options, make_tasks(models, keys, runtime), runtime)


def warn_of_recall(step: str, reached: float, asked: float, among: str = "the nearest neighbors") -> None:
    """Warn if an approximate search missed the recall asked for."""
    if reached < asked:
        warnings.warn(
            f"{step}: the approximate search found {reached:.1%} of {among} on a sample, less than the "
            f"{asked:.1%} asked for; use method='exact', or ask for a lower recall.",
            stacklevel=3,
        )


def _check_recall(recall: float) -> None:
    if not 0 < recall <= 1:
        raise InputError(
            f"recall={recall:g}: give a share of the neighbors, above 0 and up to 1.",
            code="recall-out-of-range",
            value=recall,
        )


def choose_method(method: str, n_images: int) -> str:
    """Resolve `auto` to `exact` or `approximate` by the number of images."""
    if method not in METHODS:
        raise InputError(
            f"method={method!r}: choose from {', '.join(METHODS)}.", code="knn-method-unknown", value=method
        )
    if method == "auto":
        return "exact" if n_images <= EXACT_UP_TO else "approximate"
    return method


def check_k(k: int, n_images: int) -> None:
    """Refuse a k below 1, or not below the number of images."""
    if k < 1:
        raise InputError(f"k={k}: at least 1 neighbor per image is needed.", code="k-too-small", value=k)
    if n_images < 2:
        raise InputError(
            "There is one image only, and neighbors are other images; give two or more.", code="knn-one-image"
        )
    if k >= n_images:
        raise InputError(
            f"k={k} neighbors cannot be found among {n_images:,} images; choose k below {n_images}.",
            code="knn-too-few-images",
            k=k,
            n_images=n_images,
        )

"""Which k-NN search is used, exact or approximate, and its recall."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.graph.exact import exact_graph, search_rows
from cdp.progress import Progress, no_progress
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import IntArray

METHODS = ("auto", "exact", "nndescent")
# Up to here an exact search takes less time than PyNNDescent needs to compile.
EXACT_UP_TO = 50_000
_RECALL_SAMPLE = 1000


def knn_graph(
    embeddings: Embeddings | npt.ArrayLike,
    k: int = 20,
    method: str = "auto",
    *,
    seed: int = 0,
    threads: int = 0,
    device: str = "auto",
    progress: Progress = no_progress,
) -> KnnGraph:
    """The k nearest neighbors of every image by cosine similarity (paper, section 3.1.i).

    Args:
        embeddings: `Embeddings` or a plain array (n, d); its rows need not have unit length.
        k: number of neighbors, not counting the image itself.
        method: `exact`, `nndescent` (approximate; its recall is measured on a sample of rows), or `auto`:
            exact up to 50,000 images.
        seed: of the approximate search and of the sample.
        threads: 0 = all cores. The graph does not depend on it.
        device: where the exact search computes: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
        progress: called as the work goes on.
    """
    model = embeddings if isinstance(embeddings, Embeddings) else Embeddings(np.asarray(embeddings))
    return knn_graphs([model], k, method, seed=seed, threads=threads, device=device, progress=progress)[0]


def knn_graphs(
    models: Sequence[Embeddings],
    k: int = 20,
    method: str = "auto",
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    threads: int = 0,
    device: str = "auto",
    progress: Progress = no_progress,
) -> list[KnnGraph]:
    """`knn_graph` for several models of the same images; an approximate search is set up once for all."""
    return list(
        each_knn_graph(
            models, k, method, names=names, seed=seed, threads=threads, device=device, progress=progress
        )
    )


def each_knn_graph(
    models: Sequence[Embeddings],
    k: int,
    method: str,
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    threads: int = 0,
    device: str = "auto",
    progress: Progress = no_progress,
) -> Iterator[KnnGraph]:
    """`knn_graphs`, one at a time, so that each can be saved before the next is begun."""
    with ExitStack() as stack:
        worker = None
        for position, embeddings in enumerate(models):
            step = f"k-NN graph {names[position]}" if names else "k-NN graph"
            check_k(k, embeddings.n_images)
            if choose_method(method, embeddings.n_images) == "exact":
                yield exact_graph(embeddings, k, threads=threads, device=device, progress=progress, step=step)
                continue
            from cdp.graph.nndescent import NNDescentWorker

            progress(step, 0, 0)
            worker = worker or stack.enter_context(NNDescentWorker())
            graph = worker.search(embeddings, k, seed)
            recall = measure_recall(embeddings, graph, seed=seed, threads=threads, device=device)
            progress(step, embeddings.n_images, embeddings.n_images)
            yield KnnGraph(graph.neighbors, graph.similarity, graph.method, recall)


def choose_method(method: str, n_images: int) -> str:
    """The search that `method` stands for at this size: `exact` or `nndescent`."""
    if method not in METHODS:
        raise InputError(f"method={method!r}: choose from {', '.join(METHODS)}.")
    if method == "auto":
        return "exact" if n_images <= EXACT_UP_TO else "nndescent"
    return method


def check_k(k: int, n_images: int) -> None:
    """Refuse a k that no image can satisfy."""
    if k < 1:
        raise InputError(f"k={k}: at least 1 neighbor per image is needed.")
    if n_images < 2:
        raise InputError("There is one image only, and neighbors are other images; give two or more.")
    if k >= n_images:
        raise InputError(
            f"k={k} neighbors cannot be found among {n_images:,} images; choose k below {n_images}."
        )


def measure_recall(
    embeddings: Embeddings, graph: KnnGraph, *, seed: int = 0, threads: int = 0, device: str = "auto"
) -> float:
    """Share of the true k nearest neighbors that the graph has, on a random sample of 1,000 rows."""
    n_images = embeddings.n_images
    generator = np.random.default_rng(seed)
    size = min(_RECALL_SAMPLE, n_images)
    rows: IntArray = np.sort(generator.choice(n_images, size, replace=False)).astype(np.int32)
    _, true_similarity = search_rows(embeddings, rows, graph.k, threads=threads, device=device)
    # A neighbor counts as found if it is at least as similar as the k-th true one: ties are not mistakes.
    return float(np.mean(graph.similarity[rows] >= true_similarity[:, -1:]))

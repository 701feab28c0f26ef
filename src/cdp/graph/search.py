"""Which search answers, and how well: the front door of the room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.graph.exact import exact_graph, search_rows
from cdp.progress import Watch, nobody
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
    random_state: int = 0,
    n_jobs: int | None = None,
    watch: Watch = nobody,
) -> KnnGraph:
    """The k nearest neighbors of every image by cosine similarity (paper, section 3.1.i).

    Args:
        embeddings: `Embeddings` or a plain array (n, d); its rows need not have unit length.
        k: number of neighbors, not counting the image itself.
        method: `exact`, `nndescent` (approximate; its recall is measured on a sample of rows), or `auto`:
            exact up to 50,000 images.
        random_state: seed of the approximate search and of the sample.
        n_jobs: threads; None = all. The graph does not depend on it.
        watch: told about the progress.
    """
    held = embeddings if isinstance(embeddings, Embeddings) else Embeddings(np.asarray(embeddings))
    return knn_graphs([held], k, method, random_state=random_state, n_jobs=n_jobs, watch=watch)[0]


def knn_graphs(
    models: Sequence[Embeddings],
    k: int = 20,
    method: str = "auto",
    *,
    names: Sequence[str] | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    watch: Watch = nobody,
) -> list[KnnGraph]:
    """`knn_graph` for several models of the same images; an approximate search is set up once for all."""
    return list(
        each_knn_graph(models, k, method, names=names, random_state=random_state, n_jobs=n_jobs, watch=watch)
    )


def each_knn_graph(
    models: Sequence[Embeddings],
    k: int,
    method: str,
    *,
    names: Sequence[str] | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    watch: Watch = nobody,
) -> Iterator[KnnGraph]:
    """`knn_graphs`, one at a time, so that each can be put in a safe place before the next is begun."""
    with ExitStack() as stack:
        worker = None
        for position, embeddings in enumerate(models):
            step = f"k-NN graph {names[position]}" if names else "k-NN graph"
            check_k(k, embeddings.n_images)
            if choose_method(method, embeddings.n_images) == "exact":
                yield exact_graph(embeddings, k, n_jobs=n_jobs, watch=watch, step=step)
                continue
            from cdp.graph.nndescent import NNDescentWorker

            watch(step, 0, 0)
            worker = worker or stack.enter_context(NNDescentWorker())
            graph = worker.search(embeddings, k, random_state)
            recall = measure_recall(embeddings, graph, random_state=random_state, n_jobs=n_jobs)
            watch(step, embeddings.n_images, embeddings.n_images)
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
    if k >= n_images:
        raise InputError(
            f"k={k} neighbors cannot be found among {n_images:,} images; choose k below {n_images}."
        )


def measure_recall(
    embeddings: Embeddings, graph: KnnGraph, *, random_state: int = 0, n_jobs: int | None = None
) -> float:
    """Share of the true k nearest neighbors that the graph has, on a random sample of 1,000 rows."""
    n_images = embeddings.n_images
    generator = np.random.default_rng(random_state)
    size = min(_RECALL_SAMPLE, n_images)
    rows: IntArray = np.sort(generator.choice(n_images, size, replace=False)).astype(np.int32)
    _, true_similarity = search_rows(embeddings, rows, graph.k, n_jobs=n_jobs)
    # A neighbor counts as found if it is at least as similar as the k-th true one: ties are not mistakes.
    return float(np.mean(graph.similarity[rows] >= true_similarity[:, -1:]))

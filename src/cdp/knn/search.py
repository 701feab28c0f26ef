"""Which k-NN search is used, exact or approximate."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.knn.exact import exact_graph
from cdp.knn.ivf_search import approximate_graph
from cdp.runtime.checkpoint import ListCheckpoint
from cdp.runtime.parallel import Workers
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.spill import SpillFiles
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import LongArray

METHODS = ("auto", "exact", "approximate")
# Up to here an exact search takes seconds.
EXACT_UP_TO = 30_000
RECALL = 0.97


def knn_graph(
    embeddings: Embeddings | npt.ArrayLike,
    k: int = 20,
    method: str = "auto",
    *,
    recall: float = RECALL,
    seed: int = 0,
    threads: Workers = 0,
    device: str = "auto",
    progress: Progress = no_progress,
) -> KnnGraph:
    """The k nearest neighbors of every image by cosine similarity (paper, section 3.1.i).

    Args:
        embeddings: `Embeddings` or a plain array (n, d); its rows need not have unit length.
        k: number of neighbors, not counting the image itself.
        method: `exact`, `approximate`, or `auto`: exact up to 30,000 images.
        recall: share of the true neighbors that an approximate search shall find; it takes the cheapest way there, which
            may be the exact search. What it reached, on a sample of images, is the graph's `recall`.
        seed: of the approximate search and of the sample.
        threads: 0 = all cores; or a pool of other workers. The graph does not depend on it.
        device: where products are computed: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
        progress: called as the work goes on.
    """
    model = embeddings if isinstance(embeddings, Embeddings) else Embeddings(np.asarray(embeddings))
    return knn_graphs(
        [model], k, method, recall=recall, seed=seed, threads=threads, device=device, progress=progress
    )[0]


def knn_graphs(
    models: Sequence[Embeddings], k: int = 20, method: str = "auto", **options: Any
) -> list[KnnGraph]:
    """`knn_graph` for several models of the same images, with the options of `each_knn_graph`."""
    return list(each_knn_graph(models, k, method, **options))


def each_knn_graph(
    models: Sequence[Embeddings],
    k: int,
    method: str,
    *,
    recall: float = RECALL,
    names: Sequence[str] | None = None,
    seed: int = 0,
    threads: Workers = 0,
    device: str = "auto",
    progress: Progress = no_progress,
    scratch: SpillFiles | None = None,
    identities: LongArray | None = None,
    checkpoints: Sequence[ListCheckpoint] = (),
) -> Iterator[KnnGraph]:
    """`knn_graph` for several models of the same images, one at a time: each can be saved before the next is begun.

    Graphs lie in `scratch`, if it is given; `checkpoints`, one per model, keep what a search that is stopped has found. Where `identities` are known (0 or more), the recall asked for is that among neighbors
    of the same identity; whoever gives them sees to it that a miss is said.

    Warns:
        UserWarning: an approximate graph has a lower recall than was asked for.
    """
    _check_recall(recall)
    for position, embeddings in enumerate(models):
        step = f"k-NN graph {names[position]}" if names else "k-NN graph"
        checkpoint = checkpoints[position] if checkpoints else None
        check_k(k, embeddings.n_images)
        if choose_method(method, embeddings.n_images) == "exact":
            yield exact_graph(
                embeddings,
                k,
                threads=threads,
                device=device,
                progress=progress,
                step=step,
                scratch=scratch,
                checkpoint=checkpoint,
            )
            continue
        graph = approximate_graph(
            embeddings,
            k,
            recall,
            seed=seed,
            threads=threads,
            device=device,
            progress=progress,
            step=step,
            scratch=scratch,
            identities=identities,
            checkpoint=checkpoint,
        )
        if identities is None and graph.recall is not None:
            warn_of_recall(step, graph.recall, recall)
        yield graph


def warn_of_recall(step: str, reached: float, asked: float, among: str = "the nearest neighbors") -> None:
    """Warn where an approximate search found fewer neighbors than it was asked for."""
    if reached < asked:
        warnings.warn(
            f"{step}: the approximate search found {reached:.1%} of {among} on a sample, less than the {asked:.1%} asked for; "
            "use method='exact', or ask for a lower recall.",
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
    """The search that `method` stands for at this size: `exact` or `approximate`."""
    if method not in METHODS:
        raise InputError(
            f"method={method!r}: choose from {', '.join(METHODS)}.", code="knn-method-unknown", value=method
        )
    if method == "auto":
        return "exact" if n_images <= EXACT_UP_TO else "approximate"
    return method


def check_k(k: int, n_images: int) -> None:
    """Refuse a k that no image can satisfy."""
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

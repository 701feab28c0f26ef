"""Opinions of the committee about candidate pairs (paper, section 3.1.ii), block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.knn.pair_similarity import similarities
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.scoring.pairs import are_edges
from cdp.types import PAPER_INPUTS, KnnGraph, Opinions, Pairs, Views, column_names
from cdp.types.arrays import BoolArray, FloatArray, IntArray
from cdp.types.opinions import check_inputs

_ROWS_PER_BLOCK = 65_536


def relationship(ids: IntArray, committee: Sequence[KnnGraph]) -> BoolArray:
    """Return which committee members also see the two images as neighbors.

    Agreement of unlike networks is hard evidence: they rarely make the same mistake.
    Paper, Eq. 1:  R_Ci(n0, n1) = 1 if (n0, n1) is an edge of G_Ci, else 0.
    The base model gets no column: every candidate pair is an edge of its graph.

    Deviation: a k-NN graph is directed, the paper's pair is not; either direction counts.

    Returns:
        bool (m, N); column i-1 answers for C_i.
    """
    votes = np.empty((len(ids), len(committee)), np.bool_)
    for column, graph in enumerate(committee):
        votes[:, column] = are_edges(graph, ids)
    return votes


def affinity(ids: IntArray, views: Views) -> FloatArray:
    """Return how similar each model finds the two images.

    Paper, Eq. 2:  A_Ci(n0, n1) = cos(F_Ci(n0), F_Ci(n1)), for the base model (i = 0) and the committee.

    Returns:
        float32 (m, N+1); column i answers for C_i.
    """
    return np.stack([similarities(embeddings, ids) for embeddings in views], axis=1)


def neighbor_distribution(
    graph: KnnGraph, k: int | None = None, runtime: Runtime | None = None
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each image's similarities to its K (or first k) neighbors.

    A similarity of 0.6 means much in a sparse neighborhood and little in a dense one.
    Paper, Eq. 3:  D_Ci(x) = {cos(F_Ci(x), F_Ci(x_k)), k = 1..K};  Eq. 4 uses E(D) and sigma(D).

    Deviation: the paper calls sigma(D) "variance" in words; here it is the standard deviation, as its symbol
    says. Standardized inputs make the two equal to the mediator.

    Returns:
        two float32 (n,); zero for an image without neighbors.
    """
    return neighbor_distributions([graph], [graph.k if k is None else k], runtime or Runtime())[0]


def neighbor_distributions(
    graphs: Sequence[KnnGraph], lengths: Sequence[int], runtime: Runtime
) -> list[tuple[FloatArray, FloatArray]]:
    """`neighbor_distribution` of several graphs, each to its first so many neighbors."""
    found = [(np.empty(graph.n_images, np.float32), np.empty(graph.n_images, np.float32)) for graph in graphs]
    cut = [
        (number, *span)
        for number, graph in enumerate(graphs)
        for span in spans(graph.n_images, _ROWS_PER_BLOCK)
    ]
    parts = runtime.map(_distribution_of_block, (graphs, lengths), cut)
    for (number, start, stop), (mean, spread) in zip(cut, parts, strict=True):
        found[number][0][start:stop], found[number][1][start:stop] = mean, spread
    return found


def _distribution_of_block(
    shared: tuple[Sequence[KnnGraph], Sequence[int]], block: tuple[int, int, int]
) -> tuple[FloatArray, FloatArray]:
    (graphs, lengths), (number, start, stop) = shared, block
    graph, k, rows = graphs[number], lengths[number], slice(start, stop)
    present = graph.neighbors[rows, :k] >= 0
    count = np.maximum(present.sum(axis=1), 1)
    similarity = np.where(present, graph.similarity[rows, :k], 0).astype(np.float64)
    mean = similarity.sum(axis=1) / count
    centered = np.where(present, similarity - mean[:, None], 0)
    spread = np.sqrt(np.square(centered).sum(axis=1) / count)
    return mean.astype(np.float32), spread.astype(np.float32)


def common_neighbors(ids: IntArray, ordered_neighbors: Sequence[IntArray]) -> FloatArray:
    """Return how many neighbors the two images share in each model.

    Not in the paper; the authors' own code uses it in place of the neighbor distribution. Two images of one
    person know the same people.

    Args:
        ids: int32 (m, 2).
        ordered_neighbors: per model, `KnnGraph.neighbors` with every row sorted by id.

    Returns:
        float32 (m, N+1); column i counts in C_i's graph.
    """
    counts = np.empty((len(ids), len(ordered_neighbors)), np.float32)
    for column, neighbors in enumerate(ordered_neighbors):
        _count_common(neighbors, ids, counts[:, column])
    return counts


@kernel
def _count_common(neighbors: IntArray, ids: IntArray, counts: FloatArray) -> None:
    k = neighbors.shape[1]
    for row in range(len(ids)):
        first = neighbors[ids[row, 0]]
        second = neighbors[ids[row, 1]]
        here = 0
        there = 0
        shared = 0
        while here < k and there < k:
            if first[here] < second[there]:
                here += 1
            elif first[here] > second[there]:
                there += 1
            else:
                if first[here] >= 0:
                    shared += 1
                here += 1
                there += 1
        counts[row] = shared


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """Everything about the images that opinions are drawn from, prepared once for all pairs.

    Attributes:
        views: embeddings by the base model and the committee.
        graphs: their k-NN graphs, base first.
        inputs: the input blocks that are asked for.
        mean: float32 (n, N+1), mean similarity to the neighbors per image and model.
        spread: float32 (n, N+1), standard deviation of the same.
        ordered_neighbors: per model, neighbors sorted by id; empty unless common neighbors are asked for.
    """

    views: Views
    graphs: tuple[KnnGraph, ...]
    inputs: tuple[str, ...]
    mean: FloatArray
    spread: FloatArray
    ordered_neighbors: tuple[IntArray, ...]

    @property
    def bytes_per_pair(self) -> int:
        """What a block needs while it is collected and put before the mediator, per pair."""
        n_columns = len(column_names(tuple(self.views.committee), self.inputs))
        return 4 * (3 * n_columns + 2 * 50 + 8)


def prepare_features(
    views: Views, graphs: Sequence[KnnGraph], inputs: Sequence[str] = PAPER_INPUTS
) -> FeatureSource:
    """Check that views and graphs speak of the same images and prepare what opinions are drawn from."""
    if len(graphs) != len(views):
        raise InputError(
            f"{len(graphs)} k-NN graphs for {len(views)} models; one per model is needed, base first.",
            code="graphs-models-differ",
            expected=len(views),
            found=len(graphs),
        )
    for name, graph in zip(views.names, graphs, strict=True):
        if graph.n_images != views.n_images:
            raise InputError(
                f"The k-NN graph of {name!r} has {graph.n_images:,} images, the views have "
                f"{views.n_images:,}.",
                code="graph-images-differ",
                model=name,
                expected=views.n_images,
                found=graph.n_images,
            )
    blocks = check_inputs(inputs)
    statistics = [neighbor_distribution(graph) for graph in graphs]
    ordered: tuple[IntArray, ...] = ()
    if "common_neighbors" in blocks:
        ordered = tuple(np.sort(graph.neighbors, axis=1) for graph in graphs)
    return FeatureSource(
        views=views,
        graphs=tuple(graphs),
        inputs=blocks,
        mean=np.stack([mean for mean, _ in statistics], axis=1),
        spread=np.stack([spread for _, spread in statistics], axis=1),
        ordered_neighbors=ordered,
    )


def extract_features(source: FeatureSource, ids: IntArray) -> Opinions:
    """Opinions about the given pairs (m, 2), all at once."""
    first, second = ids[:, 0], ids[:, 1]
    return Opinions(
        relationship=relationship(ids, source.graphs[1:]),
        affinity=affinity(ids, source.views),
        mean=np.concatenate([source.mean[first], source.mean[second]], axis=1),
        spread=np.concatenate([source.spread[first], source.spread[second]], axis=1),
        common_neighbors=(
            common_neighbors(ids, source.ordered_neighbors) if "common_neighbors" in source.inputs else None
        ),
        committee=tuple(source.views.committee),
    )


def collect_opinions(
    pairs: Pairs, views: Views, graphs: Sequence[KnnGraph], inputs: Sequence[str] = PAPER_INPUTS
) -> Opinions:
    """Return the committee's opinions about `pairs`: relationship, affinity, neighbor distribution.

    All pairs given are answered at once; `CDP` goes block by block.

    Args:
        pairs: candidate pairs.
        views: embeddings by the base model and the committee.
        graphs: their k-NN graphs, base first.
        inputs: add "common_neighbors" to have them counted too.
    """
    if pairs.n_images != views.n_images:
        raise InputError(
            f"The pairs are of {pairs.n_images:,} images, the views have {views.n_images:,}.",
            code="pairs-images-differ",
            expected=views.n_images,
            found=pairs.n_images,
        )
    return extract_features(prepare_features(views, graphs, inputs), pairs.ids)

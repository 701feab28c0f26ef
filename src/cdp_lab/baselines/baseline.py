"""Baseline protocol: typed settings, a name, and embeddings to labels; and graphs as links."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cdp.errors import InputError
from cdp.settings import check_settings, setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray, FloatArray, IntArray

DEFAULT_K = 20


def cosine_setting(help: str) -> float:
    """Return a field for the least similarity of two images or groups."""
    return setting(0.5, help, meaning="a cosine", low=-1, high=1)


@dataclass(frozen=True)
class Baseline(ABC):
    """A way to group images by one model's embeddings; subclasses are frozen dataclasses of their settings.

    A group of one says nothing about identity, so single images are discarded, as CDP discards them.
    """

    def __post_init__(self) -> None:
        check_settings(self, type(self).__name__)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in `BASELINES`, in tables and on the command line."""

    @abstractmethod
    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Pseudo-identities of all images.

        Args:
            embeddings: one model's view of the images.
            graph: its k-NN graph, if it is there already; methods that need one search it otherwise.
        """

    def label_each(
        self, embeddings: Embeddings, graph: KnnGraph | None, settings: Sequence[Mapping[str, Any]]
    ) -> Iterator[Labels]:
        """`self.having(**each).label(…)` for each of the settings; cheaper where a method can share work."""
        for each in settings:
            yield self.having(**each).label(embeddings, graph)

    def having(self, **settings: Any) -> Baseline:
        """Return the same method with other settings."""
        known = [field.name for field in fields(self)]
        for name in settings:
            if name not in known:
                raise InputError(
                    f"{self.name}: no setting {name!r}; it has {', '.join(known)}.",
                    code="baseline-setting-unknown",
                    baseline=self.name,
                    key=name,
                )
        return replace(self, **settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, ready for JSON."""
        return asdict(self)

    def graph_of(self, embeddings: Embeddings, graph: KnnGraph | None) -> KnnGraph:
        """Return the given graph if it is about these images, else a search for 20 neighbors."""
        if graph is None:
            from cdp.knn.search import knn_graph

            if embeddings.n_images < 2:
                raise InputError(
                    f"{self.name}: one image alone has no neighbors; give two or more.",
                    code="baseline-one-image",
                    baseline=self.name,
                )
            return knn_graph(embeddings, min(DEFAULT_K, embeddings.n_images - 1))
        if graph.n_images != embeddings.n_images:
            raise InputError(
                f"{self.name}: the graph is about {graph.n_images:,} images, the embeddings about "
                f"{embeddings.n_images:,}; give the graph of these embeddings.",
                code="baseline-graph-differs",
                baseline=self.name,
                expected=embeddings.n_images,
                found=graph.n_images,
            )
        return graph


def labels_of(groups: AnyArray) -> Labels:
    """Labels of any group numbers (negative = discarded); groups of one are discarded too."""
    _, number = np.unique(groups, return_inverse=True)
    sizes = np.bincount(number, minlength=1)
    return Labels.from_array(np.where((groups >= 0) & (sizes[number] > 1), number, -1))


class Links(NamedTuple):
    """Links between images, each once with first < second, sorted; arrays of shape (m,)."""

    first: IntArray
    second: IntArray
    similarity: FloatArray
    n_images: int

    def rows(self) -> sparse.csr_array:
        """Both directions as a sparse matrix of float64 similarities; a similarity of 0 stays an entry."""
        ends = np.concatenate([self.first, self.second]), np.concatenate([self.second, self.first])
        values = np.tile(self.similarity.astype(np.float64), 2)
        return sparse.csr_array(sparse.coo_array((values, ends), shape=(self.n_images,) * 2))


def links_of(graph: KnnGraph, at_least: float = -np.inf) -> Links:
    """Return the links of similarity `at_least` or more: either image has the other among its neighbors."""
    row, column = np.nonzero((graph.neighbors >= 0) & (graph.similarity >= np.float32(at_least)))
    other = graph.neighbors[row, column].astype(np.int64)
    similarity = graph.similarity[row, column]
    keys = np.minimum(row, other) * np.int64(graph.n_images) + np.maximum(row, other)
    # Where the two directions differ by a rounding, the greater similarity is kept.
    order = np.lexsort((-similarity, keys))
    once = order[np.diff(keys[order], prepend=-1) > 0]
    first, second = np.divmod(keys[once], graph.n_images)
    return Links(first.astype(np.int32), second.astype(np.int32), similarity[once], graph.n_images)


def components(first: AnyArray, second: AnyArray, n_images: int) -> IntArray:
    """Return the connected component of every image, int32 (n,), where first[i] and second[i] are linked."""
    ones = np.ones(len(first), np.int8)
    matrix = sparse.coo_array((ones, (first, second)), shape=(n_images, n_images))
    numbers: IntArray = sparse.csgraph.connected_components(matrix, directed=False)[1].astype(np.int32)
    return numbers

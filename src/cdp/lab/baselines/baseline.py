"""What every baseline is: typed settings, a name, and one way from embeddings to labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from cdp.errors import InputError
from cdp.settings import check_settings, setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray

DEFAULT_K = 20


def cosine_setting(help: str) -> float:
    """A field for the least similarity of two images or groups."""
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
        """The same method with other settings."""
        known = [field.name for field in fields(self)]
        for name in settings:
            if name not in known:
                raise InputError(f"{self.name}: no setting {name!r}; it has {', '.join(known)}.")
        return replace(self, **settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, ready for JSON."""
        return asdict(self)

    def graph_of(self, embeddings: Embeddings, graph: KnnGraph | None) -> KnnGraph:
        """The given graph if it is about these images, else a search for 20 neighbors."""
        if graph is None:
            from cdp.graph.search import knn_graph

            if embeddings.n_images < 2:
                raise InputError(f"{self.name}: one image alone has no neighbors; give two or more.")
            return knn_graph(embeddings, min(DEFAULT_K, embeddings.n_images - 1))
        if graph.n_images != embeddings.n_images:
            raise InputError(
                f"{self.name}: the graph is about {graph.n_images:,} images, the embeddings about "
                f"{embeddings.n_images:,}; give the graph of these embeddings."
            )
        return graph


def labels_of(groups: AnyArray) -> Labels:
    """Labels of any group numbers (negative = discarded); groups of one are discarded too."""
    _, number = np.unique(groups, return_inverse=True)
    sizes = np.bincount(number, minlength=1)
    return Labels.from_array(np.where((groups >= 0) & (sizes[number] > 1), number, -1))

"""Consensus-Driven Propagation: group images by identity, from their embeddings by one or more models.

    from cdp import CDP

    labels = CDP().fit_predict(X, y)  # X: embeddings; y: identities, -1 = unknown, may be left out

Names are loaded on first use, so `import cdp` costs little more than NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "CDP": "cdp.labeling.estimator",
    "CdpError": "cdp.errors",
    "Collection": "cdp.collection.collection",
    "ConsensusGraph": "cdp.types",
    "ConsensusSettings": "cdp.scoring.settings",
    "Correction": "cdp.collection.corrections",
    "Embeddings": "cdp.types",
    "InputError": "cdp.errors",
    "KnnGraph": "cdp.types",
    "Labels": "cdp.types",
    "Manifest": "cdp.types",
    "Mediator": "cdp.scoring.mediator",
    "Runtime": "cdp.runtime.runtime",
    "Status": "cdp.types",
    "Views": "cdp.types",
    "agglomerate": "cdp.grouping.average_linkage",
    "knn_graph": "cdp.knn.search",
    "label": "cdp.labeling.pipeline",
    "measure_labels": "cdp.evaluate.label_figures",
    "propagate": "cdp.grouping.propagation",
    "read_manifest": "cdp.data.manifests",
    "split_by_identity": "cdp.data.split",
}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from cdp.collection.collection import Collection as Collection
    from cdp.collection.corrections import Correction as Correction
    from cdp.data.manifests import read_manifest as read_manifest
    from cdp.data.split import split_by_identity as split_by_identity
    from cdp.errors import CdpError as CdpError
    from cdp.errors import InputError as InputError
    from cdp.evaluate.label_figures import measure_labels as measure_labels
    from cdp.grouping.average_linkage import agglomerate as agglomerate
    from cdp.grouping.propagation import propagate as propagate
    from cdp.knn.search import knn_graph as knn_graph
    from cdp.labeling.estimator import CDP as CDP
    from cdp.labeling.pipeline import label as label
    from cdp.runtime.runtime import Runtime as Runtime
    from cdp.scoring.mediator import Mediator as Mediator
    from cdp.scoring.settings import ConsensusSettings as ConsensusSettings
    from cdp.types import ConsensusGraph as ConsensusGraph
    from cdp.types import Embeddings as Embeddings
    from cdp.types import KnnGraph as KnnGraph
    from cdp.types import Labels as Labels
    from cdp.types import Manifest as Manifest
    from cdp.types import Status as Status
    from cdp.types import Views as Views


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cdp' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

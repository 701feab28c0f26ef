"""Consensus-Driven Propagation: identities you can trust for a mass of unlabeled images.

from cdp import CDP, Views
labels = CDP().fit(Views.load("labeled")).predict(Views.load("unlabeled"))

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
    "Embeddings": "cdp.types",
    "Status": "cdp.types",
    "InputError": "cdp.errors",
    "KnnGraph": "cdp.types",
    "Labels": "cdp.types",
    "Manifest": "cdp.types",
    "Mediator": "cdp.scoring.mediator",
    "Opinions": "cdp.types",
    "Pairs": "cdp.types",
    "PaperMLP": "cdp.scoring.mlp",
    "Views": "cdp.types",
    "agglomerate": "cdp.grouping.average_linkage",
    "append_corrections": "cdp.collection.corrections",
    "candidate_pairs": "cdp.scoring.pairs",
    "collect_opinions": "cdp.scoring.paper_features",
    "create_collection": "cdp.collection.creation",
    "diffuse": "cdp.grouping.soft_labels",
    "extend": "cdp.collection.extension",
    "knn_graph": "cdp.knn.search",
    "measure_labels": "cdp.evaluate.label_figures",
    "measure_pairs": "cdp.evaluate.label_figures",
    "open_collection": "cdp.collection.collection",
    "propagate": "cdp.grouping.propagation",
    "read_manifest": "cdp.data.manifests",
    "regroup": "cdp.collection.regrouping",
    "retrain": "cdp.collection.retraining",
    "split_by_identity": "cdp.data.split",
}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from cdp.collection.collection import Collection as Collection
    from cdp.collection.collection import open_collection as open_collection
    from cdp.collection.corrections import append_corrections as append_corrections
    from cdp.collection.creation import create_collection as create_collection
    from cdp.collection.extension import extend as extend
    from cdp.collection.regrouping import regroup as regroup
    from cdp.collection.retraining import retrain as retrain
    from cdp.data.manifests import read_manifest as read_manifest
    from cdp.data.split import split_by_identity as split_by_identity
    from cdp.errors import CdpError as CdpError
    from cdp.errors import InputError as InputError
    from cdp.evaluate.label_figures import measure_labels as measure_labels
    from cdp.evaluate.label_figures import measure_pairs as measure_pairs
    from cdp.grouping.average_linkage import agglomerate as agglomerate
    from cdp.grouping.propagation import propagate as propagate
    from cdp.grouping.soft_labels import diffuse as diffuse
    from cdp.knn.search import knn_graph as knn_graph
    from cdp.labeling.estimator import CDP as CDP
    from cdp.scoring.mediator import Mediator as Mediator
    from cdp.scoring.mlp import PaperMLP as PaperMLP
    from cdp.scoring.pairs import candidate_pairs as candidate_pairs
    from cdp.scoring.paper_features import collect_opinions as collect_opinions
    from cdp.types import ConsensusGraph as ConsensusGraph
    from cdp.types import Embeddings as Embeddings
    from cdp.types import KnnGraph as KnnGraph
    from cdp.types import Labels as Labels
    from cdp.types import Manifest as Manifest
    from cdp.types import Opinions as Opinions
    from cdp.types import Pairs as Pairs
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

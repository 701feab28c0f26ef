"""The nouns: frozen, checked once in their constructor, passed along and never changed."""

from cdp.input_blocks import ALL_INPUTS, PAPER_INPUTS
from cdp.types.embeddings import Embeddings, Views
from cdp.types.graphs import ConsensusGraph, KnnGraph, Pairs, SimilarityGraph
from cdp.types.labels import Labels, Status
from cdp.types.manifest import Manifest
from cdp.types.opinions import Opinions, column_names
from cdp.types.softness import Softness

__all__ = [
    "ALL_INPUTS",
    "PAPER_INPUTS",
    "ConsensusGraph",
    "Embeddings",
    "KnnGraph",
    "Labels",
    "Manifest",
    "Opinions",
    "Pairs",
    "SimilarityGraph",
    "Softness",
    "Status",
    "Views",
    "column_names",
]

"""`cdp-lab compile`: run every loop of labeling once, so that its compiled form is cached."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from cdp.data.views import read_views
from cdp.knn.pair_similarity import similarities
from cdp.knn.search import knn_graph
from cdp.labeling.figures import measure_labeling
from cdp.labeling.pipeline import label
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.types import Embeddings
from cdp.types.arrays import FloatArray
from cdp_lab.synthetic import synthetic_views

_PEOPLE = 250
# So small that groups must be split, too.
_MAX_SIZE = 20
# Enough images that probing cells is cheaper than exact search: few cells at the first rank, many at the
# second.
_IMAGES, _DIMENSIONS, _RANKS = 20_000, 256, (8, 32)


def compile_loops(progress: Progress = no_progress) -> None:
    """Label a few made-up people by both presets, with and without labels, and by both searches.

    A loop is compiled for the kinds of arrays that it is given; so nothing less than the real thing compiles
    what will be needed.
    """
    with TemporaryDirectory() as folder:
        split = synthetic_views(_PEOPLE, members=2, dimensions=64)
        for name, part in (("labeled", split.labeled), ("unlabeled", split.unlabeled)):
            part.save(Path(folder) / name)
        labeled, unlabeled = (read_views(Path(folder) / name) for name in ("labeled", "unlabeled"))
        ways = [("best", [labeled]), ("paper", [labeled]), ("best", [])]
        for done, (preset, known) in enumerate(ways):
            progress("labels", done, len(ways))
            runtime = Runtime(folder=Path(folder))
            settings = ConsensusSettings.of(preset, max_cluster_size=_MAX_SIZE)
            labeling = label(unlabeled, settings, labeled=known, runtime=runtime)
            measure_labeling(labeling, unlabeled, runtime=runtime)
        progress("labels", len(ways), len(ways))
        for done, rank in enumerate(_RANKS):
            progress("searches", done, len(_RANKS))
            file = Path(folder) / f"{rank}.npy"
            np.save(file, _low_rank(rank))
            knn_graph(Embeddings(np.load(file, mmap_mode="r")), 20, "approximate", recall=0.97)
        np.save(file, np.ones((2, _DIMENSIONS), np.float16))
        similarities(Embeddings(np.load(file, mmap_mode="r")), np.array([[0, 1]], np.int32))
        progress("searches", len(_RANKS), len(_RANKS))


def _low_rank(rank: int) -> FloatArray:
    """Make random embeddings of this rank."""
    generator = np.random.default_rng(0)
    latent = generator.standard_normal((_IMAGES, rank), np.float32)
    vectors: FloatArray = latent @ generator.standard_normal((rank, _DIMENSIONS), np.float32)
    return vectors

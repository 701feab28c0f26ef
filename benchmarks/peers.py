"""k-NN graphs by this project, PyNNDescent and faiss: CPU seconds on one thread, recall and peak memory, k = 20.

    pip install 'consensus-driven-propagation[peers]'
    python -m benchmarks.omniglot labeled && python -m benchmarks.omniglot embeddings    # the real embeddings
    python -m benchmarks peers --out docs/results/peers.json && python docs/make_peers_table.py

Every row has a fresh process. A search of 30,000 images before the clock starts pays for imports, compiling and loading; the
least of three searches counts, index included. Recall is the share of the exact neighbors of 1,000 random images. The parameters that
faiss leaves to its user (nprobe, efSearch) are the least that reach the recall asked for, found before the clock starts; this project
finds its own, on the clock. What a library is asked for is in its row. A library that is not installed is left out with a sentence.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

import numpy as np

from benchmarks.clock import in_own_process
from benchmarks.data import OMNIGLOT_EMBEDDINGS, data_folder
from benchmarks.search import structured
from cdp import Embeddings, knn_graph
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import AnyArray, FloatArray

K = 20
REPEATS = 3
N_QUERIES = 1000
WARM_UP_ROWS = 30_000
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
IVF_EFFORTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64)
HNSW_EFFORTS = (21, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256, 512)
INSTALL = "pip install 'consensus-driven-propagation[peers]'"

Search: TypeAlias = Callable[[FloatArray], AnyArray]
"""From unit rows to the ids of their neighbors; the image itself may be among them."""


class Row(NamedTuple):
    """One search: who does it, how, and the recall asked for; None = whatever the library's defaults reach."""

    library: str
    package: str
    index: str
    recall: float | None


ROWS = (
    Row("cdp", "", "approximate", 0.97),
    Row("cdp", "", "approximate", 0.992),
    Row("PyNNDescent", "pynndescent", "defaults", None),
    Row("faiss", "faiss-cpu", "PCA64,IVF,SQ8,RFlat", 0.97),
    Row("faiss", "faiss-cpu", "PCA64,IVF,SQ8,RFlat", 0.99),
    Row("faiss", "faiss-cpu", "PCA32,IVF,SQ8,RFlat", 0.97),
    Row("faiss", "faiss-cpu", "PCA32,IVF,SQ8,RFlat", 0.99),
    Row("faiss", "faiss-cpu", "HNSW16", 0.99),
    Row("faiss", "faiss-cpu", "HNSW32", 0.99),
)


def measure(*, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, vectors in data_sets(quick):
        print(f"{name}: {len(vectors):,} x {vectors.shape[1]}, k = {K}")
        print(f"{'library':14}{'index':42}{'asked':>6}{'recall':>8}{'CPU s':>8}{'warm-up':>9}{'peak MB':>9}")
        figures[name] = {
            "images": len(vectors),
            "dimensions": vectors.shape[1],
            "k": K,
            "rows": measure_rows(vectors),
        }
    return figures


def data_sets(quick: bool) -> Iterator[tuple[str, FloatArray]]:
    """Made-up embeddings with the structure of real ones, and the largest real ones at hand."""
    yield "structured", structured(10_000 if quick else 200_000)
    lfw = data_folder("lfw")
    if OMNIGLOT_EMBEDDINGS.is_file():
        yield "omniglot", np.load(OMNIGLOT_EMBEDDINGS)[: 10_000 if quick else None]
    elif lfw is not None:
        print(f"{OMNIGLOT_EMBEDDINGS} is not there (see `python -m benchmarks.omniglot --help`): LFW instead")
        yield "lfw", np.load(lfw / "mobilefacenet.npy").astype(np.float32)


def measure_rows(vectors: FloatArray) -> list[dict[str, Any]]:
    """Every search in a fresh process."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, ONE_THREAD):
        unit = np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)
        queries = np.sort(np.random.default_rng(0).permutation(len(unit))[:N_QUERIES])
        np.save(Path(folder, "vectors.npy"), unit)
        np.save(Path(folder, "queries.npy"), queries)
        np.save(Path(folder, "truth.npy"), exact_neighbors(unit, queries))
        for row in ROWS:
            version = installed_version(row.package)
            if version is None:
                print(f"{row.library} is not installed, so this row is left out: {INSTALL}")
                continue
            found = in_own_process("benchmarks.peers", folder=folder, row=ROWS.index(row))
            rows.append({"library": row.library, "version": version, "asked": row.recall, **found})
            asked = "" if row.recall is None else f"{row.recall:g}"
            print(
                f"{row.library:14}{found['setting']:42}{asked:>6}{found['recall']:8.3f}{found['cpu_seconds']:8.1f}"
                f"{found['warm_up_cpu_seconds']:9.1f}{found['peak_mb']:9,}",
                flush=True,
            )
    return rows


def installed_version(package: str) -> str | None:
    """The version of a package; None if it is not installed. This project's if no package is named."""
    import cdp

    try:
        return importlib.metadata.version(package) if package else cdp.__version__
    except importlib.metadata.PackageNotFoundError:
        return None


def child(folder: str, row: int) -> dict[str, Any]:
    """One row: warm up, choose parameters, then search three times."""
    vectors, queries, truth = (
        np.load(Path(folder, f"{name}.npy")) for name in ("vectors", "queries", "truth")
    )
    library, _, index, asked = ROWS[row]
    makers = {"cdp": search_cdp, "PyNNDescent": search_pynndescent, "faiss": search_faiss}
    started = time.process_time()
    makers[library](index, asked, vectors[:WARM_UP_ROWS], None)[1](vectors[:WARM_UP_ROWS])
    warm_up = time.process_time() - started

    def recall_of(found: AnyArray) -> float:
        return measure_recall(found, queries, truth)

    setting, search = makers[library](index, asked, vectors, (queries, recall_of))
    seconds, recalls = [], []
    for _ in range(REPEATS):
        started = time.process_time()
        found = search(vectors)
        seconds.append(round(time.process_time() - started, 2))
        recalls.append(recall_of(found[queries]))
    return {
        "setting": setting,
        "recall": round(float(np.median(recalls)), 4),
        "cpu_seconds": min(seconds),
        "all_cpu_seconds": seconds,
        "warm_up_cpu_seconds": round(warm_up, 1),
    }


Sample: TypeAlias = tuple[AnyArray, Callable[[AnyArray], float]] | None
"""Rows to choose parameters with, and the recall of their neighbors; None = take any."""


def search_cdp(index: str, asked: float | None, vectors: FloatArray, sample: Sample) -> tuple[str, Search]:
    """This project's search, which chooses its own parameters."""
    assert asked is not None
    recall, runtime = asked if sample else 0.9, Runtime.of(threads=1)

    def search(vectors: FloatArray) -> AnyArray:
        return knn_graph(Embeddings(vectors), K, index, recall=recall, runtime=runtime).neighbors

    del vectors
    return f"{index}, recall={recall:g}", search


def search_pynndescent(
    index: str, asked: float | None, vectors: FloatArray, sample: Sample
) -> tuple[str, Search]:
    """PyNNDescent with its defaults: lists of k and the image itself."""
    from pynndescent import NNDescent

    def search(vectors: FloatArray) -> AnyArray:
        return NNDescent(
            vectors, metric="cosine", n_neighbors=K + 1, n_jobs=1, random_state=0
        ).neighbor_graph[0]

    del asked, vectors, sample
    return f"{index}, cosine, n_neighbors={K + 1}", search


def search_faiss(index: str, asked: float | None, vectors: FloatArray, sample: Sample) -> tuple[str, Search]:
    """A faiss index of all images, searched with all of them; about 200 images per cell."""
    import faiss

    faiss.omp_set_num_threads(1)
    n_cells = 2 ** max(4, round(np.log2(len(vectors) / 200)))
    is_graph = index.startswith("HNSW")
    factory = index if is_graph else index.replace("IVF", f"IVF{n_cells}")

    def build(vectors: FloatArray) -> Any:
        made = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        made.train(vectors)
        made.add(vectors)
        return made

    space = faiss.ParameterSpace()

    def query(made: Any, rows: FloatArray, effort: int) -> AnyArray:
        setting = f"efSearch={effort}" if is_graph else f"nprobe={effort},k_factor_rf=2"
        space.set_index_parameters(made, setting)
        return made.search(rows, K + 1)[1]

    efforts = HNSW_EFFORTS if is_graph else IVF_EFFORTS
    effort = efforts[0]
    if sample:
        made, (queries, recall_of) = build(vectors), sample
        assert asked is not None
        reached = (one for one in efforts if recall_of(query(made, vectors[queries], one)) >= asked)
        effort = next(reached, efforts[-1])
        del made
    name = f"efSearch={effort}" if is_graph else f"nprobe={effort}, k_factor=2"
    return f"{factory}, {name}", lambda vectors: query(build(vectors), vectors, effort)


def exact_neighbors(unit: FloatArray, queries: AnyArray) -> AnyArray:
    """The ids of the k most similar other images of every query."""
    found = np.empty((len(queries), K), np.int64)
    for start in range(0, len(queries), 100):
        rows = queries[start : start + 100]
        similarity = unit[rows] @ unit.T
        similarity[np.arange(len(rows)), rows] = -2
        found[start : start + 100] = np.argpartition(-similarity, K, axis=1)[:, :K]
    return found


def measure_recall(found: AnyArray, queries: AnyArray, truth: AnyArray) -> float:
    """Share of the true neighbors among the first k found, the image itself not counted."""
    shares = []
    for row, query in enumerate(queries):
        others = found[row][found[row] != query][:K]
        shares.append(np.isin(truth[row], others).mean())
    return float(np.mean(shares))


if __name__ == "__main__":
    measure(quick="--quick" in sys.argv)

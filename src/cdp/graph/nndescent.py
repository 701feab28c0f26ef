"""Approximate k-NN search by PyNNDescent, in a process of its own.

PyNNDescent's result depends on its number of threads. The worker process therefore always runs the same number
of logical threads, however many cores there are, so that a seed gives one graph on every machine. It is kept for
all models of a call, because PyNNDescent compiles for half a minute in every new process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from cdp.errors import CdpError
from cdp.graph.exact import graph_from_neighbors
from cdp.parallel import spans
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import IntArray

LOGICAL_THREADS = 8
# More neighbors than asked for are searched, and the best k kept: recall at the k-th place is the worst.
_EXTRA_NEIGHBORS = 10


class NNDescentWorker:
    """A process that answers k-NN searches until it is closed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cdp-knn-")
        environment = os.environ | {"NUMBA_NUM_THREADS": str(LOGICAL_THREADS), "PYTHONWARNINGS": "ignore"}
        self._errors: IO[bytes] = (Path(self._folder.name) / "errors.txt").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cdp.graph.nndescent_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )

    def __enter__(self) -> NNDescentWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def search(self, embeddings: Embeddings, k: int, seed: int) -> KnnGraph:
        """The approximate graph; its similarities are measured exactly, only who is found is approximate."""
        folder = Path(self._folder.name)
        vectors = np.lib.format.open_memmap(
            folder / "vectors.npy", "w+", np.float32, (embeddings.n_images, embeddings.dimensions)
        )
        for start, stop in spans(embeddings.n_images, 65536):
            vectors[start:stop] = embeddings.block(start, stop)
        vectors.flush()
        del vectors
        found = self._ask({"folder": str(folder), "k": k + 1 + _EXTRA_NEIGHBORS, "seed": seed})
        graph = graph_from_neighbors(embeddings, found, method="nndescent")
        return KnnGraph(graph.neighbors[:, :k], graph.similarity[:, :k], method="nndescent")

    def _ask(self, question: dict[str, Any]) -> IntArray:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answer = ""
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            pass
        if answer.strip() != "done":
            self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise CdpError(
                f"The approximate k-NN search stopped ({last[0]}); use method='exact', or free memory and try again."
            )
        found: IntArray = np.load(Path(question["folder"]) / "neighbors.npy", allow_pickle=False)
        return found

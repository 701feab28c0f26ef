"""k-NN searches: recall, CPU time as a share of exact search, start-up; exact search and `cdp label` against the bare product.

Data with the structure of real embeddings: identities and their images spread over few dimensions, as they do in trained
networks. It is made to match four networks on 17,520 Omniglot drawings, by how often true neighbors have one of their m
nearest clusters of 250 in common: 0.67, 0.93, 0.99 and 1.00 for m = 1 to 4 (the networks: 0.69, 0.93, 0.98 and 0.99).
Structureless data knows identities and nothing else, in 64 dimensions: the hardest case.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from benchmarks.clock import in_own_process
from benchmarks.data import write_made_up_views
from cdp import Embeddings, KnnGraph, knn_graph
from cdp.knn.recall import measure_same_identity_recall
from cdp.runtime.runtime import Runtime
from cdp.types.arrays import FloatArray, LongArray

Result = TypeVar("Result")
Made: TypeAlias = tuple[FloatArray, LongArray]
"""Vectors and identities."""
K = 20
N_MODELS = 5
ASKED = 0.97


def measure(*, quick: bool) -> dict[str, Any]:
    knn_graph(structured(30_000), K, method="approximate", recall=0.9)  # load what is compiled
    figures: dict[str, Any] = {"exact": exact_to_product(6000 if quick else 50_000)}
    print(f"recall {ASKED} asked for, 256 dimensions:")
    print(f"{'data':24}{'search':14}{'recall':>8}{'same id':>8}{'CPU s':>8}{'of exact':>10}")
    figures["structured"] = compare("structured", make_structured, 20_000 if quick else 200_000)
    figures["structureless"] = compare("structureless", make_structureless, 10_000 if quick else 100_000)
    figures["label"] = label_to_products(3000 if quick else 48_700)
    figures["startup"] = in_own_process("benchmarks.search")
    print(f"start-up of the approximate search in a new process: {figures['startup']['seconds']:.1f} s")
    return figures


def exact_to_product(n_images: int) -> dict[str, float]:
    """Exact search and all similarities without keeping any, in CPU seconds, which other work on the machine hardly moves."""
    embeddings = Embeddings(structured(n_images))
    product_seconds, _ = cpu_timed(lambda: bare_product(embeddings.vectors))
    exact_seconds, _ = cpu_timed(lambda: knn_graph(embeddings, K, method="exact"))
    ratio = exact_seconds / product_seconds
    print(f"exact, {n_images:,} x 256: {exact_seconds:.1f} CPU s = {ratio:.2f} x the bare full product")
    return {"seconds": exact_seconds, "product_seconds": product_seconds, "to_product": ratio}


def label_to_products(n_images: int) -> dict[str, float]:
    """The whole of `cdp label` with five models of 256 dimensions, and five bare products, in CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        write_made_up_views(Path(folder), n_images)
        views = [f"{folder}/unlabeled", "--labeled", f"{folder}/labeled", "--out", f"{folder}/labels"]
        seconds = child_cpu_seconds([sys.executable, "-m", "cdp", "label", *views, "--quiet"])
        rows = np.concatenate([np.load(f"{folder}/{part}/base.npy") for part in ("labeled", "unlabeled")])
    product_seconds, _ = cpu_timed(lambda: bare_product(rows))
    ratio = seconds / (5 * product_seconds)
    print(f"cdp label, {n_images:,} x 5 x 256: {seconds:.1f} CPU s = {ratio:.2f} x five bare full products")
    return {"seconds": seconds, "product_seconds": product_seconds, "to_five_products": ratio}


def child_cpu_seconds(command: list[str]) -> float:
    """CPU seconds of a command, with all processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(name: str, make: Callable[[int, int], Made], n_images: int) -> dict[str, Any]:
    """One exact graph, and the approximate graphs of five models, or of one where exact search is the answer."""
    name = f"{name}, {n_images:,}"
    exact_seconds, _ = cpu_timed(lambda: knn_graph(make(n_images, 0)[0], K, method="exact"))
    print(f"{name:24}{'exact':14}{1:8.3f}{1:8.3f}{exact_seconds:8.1f}{1:10.1%}", flush=True)
    rows = []
    for model in range(N_MODELS):
        vectors, identities = make(n_images, model)
        seconds, graph = cpu_timed(lambda vectors=vectors: knn_graph(vectors, K, "approximate", recall=ASKED))  # type: ignore[misc]
        same = measure_same_identity_recall(Embeddings(vectors), graph, identities, runtime=Runtime())
        rows.append(
            {
                "method": graph.method,
                "recall": graph.recall,
                "same_identity_recall": same,
                "seconds": seconds,
            }
        )
        shown = 1.0 if graph.recall is None else graph.recall
        answer = "approximate" if graph.method == "approximate" else "exact, chosen"
        print(
            f"{name:24}{answer:14}{shown:8.3f}{same:8.3f}{seconds:8.1f}{seconds / exact_seconds:10.1%}",
            flush=True,
        )
        if graph.method == "exact":
            break
    in_all = sum(row["seconds"] for row in rows) / exact_seconds
    print(f"{name}: {len(rows)} graphs in {in_all:.1%} of the CPU time of one exact graph")
    return {"images": n_images, "exact_seconds": exact_seconds, "approximate": rows, "share_in_all": in_all}


def child() -> dict[str, Any]:
    """What the first search of a process takes longer than the second, in CPU seconds."""
    vectors = structured(30_000)[:, :128].copy()

    def search() -> KnnGraph:
        return knn_graph(vectors, K, "approximate", recall=0.9)

    first, graph = cpu_timed(search)
    second, _ = cpu_timed(search)
    return {"seconds": first - second, "method": graph.method}


def cpu_timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds of all threads."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def bare_product(vectors: FloatArray) -> None:
    """All similarities in blocks, each overwritten by the next."""
    block = np.empty((1024, len(vectors)), np.float32)
    for start in range(0, len(vectors), 1024):
        rows = vectors[start : start + 1024]
        np.matmul(rows, vectors.T, out=block[: len(rows)])


def structured(n_images: int, seed: int = 0) -> FloatArray:
    """The vectors of `make_structured`."""
    return make_structured(n_images, seed)[0]


def make_structured(n_images: int, seed: int = 0) -> Made:
    """Sixteen images per identity; half of the variance in three dimensions."""
    generator = np.random.default_rng(seed)
    spread = np.exp(-np.arange(256) / 8).astype(np.float32)
    spread /= np.sqrt(np.square(spread).sum())
    n_identities = n_images // 16 + 1
    centers = generator.standard_normal((n_identities, 256), np.float32) * spread
    vectors = np.repeat(centers, 16, axis=0)[:n_images]
    vectors += 0.25 * spread * generator.standard_normal(vectors.shape, np.float32)
    vectors += 0.02 * generator.standard_normal(vectors.shape, np.float32)
    rotation = np.linalg.qr(generator.standard_normal((256, 256)))[0].astype(np.float32)
    order = generator.permutation(n_images)
    return (vectors @ rotation)[order], order // 16


def make_structureless(n_images: int, seed: int = 0) -> Made:
    """People with 1 to 160 images of varying difficulty, and no structure beyond them."""
    generator = np.random.default_rng(seed)
    sizes = np.clip(generator.lognormal(np.log(16), 0.65, n_images // 8).astype(int), 1, 160)
    identity = np.repeat(np.arange(len(sizes)), sizes)[:n_images]
    centers = generator.standard_normal((len(sizes), 64), np.float32)
    difficulty = generator.gamma(3, 1 / 3, (len(identity), 1)).astype(np.float32)
    vectors = centers[identity] + 1.17 * difficulty * generator.standard_normal(
        (len(identity), 64), np.float32
    )
    mixed = vectors @ generator.standard_normal((64, 256), np.float32)
    order = generator.permutation(len(identity))
    return mixed[order], identity[order]


if __name__ == "__main__":
    from benchmarks.search_constants import measure_constants

    if sys.argv[1:2] != ["constants"]:
        sys.exit("usage: python -m benchmarks.search constants [--quick]")
    measure_constants(quick="--quick" in sys.argv)

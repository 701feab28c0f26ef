"""One k-NN graph of very many images, made like the structured ones of benchmarks/search.py: CPU time, memory, recall.

    python -m benchmarks.large_graph 10000000 --folder /large/disk

Embeddings are a memory-mapped float32 file of 256 dimensions (10 GB for ten million images); the search runs in a process of its own, in a
budget of 4 GB, and asks for a recall of 0.97, for lists of 20. Figures are kept in docs/results/large_graph.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clock import in_own_process
from benchmarks.scale import Meter, log_steps, watching

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "large_graph.json"
K = 20
ASKED = 0.97
MEMORY = "4GB"
_BLOCK_ROWS = 2**16


def measure(*, quick: bool) -> dict[str, Any]:
    """What was measured before, or a small size to see that it runs: a large one takes long."""
    if quick or not RESULTS.exists():
        return measure_size(40_000, Path(tempfile.gettempdir()))
    kept: dict[str, Any] = json.loads(RESULTS.read_text())
    show(kept)
    return kept


def measure_size(n_images: int, folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        write_structured(Path(made) / "vectors.npy", n_images)
        figures = in_own_process("benchmarks.large_graph", folder=made)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    figures |= {"commit": commit, "date": time.strftime("%Y-%m-%d")}
    show(figures)
    return figures


def write_structured(file: Path, n_images: int) -> None:
    """`benchmarks.search.make_structured` for any number of images, block by block; people are in order, as images of an album are."""
    spread = np.exp(-np.arange(256) / 8).astype(np.float32)
    spread /= np.sqrt(np.square(spread).sum())
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((256, 256)))[0].astype(np.float32)
    vectors = np.lib.format.open_memmap(file, "w+", np.float32, (n_images, 256))
    for start in range(0, n_images, _BLOCK_ROWS):
        generator = np.random.default_rng((1, start))
        count = min(_BLOCK_ROWS, n_images - start)
        block = np.repeat(generator.standard_normal((count // 16 + 1, 256), np.float32), 16, axis=0)[:count]
        block += 0.25 * generator.standard_normal(block.shape, np.float32)
        block *= spread
        block += 0.02 * generator.standard_normal(block.shape, np.float32)
        np.matmul(block, rotation, out=vectors[start : start + count])
    vectors.flush()


def child(folder: str) -> dict[str, Any]:
    from cdp.engine import Engine
    from cdp.graph.search import each_knn_graph
    from cdp.scratch import Scratch
    from cdp.types import Embeddings

    meter, begun, clock = Meter("graph"), time.process_time(), time.perf_counter()
    embeddings = Embeddings(np.load(f"{folder}/vectors.npy", mmap_mode="r"))
    scratch = Scratch(Engine(memory_budget=MEMORY).share, Path(folder))
    with watching(meter):
        (graph,) = each_knn_graph(
            [embeddings], K, "approximate", recall=ASKED, scratch=scratch, progress=log_steps()
        )
    seconds = time.process_time() - begun
    return {
        "images": embeddings.n_images,
        "dimensions": embeddings.dimensions,
        "method": graph.method,
        "recall": graph.recall,
        "cpu_seconds": round(seconds, 1),
        "microseconds_per_image": round(seconds / embeddings.n_images * 1e6, 1),
        "wall_seconds": round(time.perf_counter() - clock, 1),
        "peak_anonymous_mb": round(meter.peaks["graph"] / 1000),
    }


def show(figures: dict[str, Any]) -> None:
    print(
        f"{figures['images']:,} images: {figures['cpu_seconds']:,} CPU s, {figures['microseconds_per_image']} µs per image, recall "
        f"{figures['recall']:.3f}, {figures['peak_anonymous_mb']:,} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("n_images", type=int)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for embeddings")
    given = parser.parse_args()
    RESULTS.write_text(json.dumps(measure_size(given.n_images, given.folder), indent=2) + "\n")


if __name__ == "__main__":
    main()

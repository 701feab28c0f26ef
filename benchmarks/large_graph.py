"""One k-NN graph of very many images, with the structure of real embeddings (benchmarks/search.py): CPU time, memory, recall.

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
from benchmarks.data import write_made_up_views
from benchmarks.scale import Meter, log_steps, watching

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "large_graph.json"
K = 20
ASKED = 0.97
MEMORY = "4GB"


def measure(*, quick: bool) -> dict[str, Any]:
    """What was measured before, or a small size to see that it runs: a large one takes long."""
    if quick or not RESULTS.exists():
        return measure_size(40_000, Path(tempfile.gettempdir()))
    kept: dict[str, Any] = json.loads(RESULTS.read_text())
    show(kept)
    return kept


def measure_size(n_images: int, folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        write_made_up_views(Path(made), n_images, n_models=1, labeled=0, structured=True)
        figures = in_own_process("benchmarks.large_graph", folder=made)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    figures |= {"commit": commit, "date": time.strftime("%Y-%m-%d")}
    show(figures)
    return figures


def child(folder: str) -> dict[str, Any]:
    from cdp.engine import Engine
    from cdp.graph.search import each_knn_graph
    from cdp.scratch import Scratch
    from cdp.types import Embeddings

    meter, begun, clock = Meter("graph"), time.process_time(), time.perf_counter()
    embeddings = Embeddings(np.load(f"{folder}/unlabeled/base.npy", mmap_mode="r"))
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

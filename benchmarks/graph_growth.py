"""How the approximate graph of one model grows: operating point, recall and CPU time per image at growing sizes.

The last line says with which power of the number of images CPU time grows from one size to the next, and from the first to the last.

    python -m benchmarks.graph_growth 300000 1000000 3000000 --folder /large/disk

Structured made-up embeddings of 256 dimensions, k = 20, recall 0.97, one thread. The memory limit leaves lists in memory: otherwise the CPU time of
large sizes is that of temporary files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.data import write_made_up_views
from cdp.data.views import read_views
from cdp.knn import ivf_search
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings


def measure(*, quick: bool) -> dict[str, Any]:
    """Figures by number of images."""
    return {
        str(size): measure_size(size, Path(tempfile.gettempdir()))
        for size in ((40_000,) if quick else (300_000,))
    }


def measure_size(n_images: int, folder: Path, memory_budget: str = "10GB") -> dict[str, Any]:
    """Search the graph of so many images."""
    with tempfile.TemporaryDirectory(prefix="cdp-growth-", dir=folder) as home:
        write_made_up_views(Path(home), n_images, n_models=1, structured=True, labeled=0.01)
        embeddings = read_views(Path(home) / "unlabeled").base
        ivf_search.approximate_graph(
            Embeddings(embeddings.source[:31_000]), 10, 0.97, runtime=Runtime.of(threads=1)
        )
        points = []
        choose = ivf_search.choose_operating_point

        def note(*given: Any, **named: Any) -> Any:
            points.append(choose(*given, **named))
            return points[-1]

        begun = time.process_time()
        with mock.patch.object(ivf_search, "choose_operating_point", note):
            graph = ivf_search.approximate_graph(
                embeddings,
                20,
                0.97,
                runtime=Runtime.of(threads=1, folder=folder, memory_budget=memory_budget),
            )
        spent = time.process_time() - begun
    (point,) = points
    figures = {
        "images": embeddings.n_images,
        "nlist": None if point is None else len(point.centroids),
        "nprobe": None if point is None else point.nprobe,
        "recall": graph.recall,
        "microseconds": round(1e6 * spent / embeddings.n_images, 1),
    }
    print(f"{embeddings.n_images:,}: {figures}", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("n_images", type=int, nargs="+")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--memory-budget", default="10GB")
    given = parser.parse_args()
    measured = [measure_size(n_images, given.folder, given.memory_budget) for n_images in given.n_images]
    if len(measured) > 1:
        steps = [*pairwise(measured), (measured[0], measured[-1])]
        print("power:", ", ".join(f"{power(*step):.2f}" for step in steps))


def power(few: dict[str, Any], many: dict[str, Any]) -> float:
    """Return the power of the number of images that CPU time grows with."""
    return 1 + log(many["microseconds"] / few["microseconds"]) / log(many["images"] / few["images"])


if __name__ == "__main__":
    main()

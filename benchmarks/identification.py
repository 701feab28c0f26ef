"""Identification as a ratio to the bare blocked matrix product: 3,520 probes, 1,000,000 distractors, 256 dimensions.

Mark: at most 1.5 times the product, and memory that does not grow with the number of distractors (they lie in a file).
The bare product multiplies the same unit rows in the same tiles on the same threads and throws the tiles away.

    python -m benchmarks.identification --distractors 100000
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clock import in_own_process, timed

PEOPLE, PER_PERSON, DIMENSIONS = 80, 44, 256
SLICE = 100_000


def measure(*, quick: bool) -> dict[str, Any]:
    return report(10_000 if quick else 1_000_000)


def report(n_distractors: int) -> dict[str, Any]:
    figures = {}
    for kind in ("easy", "hard"):
        found = in_own_process("benchmarks.identification", n_distractors=n_distractors, kind=kind)
        print(
            f"{kind}: {n_distractors:,} distractors, rank-1 {100 * found['rank1']:.1f} %: counted in "
            f"{found['seconds']:.1f} s, bare product {found['product_seconds']:.1f} s, ratio {found['ratio']:.2f}, "
            f"in processor seconds {found['processor_ratio']:.2f} (mark: 1.5); memory used {found['extra_mb']} MB"
        )
        figures[kind] = found
    return figures


def child(n_distractors: int, kind: str) -> dict[str, Any]:
    from cdp.evaluate.identification import mate_pairs
    from cdp.evaluate.rank_kernels import count_better
    from cdp.types import Embeddings

    with tempfile.TemporaryDirectory() as folder:
        probes, identities = _write(Path(folder) / "distractors.npy", n_distractors, kind)
        distractors = Embeddings(np.load(Path(folder) / "distractors.npy", mmap_mode="r"))
        embedded, pairs = Embeddings(probes), mate_pairs(identities)
        count_better(pairs, embedded, distractors, [np.arange(1000)])
        before = peak = _own_memory()

        def progress(_step: str, _done: int, _total: int) -> None:
            nonlocal peak
            peak = max(peak, _own_memory())

        # In turns, slice by slice, so that what else the machine does slows both alike; the processor's own
        # seconds are the fairer measure where it does much.
        counted, product = np.zeros(2), np.zeros(2)
        first = 0
        for start in range(0, n_distractors, SLICE):
            rows = np.arange(start, min(start + SLICE, n_distractors))
            seconds, n_better = _wall_and_processor(
                lambda rows=rows: count_better(pairs, embedded, distractors, [rows], progress=progress)
            )
            counted += seconds
            first = first + n_better[0]
            product += _wall_and_processor(
                lambda rows=rows: _bare_product(embedded.vectors, distractors, rows)
            )[0]
    return {
        "rank1": float((first == 0).mean()),
        "pairs": len(pairs),
        "seconds": round(float(counted[0]), 2),
        "product_seconds": round(float(product[0]), 2),
        "ratio": round(float(counted[0] / product[0]), 3),
        "processor_ratio": round(float(counted[1] / product[1]), 3),
        "extra_mb": round((peak - before) / 1e6),
    }


def _wall_and_processor(work: Callable[[], Any]) -> tuple[Any, Any]:
    processor = time.process_time()
    wall, result = timed(work)
    return np.array([wall, time.process_time() - processor]), result


def _own_memory() -> int:
    """Bytes of memory this process holds beside mapped files; Linux tells, elsewhere 0."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def _bare_product(vectors: Any, distractors: Any, rows: Any) -> None:
    from cdp.blocks import spans
    from cdp.evaluate.rank_kernels import DISTRACTOR_ROWS, PROBE_ROWS
    from cdp.runtime.parallel import map_blocks

    def multiply(span: tuple[int, int]) -> None:
        gallery = distractors.source[rows[0] + span[0] : rows[0] + span[1]]
        tile = np.empty((PROBE_ROWS, len(gallery)), np.float32)
        for first, last in spans(len(vectors), PROBE_ROWS):
            np.matmul(vectors[first:last], gallery.T, out=tile[: last - first])

    for _ in map_blocks(multiply, spans(len(rows), DISTRACTOR_ROWS)):
        pass


def _write(file: Path, n_distractors: int, kind: str) -> tuple[Any, Any]:
    """Distractors written block by block; hard ones live in 24 dimensions, so most mates are overtaken."""
    generator = np.random.default_rng(0)
    inner = DIMENSIONS if kind == "easy" else 24
    spread = generator.normal(size=(inner, DIMENSIONS)) if kind == "hard" else None

    def draw(n_rows: int, centers: Any = 0.0) -> Any:
        rows = generator.normal(size=(n_rows, inner)) + centers
        placed = rows if spread is None else rows @ spread
        return (placed / np.linalg.norm(placed, axis=1, keepdims=True)).astype(np.float32)

    identities = np.repeat(np.arange(PEOPLE), PER_PERSON)
    probes = draw(len(identities), generator.normal(size=(PEOPLE, inner))[identities])
    array = np.lib.format.open_memmap(file, "w+", np.float32, (n_distractors, DIMENSIONS))
    for start in range(0, n_distractors, 10_000):
        array[start : start + 10_000] = draw(min(10_000, n_distractors - start))
    array.flush()
    return probes, identities


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--distractors", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    settings = parser.parse_args()
    figures = report(settings.distractors)
    if settings.out:
        settings.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

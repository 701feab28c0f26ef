"""Bytes per pair of Algorithm 1 and of average linkage, each in a fresh process: up to which size does one node's memory serve?

`handing_out` is what the process that was started does by itself where components are tasks: join the forests of shards, and lay
pairs out batch by batch; `reducing` is a shard's spanning forest, a task.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdp.consensus.sharded_components import Batch
    from cdp.scratch import Scratch


def measure(*, quick: bool = False) -> dict[str, object]:
    """Peak memory above the pairs themselves, and seconds, per pair."""
    n_images = 20_000 if quick else 1_000_000
    figures: dict[str, object] = {}
    for way in ("components", "average", "handing_out", "reducing"):
        command = [sys.executable, "-m", "benchmarks.grouping_memory", way, str(n_images)]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(
            f"{way:10} {answer['pairs']:,} pairs of {n_images:,} images: {answer['bytes']:.0f} bytes per pair above the "
            f"12 of the pairs, {answer['microseconds']:.2f} µs of CPU time per pair"
        )
        figures[way] = answer
    return figures


def _group(way: str, n_images: int) -> dict[str, float]:
    import numpy as np

    from cdp.consensus.agglomeration import agglomerate
    from cdp.consensus.propagation import propagate
    from cdp.consensus.sharded_components import Batch, _reduce_shard, group_batches
    from cdp.types import ConsensusGraph

    def make(size: int) -> ConsensusGraph:
        """Groups of about 20 with 10 pairs per image, and a tenth as many pairs between any two images."""
        generator = np.random.default_rng(0)
        one = generator.integers(0, size, 11 * size)
        near = one // 20 * 20 + generator.integers(0, 20, len(one))
        other = np.where(
            np.arange(len(one)) < 10 * size, np.minimum(near, size - 1), generator.permutation(one)
        )
        key = np.unique(np.minimum(one, other) * size + np.maximum(one, other))
        ids = np.stack([key // size, key % size], axis=1).astype(np.int32)
        ids = ids[ids[:, 0] != ids[:, 1]]
        inside = ids[:, 0] // 20 == ids[:, 1] // 20
        doubt = np.where(inside, 0.4, 0.9) * generator.random(len(ids)) + np.where(inside, 0.0, 0.1)
        return ConsensusGraph(ids, doubt.astype(np.float32), size)

    def run(graph: ConsensusGraph) -> object:
        if way == "components":
            return propagate(graph)
        if way == "average":
            return agglomerate(graph, 20)
        if way == "reducing":
            return _reduce_shard(None, (graph.ids, graph.doubt < 0.7))
        pairs = Batch(None, graph.ids, (graph.doubt,), graph.n_images)
        batches = group_batches(
            _look_at, None, pairs, graph.doubt < 0.7, most_pairs=max(1000, len(graph) // 8)
        )
        return sum(n_pairs for _, n_pairs in batches)

    run(make(2_000))
    graph = make(n_images)
    ctypes.CDLL(None).malloc_trim(
        0
    )  # else memory that making the pairs left behind is used again, and not counted
    before = _memory("VmRSS")
    _forget_peak()
    start = time.process_time()
    run(graph)
    spent = time.process_time() - start
    n_pairs = len(graph)
    return {
        "pairs": n_pairs,
        "bytes": (_memory("VmHWM") - before) / n_pairs,
        "microseconds": spent / n_pairs * 1e6,
    }


def _look_at(_: None, batch: Batch, scratch: Scratch) -> int:  # noqa: ARG001
    return len(batch.ids)


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _memory(field: str) -> int:
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))


if __name__ == "__main__":
    print(json.dumps(_group(sys.argv[1], int(sys.argv[2]))))

"""Bytes per pair of Algorithm 1 and of average linkage, each in a fresh process: up to which size does one node's memory serve?

`tuning` is average linkage and its cuts at all thresholds that are tried, down to where nearly all images are connected, with
6 GB allowed; `one_stage` and `one_batch`, which have to be asked for, are the same without stages and without batches.
`handing_out` is the work of the main process where components are tasks: unite the forests of shards, and lay out pairs batch by
batch; `reducing` is a shard's spanning forest, a task.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.scale import Meter, watching

if TYPE_CHECKING:
    from cdp.grouping.components import Batch
    from cdp.runtime.spill import SpillFiles


def measure(*, quick: bool = False) -> dict[str, object]:
    """Peak memory above the pairs themselves, and seconds, per pair."""
    n_images = 20_000 if quick else 1_000_000
    figures: dict[str, object] = {}
    for way in ("components", "average", "tuning", "handing_out", "reducing"):
        command = [sys.executable, "-m", "benchmarks.grouping_memory", way, str(n_images)]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(
            f"{way:11} {answer['pairs']:,} pairs of {n_images:,} images: {answer['bytes']:.0f} bytes of memory per pair above "
            f"the 12 of the pairs, {answer['microseconds']:.2f} µs of CPU time per pair"
        )
        figures[way] = answer
    return figures


def _group(way: str, n_images: int) -> dict[str, float]:
    import numpy as np

    from cdp.grouping import average_linkage
    from cdp.grouping.average_linkage import agglomerate, build_dendrogram
    from cdp.grouping.components import Batch, _reduce_shard, group_batches
    from cdp.grouping.propagation import propagate
    from cdp.labeling.tuning import THRESHOLDS
    from cdp.runtime.runtime import Runtime
    from cdp.types import ConsensusGraph

    def make(size: int) -> ConsensusGraph:
        """Groups of about 20 with 7 pairs per image, and 4 with any other image, of a probability of 0.06 on average.

        So much like the pairs of a million made-up embeddings: at a bar of 0.5 components are groups, at 0.1 all is one.
        """
        generator = np.random.default_rng(0)
        one = generator.integers(0, size, 11 * size)
        inside = np.arange(len(one)) < 7 * size
        near = np.minimum(one // 20 * 20 + generator.integers(0, 20, len(one)), size - 1)
        other = np.where(inside, near, generator.integers(0, size, len(one)))
        key, first = np.unique(np.minimum(one, other) * size + np.maximum(one, other), return_index=True)
        ids = np.stack([key // size, key % size], axis=1).astype(np.int32)
        chance = generator.random(len(ids))
        doubt = np.where(inside[first], 0.4 * chance, np.maximum(0.99 + 0.05 * np.log1p(-chance), 0))
        differ = ids[:, 0] != ids[:, 1]
        return ConsensusGraph(ids[differ], doubt[differ].astype(np.float32), size)

    def run(graph: ConsensusGraph) -> object:
        if way == "components":
            return propagate(graph)
        if way == "average":
            return agglomerate(graph, 20)
        if way in ("tuning", "one_stage", "one_batch"):
            runtime = Runtime.of(memory_budget="6GB")
            bars = THRESHOLDS["mean probability"]
            dendrogram = build_dendrogram(graph, 20, bars[0], runtime=runtime)
            return [dendrogram.cut(bar).n_identities for bar in bars]
        if way == "reducing":
            return _reduce_shard(None, (graph.ids, graph.doubt < 0.7))
        pairs = Batch(None, graph.ids, (graph.doubt,), graph.n_images)
        batches = group_batches(
            _look_at, None, pairs, graph.doubt < 0.7, runtime=Runtime(), most_pairs=max(1000, len(graph) // 8)
        )
        return sum(n_pairs for _, n_pairs in batches)

    if way == "one_stage":
        average_linkage._STAGE_ENDS = ()
    if way == "one_batch":
        average_linkage._PAIRS_PER_BATCH = 2**40
    run(make(2_000))
    graph = make(n_images)
    # Else memory that making the pairs left behind is used again, and not counted.
    ctypes.CDLL(None).malloc_trim(0)
    before, during = Meter("grouping"), Meter("grouping")
    before.look()
    start = time.process_time()
    with watching(during):
        run(graph)
    spent = time.process_time() - start
    during.look()
    n_pairs = len(graph)
    return {
        "pairs": n_pairs,
        "bytes": 1024 * (during.peaks["grouping"] - before.peaks["grouping"]) / n_pairs,
        "microseconds": spent / n_pairs * 1e6,
    }


def _look_at(_: None, batch: Batch, spill: SpillFiles) -> int:  # noqa: ARG001
    return len(batch.ids)


if __name__ == "__main__":
    print(json.dumps(_group(sys.argv[1], int(sys.argv[2]))))

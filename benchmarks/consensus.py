"""Everything after the k-NN graphs beside the time of the exact ones: about 50,000 images, 5 models, 256 dimensions.

`paper`, a trained mediator at hand, as a share of all five graphs; mark: at most 5 %. `best`, learning and tuning included, in CPU time as
a multiple of one graph; mark: at most 2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.clock import in_own_process, timed


def measure(*, quick: bool) -> dict[str, Any]:
    figures = in_own_process("benchmarks.consensus", preset="paper", size=4000 if quick else 50_000)
    after = figures["after_seconds"]
    print(f"exact k-NN, five graphs  {figures['knn_seconds']:8.2f} s")
    _print_steps(figures["steps"])
    print(
        f"all after the graphs     {after:8.2f} s = {100 * figures['share']:.1f} % of the k-NN time (mark: 5 %)"
    )
    print(f"peak memory {figures['peak_mb']} MB, {figures['pairs']:,} candidate pairs")
    best = in_own_process("benchmarks.consensus", preset="best", size=250 if quick else 2700)
    print(f"best: {best['n_images']:,} images, {best['n_known']:,} of them known; CPU time, one thread")
    print(f"one exact graph          {best['graph_cpu_seconds']:8.2f} s")
    _print_steps(best["steps"])
    print(
        f"all after the graphs     {best['after_cpu_seconds']:8.2f} s = {best['ratio']:.2f} x one graph (mark: 2); F {best['f']:.3f}"
    )
    return {**figures, "best": best}


def _print_steps(steps: dict[str, float]) -> None:
    for step, seconds in steps.items():
        print(f"  {step:22s} {seconds:8.2f} s")


def child(preset: str, size: int) -> dict[str, Any]:
    return _paper(size) if preset == "paper" else _best(size)


def _paper(n_images: int) -> dict[str, Any]:
    from cdp import CDP, candidate_pairs, knn_graph
    from cdp_lab.synthetic import synthetic_views

    split = synthetic_views(n_images // 12, 12, labeled=0.08, dimensions=256, members=4)
    views = split.unlabeled.take(slice(0, n_images))
    model = CDP("paper").fit(split.labeled)
    model.predict(views.take(slice(0, 500)))  # compile
    knn_seconds, graphs = timed(lambda: [knn_graph(view, 20, method="exact") for view in views])
    after, _ = timed(lambda: model.predict(views, graphs=graphs))
    seconds = model.labeling_.seconds
    return {
        "n_images": views.n_images,
        "pairs": len(candidate_pairs(graphs[0])),
        "knn_seconds": knn_seconds,
        "steps": {"pairs, opinions, scores": seconds["consensus"], "propagation": seconds["groups"]},
        "after_seconds": after,
        "share": after / knn_seconds,
    }


def _best(n_people: int) -> dict[str, Any]:
    """CPU time of `best` on a made-up crowd; known images are put among the others, so the graphs are of both."""
    from benchmarks.presets import made_up_crowd
    from cdp import measure_labels
    from cdp.labeling.pipeline import label
    from cdp.runtime.runtime import Runtime
    from cdp.runtime.settings import RuntimeSettings
    from cdp.scoring.settings import ConsensusSettings

    class CpuRuntime(Runtime):
        @contextmanager
        def step(self, name: str) -> Iterator[None]:
            start = time.process_time()
            yield
            self.timings[name] = self.timings.get(name, 0.0) + time.process_time() - start

    settings, engine = ConsensusSettings.of(method="exact"), RuntimeSettings(threads=1)
    known, unlabeled = made_up_crowd(60, 0)
    label(unlabeled, settings, labeled=[known], runtime=Runtime(engine))  # compile
    known, unlabeled = made_up_crowd(n_people, 0)
    work = CpuRuntime(engine)
    start = time.process_time()
    found = label(unlabeled, settings, labeled=[known], runtime=work)
    whole = time.process_time() - start
    graphs = work.timings.pop("graphs")
    one, after = graphs / len(unlabeled), whole - graphs
    assert unlabeled.identities is not None
    return {
        "n_images": known.n_images + unlabeled.n_images,
        "n_known": known.n_images,
        "graph_cpu_seconds": one,
        "steps": work.timings | {"all else": after - sum(work.timings.values())},
        "after_cpu_seconds": after,
        "ratio": after / one,
        "f": measure_labels(found.labels, unlabeled.identities).discards_kept.pairwise.f,
    }

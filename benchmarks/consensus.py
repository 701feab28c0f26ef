"""Everything after the k-NN graphs as a share of the exact k-NN time: 50,000 images, 5 models, 256 dimensions.

Mark: at most 5 %.
"""

from __future__ import annotations

from typing import Any

from benchmarks.clock import in_own_process


def measure(*, quick: bool) -> dict[str, Any]:
    figures = in_own_process("benchmarks.consensus", n_images=4000 if quick else 50_000)
    after = figures["after_seconds"]
    print(f"exact k-NN, five graphs  {figures['knn_seconds']:8.2f} s")
    for step, seconds in figures["steps"].items():
        print(f"  {step:22s} {seconds:8.2f} s")
    print(
        f"all after the graphs     {after:8.2f} s = {100 * figures['share']:.1f} % of the k-NN time (mark: 5 %)"
    )
    print(f"peak memory {figures['peak_mb']} MB, {figures['pairs']:,} candidate pairs")
    return figures


def child(n_images: int) -> dict[str, Any]:
    from benchmarks.clock import timed
    from cdp import CDP, candidate_pairs, knn_graph
    from cdp.lab.synthetic import synthetic_views

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

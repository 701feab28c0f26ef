"""Why the best threshold of openface on LFW is none to want: one person has 530 of 13,233 images and more than half of all pairs of one identity.

F, precision and recall over the threshold, with the largest groups: of all images, with and without a limit to the size of groups; without this person; and with
50 images of everybody at most.

    python -m benchmarks one_person --out docs/results/one_person.json
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import data_folder
from benchmarks.unsupervised import at_most, score_without_labels
from cdp import Views, measure_labels
from cdp.grouping.group import group, pairs_at
from cdp.labeling.unsupervised_threshold import estimate_threshold
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.zscore import ZScoredPairs

THRESHOLDS = (1.0, 1.3, 1.4, 1.6, 2.0, 2.5, 2.8, 3.1, 3.4, 3.7)


def measure(*, quick: bool) -> dict[str, Any]:
    folder = data_folder("lfw")
    if folder is None or quick:
        print("skipped: it needs data/lfw (docs/data.md), and minutes")
        return {"skipped": True}
    vectors, identities = np.load(folder / "openface.npy"), np.load(folder / "identities.npy")
    sizes = np.bincount(identities)
    largest = int(sizes.argmax())
    print(
        f"the largest person has {sizes.max()} images and {(sizes * (sizes - 1.0)).max() / (sizes * (sizes - 1.0)).sum():.1%} of the true pairs"
    )
    every = np.arange(len(identities))
    figures: dict[str, Any] = {}
    for name, rows, limit in (
        ("as it is", every, 600),
        ("no limit", every, len(every)),
        ("without the largest person", np.flatnonzero(identities != largest), 600),
        ("50 images each", at_most(identities, 50), 600),
    ):
        figures[name] = walk(Views(vectors[rows], identities=identities[rows]), limit, largest, name)
    return figures


def walk(views: Views, limit: int, largest: int, name: str) -> dict[str, Any]:
    """Figures at every threshold, and at the chosen one."""
    assert views.identities is not None
    identities = views.identities
    settings = ConsensusSettings.of(mediator="similarity", method="exact", max_cluster_size=limit)
    work, hidden = Runtime(RuntimeSettings(threads=1)), Views(views.base)
    whole = score_without_labels(hidden, settings, work)
    scored = whole.scored
    assert isinstance(scored, ZScoredPairs)
    chosen = estimate_threshold(hidden, whole, settings, runtime=work).chosen
    rows: dict[str, Any] = {"chosen": chosen}
    for threshold in sorted({*THRESHOLDS, chosen}):
        labels = group(pairs_at(scored, settings, threshold), settings, threshold)
        kept = measure_labels(labels, identities).discards_kept
        found = labels.labels[labels.labels >= 0]
        groups = np.bincount(found) if len(found) else np.zeros(1, np.int64)
        order = np.argsort(-groups, kind="stable")[:3]
        theirs = [int((identities[labels.labels == one] == largest).sum()) for one in order.tolist()]
        rows[f"{threshold:g}"] = row = {
            "f": kept.pairwise.f,
            "precision": kept.pairwise.precision,
            "recall": kept.pairwise.recall,
            "bcubed_f": kept.bcubed.f,
            "largest_groups": groups[order].tolist(),
            "of_the_largest_person": theirs,
        }
        print(
            f"{name:28s} {threshold:.2f}{' chosen' if threshold == chosen else ''}: "
            + ", ".join(
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
                for key, value in row.items()
            ),
            flush=True,
        )
    return rows

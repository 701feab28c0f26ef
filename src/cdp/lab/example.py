"""`cdp example`: made-up embeddings labeled four ways, to compare."""

from __future__ import annotations

import numpy as np

from cdp.evaluate.label_figures import measure_labels
from cdp.lab.synthetic import SyntheticSplit
from cdp.labeling.estimator import CDP
from cdp.progress import Progress, no_progress
from cdp.types import Views
from cdp.types.run_record import TrueFigures


def compare_ways(
    split: SyntheticSplit, *, seed: int = 0, progress: Progress = no_progress
) -> list[tuple[str, TrueFigures]]:
    """The name of every way and its figures; the last one is the default."""
    alone = _best_similarity(split.labeled)
    ways = {
        f"base alone, > {alone:.2f}": CDP(
            "paper", mediator="vote", quorum=0, vote_threshold=alone, seed=seed
        ),
        "unanimous vote": CDP("paper", mediator="vote", seed=seed),
        "mediator, as in the paper": CDP("paper", seed=seed),
        "mediator, preset best": CDP(seed=seed),
    }
    rows = []
    for name, model in ways.items():
        labels = model.fit(split.labeled, progress=progress).predict(split.unlabeled, progress=progress)
        assert split.unlabeled.identities is not None
        rows.append((name, measure_labels(labels, split.unlabeled.identities)))
    return rows


def _best_similarity(labeled: Views) -> float:
    """The similarity threshold of the base alone with the best pairwise F on the labeled part."""
    alone = Views(labeled.base, identities=labeled.identities)

    def quality(threshold: float) -> float:
        labels = CDP("paper", mediator="vote", vote_threshold=threshold).predict(alone)
        assert alone.identities is not None
        return measure_labels(labels, alone.identities).discards_kept.pairwise.f or 0.0

    return float(max(np.arange(0.3, 0.96, 0.05), key=quality))

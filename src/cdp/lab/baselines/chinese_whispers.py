"""Chinese whispers (Biemann, 2006) on the k-NN graph above a similarity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.kernels import kernel
from cdp.lab.baselines.baseline import Baseline, cosine_setting, labels_of
from cdp.lab.baselines.links import links_of
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray


@dataclass(frozen=True)
class ChineseWhispers(Baseline):
    """Every image in turn takes the group that its neighbors favor, weighted by similarity.

    Images are visited in a random order, a new one in every round; of groups that are favored equally the one
    with the smallest number wins. The order is drawn by row number: reordered images may be grouped otherwise.
    """

    name = "chinese_whispers"
    similarity: float = cosine_setting("Only links at least this similar count.")
    rounds: int = setting(20, "Most rounds; it ends when no image changes its group.", low=1)
    seed: int = setting(0, "Seed of the orders.")

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """The groups after the last round."""
        links = links_of(self.graph_of(embeddings, graph), self.similarity)
        matrix = links.rows()
        groups = np.arange(links.n_images)
        weights = np.zeros(links.n_images)
        generator = np.random.default_rng(self.seed)
        for _ in range(self.rounds):
            order = generator.permutation(links.n_images)
            if not _whisper(order, matrix.indptr, matrix.indices, matrix.data, groups, weights):
                break
        return labels_of(groups)


@kernel
def _whisper(
    order: AnyArray,
    starts: AnyArray,
    others: AnyArray,
    similarity: AnyArray,
    groups: AnyArray,
    weights: AnyArray,
) -> int:
    """One round, in place; how many images changed their group. `weights` is all zeros, before and after."""
    changed = 0
    for image in order:
        best, best_weight = groups[image], -np.inf
        for entry in range(starts[image], starts[image + 1]):
            weights[groups[others[entry]]] += similarity[entry]
        for entry in range(starts[image], starts[image + 1]):
            group = groups[others[entry]]
            if weights[group] > best_weight or (weights[group] == best_weight and group < best):
                best, best_weight = group, weights[group]
        for entry in range(starts[image], starts[image + 1]):
            weights[groups[others[entry]]] = 0
        if best != groups[image]:
            groups[image] = best
            changed += 1
    return changed

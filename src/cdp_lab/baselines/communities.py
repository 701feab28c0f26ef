"""Communities of the k-NN graph: Chinese whispers, Leiden and Infomap.

leidenalg, igraph and infomap are copyleft and used only if they are installed and asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.errors import MissingExtraError, install_command
from cdp.runtime.kernels import kernel
from cdp.settings import setting
from cdp.types import Embeddings, KnnGraph, Labels
from cdp.types.arrays import AnyArray, LongArray
from cdp_lab.baselines.baseline import Baseline, cosine_setting, labels_of, links_of


@dataclass(frozen=True)
class ChineseWhispers(Baseline):
    """Biemann (2006): every image in turn takes the group that its neighbors favor, weighted by similarity.

    Images are visited in a random order, a new one in every round; of groups that are favored equally the one
    with the smallest number wins. The order is drawn by row number: reordered images may be grouped
    otherwise.
    """

    name = "chinese_whispers"
    similarity: float = cosine_setting("Only links at least this similar count.")
    rounds: int = setting(20, "Most rounds; it ends when no image changes its group.", low=1)
    seed: int = setting(0, "Seed of the orders.")

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Return the groups after the last round."""
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


@dataclass(frozen=True)
class Leiden(Baseline):
    """Community detection with the constant Potts model.

    Not modularity: its resolution depends on the size of the graph, so a tuned value would not transfer. Here
    two groups are not merged if the mean weight between them (no link = 0) is below the resolution. An image
    has k links however large its identity is, so a resolution alone favors groups of one size; weak links are
    cut first.
    """

    name = "leiden"
    similarity: float = cosine_setting("Only links at least this similar are seen, and only positive ones.")
    resolution: float = setting(0.02, "The higher, the smaller the groups.", low=0)
    rounds: int = setting(2, "Iterations; -1 = until nothing improves.", low=-1)
    seed: int = setting(0, "Seed of everything random.")

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Return the communities."""
        try:
            import igraph
            import leidenalg
        except ImportError:
            raise MissingExtraError(
                f"Leiden needs leidenalg and igraph; install them with {install_command('leiden')}.",
                code="leiden-missing",
                extra="leiden",
            ) from None
        links = links_of(self.graph_of(embeddings, graph), max(0.0, self.similarity))
        network = igraph.Graph(links.n_images, np.column_stack([links.first, links.second]))
        partition = leidenalg.find_partition(
            network,
            leidenalg.CPMVertexPartition,
            weights=links.similarity.astype(np.float64).tolist(),
            resolution_parameter=self.resolution,
            n_iterations=self.rounds,
            seed=self.seed,
        )
        return labels_of(np.asarray(partition.membership))


@dataclass(frozen=True)
class Infomap(Baseline):
    """Community detection by the map equation, two levels, undirected, links weighted by similarity."""

    name = "infomap"
    similarity: float = cosine_setting("Only links at least this similar are seen.")
    seed: int = setting(0, "Seed of everything random.")

    def label(self, embeddings: Embeddings, graph: KnnGraph | None = None) -> Labels:
        """Return the modules; images without positive links are discarded."""
        links = links_of(self.graph_of(embeddings, graph), self.similarity)
        positive = links.similarity > 0
        first, second, similarity = links.first[positive], links.second[positive], links.similarity[positive]
        return labels_of(map_equation(first, second, similarity, links.n_images, self.seed))


def map_equation(
    first: AnyArray,
    second: AnyArray,
    weight: AnyArray,
    n_images: int,
    seed: int = 0,
    *,
    directed: bool = False,
) -> LongArray:
    """Find the modules of weighted links by Infomap, two levels.

    Returns:
        int64 (n,), -1 for images without links.
    """
    try:
        import infomap
    except ImportError:
        raise MissingExtraError(
            f"Infomap needs infomap; install it with {install_command('infomap')}.",
            code="infomap-missing",
            extra="infomap",
        ) from None
    groups = np.full(n_images, -1, np.int64)
    if not len(first):
        return groups
    # Infomap's seed starts at 1.
    network = infomap.Infomap(silent=True, two_level=True, num_trials=1, seed=seed + 1, directed=directed)
    network.add_links(zip(first.tolist(), second.tolist(), weight.tolist(), strict=True))
    for image, module in network.run().modules().items():
        groups[image] = module
    return groups

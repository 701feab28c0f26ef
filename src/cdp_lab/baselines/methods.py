"""All baselines by name, with the grid each is tuned over, and the tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_among_others, measure_labels
from cdp.types import Embeddings, KnnGraph
from cdp_lab.baselines.baseline import Baseline
from cdp_lab.baselines.communities import ChineseWhispers, Infomap, Leiden
from cdp_lab.baselines.early_stopping import EarlyStopping
from cdp_lab.baselines.finch import Finch
from cdp_lab.baselines.hierarchical import Hierarchical
from cdp_lab.baselines.rank_order import RankOrder
from cdp_lab.baselines.scikit_learn import DBSCAN, HDBSCAN, KMeans, MiniBatchKMeans

Grid = Mapping[str, tuple[float | int | None, ...]]


@dataclass(frozen=True)
class Registered:
    """A baseline as it stands in `BASELINES`.

    Attributes:
        make: the class, or the class with the settings that make it this baseline.
        grid: setting -> the values to try.
        extra: the optional, copyleft part of the install it needs; such a baseline runs only if it is named.
        patience: tuning ends after this number of values in a row that are worse than the best; for grids
            along which F rises and falls once, the cheap values first. None = every value is tried.
    """

    make: Callable[..., Baseline]
    grid: Grid
    extra: str | None = None
    patience: int | None = None


_SIMILARITIES = tuple(round(0.02 * step, 2) for step in range(5, 50))
_PER_CLUSTER = (256.0, 128.0, 64.0, 32.0, 24.0, 16.0, 12.0, 8.0, 6.0, 4.0, 3.0, 2.5, 2.0, 1.75, 1.5, 1.25)
_D_M = (*(round(0.1 * step, 1) for step in range(1, 31)), 4.0, 5.0, 7.0, 10.0)
_COARSE = tuple(round(0.04 * step + 0.1, 2) for step in range(1, 22))
_RESOLUTIONS = (0.005, 0.05)
_LINK_PROBABILITIES = tuple(round(0.04 * step, 2) for step in range(1, 25))

BASELINES: Mapping[str, Registered] = MappingProxyType(
    {
        "hierarchical_average": Registered(Hierarchical, {"similarity": _SIMILARITIES}),
        "hierarchical_single": Registered(
            partial(Hierarchical, linkage="single"), {"similarity": _SIMILARITIES}
        ),
        # Its time grows with the number of clusters, and the best numbers are far below those that take long.
        "kmeans": Registered(KMeans, {"images_per_cluster": _PER_CLUSTER}, patience=3),
        "minibatch_kmeans": Registered(MiniBatchKMeans, {"images_per_cluster": _PER_CLUSTER}, patience=3),
        # With 2 it is single linkage on the graph, as often published; 3 and 4 make it what it is known for.
        "dbscan": Registered(DBSCAN, {"min_samples": (2, 3, 4), "similarity": _SIMILARITIES}),
        "hdbscan": Registered(HDBSCAN, {"min_cluster_size": (2, 3, 4, 5, 7, 10, 15)}),
        "rank_order": Registered(RankOrder, {"threshold": _D_M}),
        "chinese_whispers": Registered(ChineseWhispers, {"similarity": _SIMILARITIES}),
        "finch": Registered(Finch, {"level": (0, 1, 2, 3, 4, 5)}),
        "leiden": Registered(Leiden, {"resolution": _RESOLUTIONS, "similarity": _COARSE}, extra="leiden"),
        "infomap": Registered(Infomap, {"similarity": _SIMILARITIES}, extra="infomap"),
        "fc_es": Registered(EarlyStopping, {"probability": _LINK_PROBABILITIES}, extra="infomap"),
    }
)


def make_baselines(names: Sequence[str] | None = None) -> list[Baseline]:
    """Baselines by name, untuned; None = all that need no extra."""
    if names is None:
        names = [name for name, registered in BASELINES.items() if registered.extra is None]
    if not names:
        raise InputError(f"No method is named; choose from {', '.join(BASELINES)}.", code="baselines-missing")
    for name in names:
        if name not in BASELINES:
            raise InputError(
                f"No baseline is called {name!r}; choose from {', '.join(BASELINES)}.",
                code="baseline-unknown",
                baseline=name,
            )
    return [BASELINES[name].make() for name in names]


def tune(
    baseline: Baseline,
    embeddings: Embeddings,
    graph: KnnGraph | None,
    identities: npt.ArrayLike,
    grid: Grid | None = None,
    *,
    among_others: bool = False,
) -> Baseline:
    """Tune a baseline over its grid by pairwise F, with discards as groups of one.

    Of equally good settings the first in the grid is taken, so the result is always the same. A method with a
    `patience` is not asked for the rest of its own grid once `patience` values were worse.

    Args:
        baseline: what is not in the grid stays as it is here.
        embeddings: the validation part.
        graph: its k-NN graph, with the same k as will be used later.
        identities: its true identities; negative = unknown, not counted.
        grid: setting -> the values to try; None = the grid in `BASELINES`.
        among_others: images of unknown identity are other people, and count where they end in the group of a
            labeled one.
    """
    tried = grid_points(BASELINES[baseline.name].grid if grid is None else grid)
    if not tried:
        raise InputError(
            f"{baseline.name}: the grid holds no values to try.",
            code="baseline-grid-empty",
            baseline=baseline.name,
        )
    truth = np.asarray(identities)
    patience = (BASELINES[baseline.name].patience if grid is None else None) or len(tried)
    best, best_f, in_vain = tried[0], -1.0, 0
    for each, labels in zip(tried, baseline.label_each(embeddings, graph, tried), strict=True):
        if among_others:
            f = measure_among_others(labels, truth).f or 0.0
        else:
            f = measure_labels(labels, truth).discards_kept.pairwise.f or 0.0
        in_vain += f < best_f
        if f > best_f:
            best, best_f, in_vain = each, f, 0
        if in_vain == patience:
            break
    return baseline.having(**best)


def grid_points(grid: Grid) -> list[dict[str, Any]]:
    """Return every combination of the grid's values, the last setting changing fastest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

"""The fused graph: the nearest neighbors of every image in all models together, which are the candidates of trees and similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdp.labeling.workspace import Workspace
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.tree_features import search_together
from cdp.types import KnnGraph, Views


def search_fused(
    views: Views, graphs: Sequence[KnnGraph], k: int, keys: Mapping[str, str], work: Workspace
) -> KnnGraph:
    """The neighbors in all models together: from the cache, or searched now; kept where the models' graphs are, by their keys."""
    if len(graphs) == 1:
        return graphs[0].nearest(k)
    cache, key = (
        (work.cache, step_key("together", 1, None, list(keys.items()), k)) if keys else (StepCache(), "")
    )
    kept = cache.get("together", key, KnnGraph)
    if kept is not None:
        return kept
    with work.step("all models"):
        together = search_together(
            views,
            graphs,
            k,
            runtime=work.runtime,
            key=key,
        )
        cache.put("together", key, together)
        cache.drop("lists", key)
    return together

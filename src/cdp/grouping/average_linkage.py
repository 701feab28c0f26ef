"""Agglomeration: an alternative to Algorithm 1 that one false pair cannot mislead. Not in the paper.

Connected components join two groups if a single pair between them is accepted. Here every image starts alone, and
again and again the two groups are joined whose pairs are the most probable *on average*, as long as that mean is
greater than a bar. A pair that is not a candidate counts as probability 0: had the two images been one identity,
they would probably have been neighbors. So a single false pair between two groups of ten is one hundredth of the
evidence.

A k-NN graph cannot hold all pairs of a large group, though: an image in a group of s has k of its s - 1 pairs at
most. The mean is therefore taken over the pairs that it can hold,

    mean(A, B) = sum of the probabilities between A and B / max(present, |A| |B| min(1, k / (|A| + |B| - 1)))

where `present` is the number of pairs between A and B that are in the graph.

The best two groups are joined first, so what is joined above a high bar does not depend on how much lower one goes on. Joining is therefore
done in stages, from high bars to low ones: above a high bar, the pairs fall into many small components, which are grouped in batches; the
pairs between two groups are then one link. At the lowest bars, where nearly all images may hang together, a sixth of the pairs is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError
from cdp.grouping.components import Batch, group_batches
from cdp.grouping.links import Links, join_groups, link_groups, link_images, may_lead_above
from cdp.grouping.propagation import measure_ties, number_groups
from cdp.grouping.union_find import Separation, point_to_roots, separate, unite
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.runtime.spill import SpillFiles
from cdp.types import ConsensusGraph, Fate, Labels
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, IntArray
from cdp.types.constraints import Constraints, confirm, leave_out

# So few pairs and what lies between their groups fit into the processor's cache: they take half the time.
_PAIRS_AT_ONCE = 2**14
# Where stages end, besides at the lowest bar: on a million images the first leaves a sixth of the pairs, and no component of either has
# more than a thousandth of them.
_STAGES = (0.5, 0.25)


def agglomerate(
    graph: ConsensusGraph,
    k: int,
    join_above: float = 0.3,
    max_size: int = 600,
    constraints: Constraints | None = None,
    *,
    runtime: Runtime | None = None,
) -> Labels:
    """Pseudo-identities: the groups with the most probable pairs between them are joined, the best two first.

    Deviation: the paper takes connected components (`propagate`). Here pairs of a low probability count too, so the
    graph should hold all candidates that are not as good as impossible; `CDP(grouping="average")` keeps those above
    0.01.

    Equal means are settled by the larger sum, then by the order of the pairs; only there does the result depend on
    how the images are numbered.

    Args:
        graph: pairs and their doubts.
        k: neighbors per image in the graph that the pairs come from.
        join_above: two groups are joined while the mean probability between them is greater.
        max_size: no pseudo-identity gets more images than this.
        constraints: what groups must keep, free of contradictions (`check_constraints`); two groups with images that must be
            together are one.
        runtime: how it runs. Components of pairs above `join_above` are tasks, as many at a time as fit the memory budget;
            under constraints all pairs are one task.

    Returns:
        Labels. An image that stays alone has the fate `NO_ACCEPTED_PAIR` if none of its pairs is more probable than
        `join_above`, else `ISOLATED`. The confidence is that of `propagate`, over the pairs above `join_above`.
    """
    return next(agglomerate_at(graph, k, [join_above], max_size, constraints, runtime=runtime))


def agglomerate_at(
    graph: ConsensusGraph,
    k: int,
    bars: Sequence[float],
    max_size: int = 600,
    constraints: Constraints | None = None,
    *,
    runtime: Runtime | None = None,
) -> Iterator[Labels]:
    """`agglomerate` with each bar as `join_above`, from the highest to the lowest, at the price of the lowest alone.

    The best two groups are joined first, so what is joined above a bar does not depend on how much lower one goes on.
    """
    for join_above in bars:
        if not 0 < join_above < 1:
            raise InputError(
                f"agglomerate(join_above={join_above}): a mean probability between 0 and 1, both excluded.",
                code="join-above-out-of-range",
                value=join_above,
            )
    if max_size < 2:
        raise InputError(
            f"agglomerate(max_size={max_size}): a pseudo-identity has at least 2 images.",
            code="max-size-too-small",
            value=max_size,
        )
    if k < 1:
        raise InputError(
            f"agglomerate(k={k}): at least 1 neighbor per image is needed.", code="k-too-small", value=k
        )
    runtime = runtime or Runtime()
    falling = sorted(bars, reverse=True)
    stages = _stages(falling)
    if constraints is not None:
        # As judged, confirmed or not: a confirmed pair of two groups must not pull its two images out of them.
        graph, stages = leave_out(graph, constraints), [falling]
    state = separate(graph.n_images, constraints)
    links = link_images(graph, runtime)
    for stage in stages:
        settings = _Settings(k, np.array(stage, np.float64), max_size, state.size.copy(), constraints)
        joins = _find_all_joins(links, settings, runtime)
        for bar, (kept, gone) in zip(stage, joins, strict=True):
            _unite_all(state, kept, gone)
            if bar in falling:
                yield _as_labels(graph, state.parent.copy(), bar, constraints)
        if stage is not stages[-1]:
            links = link_groups(links, state.parent, runtime)


def _stages(falling: Sequence[float]) -> list[list[float]]:
    """The bars of every stage, from high to low; where it ends is one of them, asked for or not."""
    stages: list[list[float]] = []
    before = 1.0
    for end in (*(end for end in _STAGES if end > falling[-1]), falling[-1]):
        bars = [bar for bar in falling if end <= bar < before]
        stages.append(bars if end in bars else [*bars, end])
        before = end
    return stages


@dataclass(frozen=True, eq=False)
class _Settings:
    """How groups are joined.

    Attributes:
        k: neighbors per image.
        bars: from high to low.
        max_size: no group gets more images.
        size: int32 (n,), images in every group.
        constraints: what groups must keep.
    """

    k: int
    bars: DoubleArray
    max_size: int
    size: IntArray
    constraints: Constraints | None


Joins = tuple[IntArray, IntArray]
"""Which groups are kept and which are gone, each called after an image."""


def _find_all_joins(links: Links, settings: _Settings, runtime: Runtime) -> list[Joins]:
    """For every bar, the joins that it allows after the one before."""
    pairs = Batch(None, links.ids, (links.total, links.present), len(settings.size))
    if settings.constraints is not None:
        return _find_joins(settings, pairs, runtime.spill)
    found = group_batches(
        _find_joins,
        settings,
        pairs,
        may_lead_above(settings.bars[-1], links, runtime),
        runtime=runtime,
        most_pairs=_PAIRS_AT_ONCE,
    )
    joins = [of_batch for _, of_batch in found]
    none = np.empty(0, np.int32)
    return [
        (
            np.concatenate([none, *(of_batch[number][0] for of_batch in joins)]),
            np.concatenate([none, *(of_batch[number][1] for of_batch in joins)]),
        )
        for number in range(len(settings.bars))
    ]


def _find_joins(settings: _Settings, batch: Batch, spill: SpillFiles) -> list[Joins]:
    """The joins of one batch."""
    state = separate(batch.n_images, settings.constraints)
    if settings.constraints is None:
        size = settings.size if batch.images is None else settings.size[batch.images]
        state.size[:] = size
    else:
        # Images that must be together are not linked yet.
        size = np.ones(batch.n_images, np.int32)
    gone, kept, ends = join_groups(
        Links(batch.ids, *batch.columns),
        size,
        state,
        settings.k,
        settings.bars,
        settings.max_size,
        spill,
    )
    if batch.images is not None:
        gone, kept = batch.images[gone], batch.images[kept]
    return [(kept[start:stop], gone[start:stop]) for start, stop in zip([0, *ends], ends, strict=False)]


def _as_labels(
    graph: ConsensusGraph, group: IntArray, join_above: float, constraints: Constraints | None
) -> Labels:
    size = np.bincount(group, minlength=graph.n_images)[group]
    vouched = np.zeros(graph.n_images, np.bool_)
    _vouch(graph.ids, graph.doubt, join_above, vouched)
    alone = np.where(vouched, Fate.ISOLATED, Fate.NO_ACCEPTED_PAIR)
    fate = np.where(size > 1, Fate.LABELED, alone).astype(np.uint8)
    labels = number_groups(group, fate)
    if constraints is not None:
        graph = confirm(graph, constraints)
    below = np.full(graph.n_images, 1 - join_above)
    return Labels(labels, fate, measure_ties(graph.ids, graph.doubt, labels, below))


@kernel
def _vouch(ids: IntArray, doubt: AnyArray, join_above: float, vouched: BoolArray) -> None:
    """Mark the images that have a pair above the bar."""
    for row in range(len(ids)):
        if max(1.0 - np.float64(doubt[row]), 0.0) > join_above:
            vouched[ids[row, 0]] = True
            vouched[ids[row, 1]] = True


@kernel
def _unite_all(state: Separation, kept: IntArray, gone: IntArray) -> None:
    for join in range(len(kept)):
        unite(state, kept[join], gone[join])
    point_to_roots(state.parent)

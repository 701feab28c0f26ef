"""What to ask a person next: of all questions "are these two the same?" the most valuable first.

Groups are made once more at a stricter threshold, which leaves parts that are hardly in doubt. A question is
about two parts, in one group or in two, and one image of each stands for it. Its value is the number of pairs
of images that are expected to be put right: the probability that the groups are wrong about the two parts,
times the pairs between them. That ranks all kinds in one order:

- `mixed`: two parts of one group, likely two people
- `doubtful`: a single image of a group and another part of it
- `split`: parts of two groups, likely one person
- `lone`: an image without a group, and a group or another such image

These come first, as long as an answer is expected to put half a pair right. When none is any more, what
nobody doubts is asked about too: of every part the piece that belongs to its group least surely, and that
nobody has confirmed, is a part of its own then, and images without a group are held against groups that
nothing ties them to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cdp.collection.collection import Collection
from cdp.grouping.average_linkage import agglomerate
from cdp.grouping.cohesion import GroupTies, as_probability, tie_groups
from cdp.scoring.settings import DEFAULT_THRESHOLDS, ConsensusSettings, linkage_threshold
from cdp.types import ConsensusGraph, Labels, SimilarityGraph
from cdp.types.arrays import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from cdp.types.constraints import Constraints, are_among, confirm, join_certain
from cdp.types.labels import number_by_first_appearance

KINDS = ("mixed", "doubtful", "split", "lone")
_STRICTER = 0.5
_WORTH_ASKING = 0.5
_LEAST_CHANGE = 0.1
"""Least probability that an answer changes groups that were made without labels: nobody likes to say what is
known already, however many images a question is about."""

_MOST_FAR_PAIRS = 100_000
_LONE_IS_SOMEBODY = 0.5


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions about pairs of images, the most valuable first.

    Attributes:
        kind: uint8 (m,), a position in `KINDS`.
        images: int32 (m, 2), an image of either part: "are these two the same?"
        sizes: int32 (m, 2), how many images either part has.
        probability: float64 (m,), that the answer is yes.
        value: float64 (m,), pairs of images that the answer is expected to put right.
        part: int32 (n,), which part every image is in, so that a page can show all of one.
    """

    kind: IntArray
    images: IntArray
    sizes: IntArray
    probability: DoubleArray
    value: DoubleArray
    part: IntArray

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def n_worth_asking(self) -> int:
        """How many are expected to put at least half a pair right."""
        return int(np.count_nonzero(self.value >= _WORTH_ASKING))

    def take(self, rows: LongArray | BoolArray | slice) -> Questions:
        """Select some of the questions."""
        return Questions(
            self.kind[rows],
            self.images[rows],
            self.sizes[rows],
            self.probability[rows],
            self.value[rows],
            self.part,
        )


def open_questions(collection: Collection) -> Questions:
    """Return the open questions about a collection, the most valuable first."""
    return rank_questions(
        collection.scored,
        collection.identity,
        collection.confidence,
        collection.settings,
        collection.state.threshold,
        collection.constraints,
    )


def rank_questions(
    scored: ConsensusGraph,
    identity: IntArray,
    confidence: FloatArray,
    settings: ConsensusSettings,
    threshold: float,
    constraints: Constraints | None = None,
) -> Questions:
    """Return all open questions, the most valuable first; corrections are not asked about again.

    Args:
        scored: pairs and their probabilities (`Collection.scored`).
        identity: int32 (n,), present identities; -1 = none.
        confidence: float32 (n,), of every image in its group; the surest image of a part stands for it.
        settings: how groups are made.
        threshold: at which they were made.
        constraints: corrections so far.
    """
    given = constraints or Constraints(scored.n_images)
    mean = _mean_threshold(settings, threshold)
    part = _stricter_parts(scored, identity, settings, mean, given)
    found = _rank_parts(part, scored, identity, confidence, settings, mean, given, far=False)
    is_worth = found.value >= _WORTH_ASKING
    if isinstance(scored, SimilarityGraph):
        change = found.value / found.sizes.prod(axis=1)
        return found.take(is_worth & (change >= _LEAST_CHANGE))
    if is_worth.any():
        return found.take(is_worth)
    part = _without_weakest(part, confidence, join_certain(given))
    return _rank_parts(part, scored, identity, confidence, settings, mean, given, far=True)


def _rank_parts(
    part: IntArray,
    scored: ConsensusGraph,
    identity: IntArray,
    confidence: FloatArray,
    settings: ConsensusSettings,
    mean: float,
    constraints: Constraints,
    *,
    far: bool,
) -> Questions:
    """Questions about given parts; with `far` also about images and groups that nothing ties."""
    sizes = np.bincount(part, minlength=1)
    ties = tie_groups(confirm(scored, constraints), Labels.from_array(part), settings.k)
    ids, tie = _with_untied(ties, part, identity, sizes)
    probability = as_probability(tie, mean if settings.grouping == "average" else 0.5)
    if not isinstance(scored, SimilarityGraph):
        probability = np.maximum(probability, _chance_of_lone(ids, tie, part, identity))
    if far:
        more, chance = _far_pairs(part, identity, sizes)
        is_new = ~are_among(more, ids)
        ids, probability = np.concatenate([ids, more[is_new]]), np.append(probability, chance[is_new])
    order = np.lexsort((np.arange(len(part)), -confidence))
    _, first = np.unique(part[order], return_index=True)
    images = order[first][ids]
    ends = identity[images]
    together = (ends[:, 0] == ends[:, 1]) & (ends[:, 0] >= 0)
    sure = (np.bincount(part, confidence, minlength=1) / np.maximum(sizes, 1))[ids]
    if far:
        # Confidences were calibrated where there are labeled images; a weak piece has nothing else to go by.
        probability = np.where(together, np.maximum(probability, sure.min(axis=1)), probability)
    # If either part shows whom its group shows, and the groups are known to be two, so are the parts.
    apart = _are_apart(ends, identity, constraints)
    probability = np.where(apart, probability * (1 - sure.prod(axis=1)), probability)
    asked = sizes[ids]
    single = (asked == 1).any(axis=1)
    kind = np.where(together, np.where(single, 1, 0), np.where((ends < 0).any(axis=1), 3, 2))
    value = np.where(together, 1 - probability, probability) * asked.prod(axis=1)
    best = np.lexsort((images[:, 1], images[:, 0], -value))
    best = best[~_are_answered(ids, part, constraints)[best]]
    return Questions(
        kind[best].astype(np.int32),
        images[best].astype(np.int32),
        asked[best].astype(np.int32),
        probability[best],
        value[best],
        part,
    )


def _far_pairs(part: IntArray, identity: IntArray, sizes: LongArray) -> tuple[IntArray, DoubleArray]:
    """Pair ungrouped images with the largest part of each group, with the chance of a match.

    Largest groups come first.
    """
    lone = part[identity < 0]
    grouped = np.flatnonzero(identity >= 0)
    if not len(lone) or not len(grouped):
        return np.empty((0, 2), np.int32), np.empty(0)
    order = grouped[np.lexsort((-sizes[part[grouped]], identity[grouped]))]
    starts = np.concatenate([[True], np.diff(identity[order]) > 0])
    largest = part[order[starts]]
    n_groups = len(largest)
    largest = largest[np.argsort(-sizes[largest], kind="stable")][: max(1, _MOST_FAR_PAIRS // len(lone))]
    pairs = np.stack(np.meshgrid(lone[:_MOST_FAR_PAIRS], largest, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.sort(pairs, axis=1).astype(np.int32), np.full(len(pairs), _LONE_IS_SOMEBODY / n_groups)


def _chance_of_lone(ids: IntArray, tie: DoubleArray, part: IntArray, identity: IntArray) -> DoubleArray:
    """Estimate the chance that an ungrouped image belongs to one of those it is tied to.

    The chance is divided by its ties; it is 0 for parts of groups.

    Its pairs are all improbable, or it would have a group, and yet it mostly shows somebody who is there: of
    questions about such images with a probability of 0.01 by their ties 11 and 22 % were right (drawn faces,
    Omniglot), of those with 0.07 22 and 39 %.
    """
    n_parts = int(part.max(initial=0)) + 1
    is_lone = np.zeros(n_parts, np.bool_)
    is_lone[part[identity < 0]] = True
    total = np.bincount(ids[:, 0], tie, n_parts) + np.bincount(ids[:, 1], tie, n_parts)
    shares = np.where(is_lone[ids], tie[:, None] / np.maximum(total[ids], 1e-12), 0.0)
    chance: DoubleArray = _LONE_IS_SOMEBODY * shares.max(axis=1, initial=0.0)
    return chance


def _are_apart(ends: IntArray, identity: IntArray, constraints: Constraints) -> BoolArray:
    """Whether corrections say of two groups that an image of one is not who an image of the other is."""
    n_groups = int(identity.max(initial=0)) + 1
    said = np.sort(identity[constraints.cannot].astype(np.int64), axis=1)
    keys = np.sort(ends.astype(np.int64), axis=1)
    apart: BoolArray = np.isin(keys[:, 0] * n_groups + keys[:, 1], said[:, 0] * n_groups + said[:, 1])
    apart &= (keys[:, 0] >= 0) & (keys[:, 0] != keys[:, 1])
    return apart


def _mean_threshold(settings: ConsensusSettings, threshold: float) -> float:
    """Return the mean probability above which groups are joined, or would be by average linkage."""
    if settings.threshold_kind == "similarity":
        return DEFAULT_THRESHOLDS["probability"]
    return linkage_threshold(settings, threshold)


def _stricter_parts(
    scored: ConsensusGraph,
    identity: IntArray,
    settings: ConsensusSettings,
    mean: float,
    constraints: Constraints,
) -> IntArray:
    """Return the part of every image: its group at a stricter threshold, inside its present group.

    A part may be a single image.
    """
    strict = mean + _STRICTER * (1 - mean)
    inside = identity[scored.ids[:, 0]] == identity[scored.ids[:, 1]]
    inside &= identity[scored.ids[:, 0]] >= 0
    within = replace(scored, ids=scored.ids[inside], doubt=scored.doubt[inside])
    labels = agglomerate(within, settings.k, strict, settings.most_images, constraints).labels
    alone = np.flatnonzero(labels < 0)
    part = np.array(labels)
    part[alone] = int(labels.max(initial=-1)) + 1 + np.arange(len(alone))
    return number_by_first_appearance(part)


def _without_weakest(part: IntArray, confidence: FloatArray, certain: IntArray) -> IntArray:
    """Split off the weakest piece of each part.

    A piece is one image, or images that corrections hold together.
    """
    pieces, piece, images = np.unique(
        np.stack([part, certain], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    piece = piece.ravel()
    sure = np.bincount(piece, confidence, minlength=1) / images
    # The largest piece of a part stays, of equal ones the surest.
    order = np.lexsort((-sure, -images, pieces[:, 0]))
    is_first = np.concatenate([[True], np.diff(pieces[order, 0]) > 0])
    others = order[~is_first]
    others = others[np.lexsort((sure[others], pieces[others, 0]))]
    weakest = others[np.concatenate([[True], np.diff(pieces[others, 0]) > 0])[: len(others)]]
    of_own = np.full(len(pieces), -1, np.int64)
    of_own[weakest] = int(part.max(initial=-1)) + 1 + np.arange(len(weakest))
    return number_by_first_appearance(np.where(of_own[piece] >= 0, of_own[piece], part))


def _with_untied(
    ties: GroupTies, part: IntArray, identity: IntArray, sizes: LongArray
) -> tuple[IntArray, DoubleArray]:
    """Pairs of parts and how they are tied; also every part with the largest of its group, tied or not."""
    grouped = np.flatnonzero(identity >= 0)
    parts, first = np.unique(part[grouped], return_index=True)
    group_of = identity[grouped[first]]
    order = np.lexsort((parts, -sizes[parts], group_of))
    starts = np.concatenate([[True], np.diff(group_of[order]) > 0])[: len(order)]
    largest = parts[order][starts][np.cumsum(starts) - 1]
    more = np.sort(np.stack([largest, parts[order]], axis=1)[~starts], axis=1)
    ids, first_at = np.unique(np.concatenate([ties.ids, more]), axis=0, return_index=True)
    tie = np.concatenate([ties.probability, np.zeros(len(more))])[first_at]
    return ids.astype(np.int32), tie


def _are_answered(parts: IntArray, part: IntArray, constraints: Constraints) -> BoolArray:
    """Find pairs of parts whose relation a correction already decides, or whose images were rejected."""
    names = constraints.name_of
    n_parts = int(part.max(initial=0)) + 1
    name_of_part = np.full(n_parts, -1, np.int64)
    name_of_part[part[names >= 0]] = names[names >= 0]
    is_rejected = np.zeros(n_parts, np.bool_)
    is_rejected[part[constraints.rejected]] = True
    given = np.sort(part[np.concatenate([constraints.links, constraints.cannot])].astype(np.int64), axis=1)
    keys = parts[:, 0].astype(np.int64) * n_parts + parts[:, 1]
    found: BoolArray = np.isin(keys, given[:, 0] * n_parts + given[:, 1])
    found |= (name_of_part[parts] >= 0).all(axis=1) | is_rejected[parts].any(axis=1)
    return found

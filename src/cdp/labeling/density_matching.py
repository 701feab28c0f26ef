"""Density matching: subsample labeled images until an identity has about as many images as an unlabeled one.

The more images an identity has, the more of its pairs have common neighbors, and the higher is the prior
probability of a pair. Trees and the threshold are learned on labeled images among the unlabeled ones; where
labeled identities have many more images each, pairs of unlabeled images get probabilities that are far too
high. So some labeled images are left out. The number of images per unlabeled identity is estimated from the
probabilities; trees are then trained a second or third time on the images that are left.

Graphs are searched again without the images left out. Filtering the lists of the first graphs instead saves
up to 16 % of the time, but F falls where one model is used (LFW, sface: 0.929 to 0.910; made-up crowd: 0.785
to 0.759), because lists become shorter than k.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.types import ConsensusGraph, Views
from cdp.types.arrays import DoubleArray, IntArray, LongArray

MAX_ROUNDS = 3
"""Maximum number of times that pairs are scored until labeled images are as dense as the others."""

_AS_DENSE = 0.7
_FEWEST_PAIRS = 500
# Sums over a range of images are added up at once, where the range has no more than this many per image.
_WIDEST_RANGE = 8


def images_per_identity(scored: ConsensusGraph, labeled: LongArray) -> tuple[float, float]:
    """Estimate the mean number of images per identity, of the unlabeled images and of the labeled ones.

    With t other images of its identity among an image's candidates, that image is 1 / (1 + t) of an identity.
    Counted so, a person of hundreds of images counts for one.

    Args:
        scored: pairs of all images.
        labeled: int64 (n,), identities, -1 where unlabeled.
    """
    partners = np.zeros(len(labeled))
    for start, stop in spans(len(scored), PAIRS_PER_BLOCK):
        ids = scored.ids[start:stop]
        one, other = labeled[ids[:, 0]], labeled[ids[:, 1]]
        probability = 1.0 - scored.doubt[start:stop].astype(np.float64)
        # Trees see pairs of a labeled and an unlabeled image from one end and genuine labeled pairs from
        # both, so in their training data impostors are twice as frequent as among unlabeled images: the true
        # odds are twice theirs.
        probability = 2 * probability / (1 + probability)
        weight = np.where((one < 0) & (other < 0), probability, (one == other).astype(np.float64))
        for end in ids.T:
            _add_weights(partners, end, weight)
    share = 1 / (1 + partners)
    is_labeled = labeled >= 0
    n_unlabeled, n_labeled = int((~is_labeled).sum()), int(is_labeled.sum())
    return (
        n_unlabeled / max(float(share[~is_labeled].sum()), 1e-9),
        n_labeled / max(float(share[is_labeled].sum()), 1e-9),
    )


def _add_weights(sums: DoubleArray, images: IntArray, weight: DoubleArray) -> None:
    """Add the weights of a block of images to their sums; the time depends on the block alone."""
    low, high = int(images.min()), int(images.max()) + 1
    if high - low <= _WIDEST_RANGE * len(images):
        sums[low:high] += np.bincount(images - low, weight, high - low)
        return
    found, place = np.unique(images, return_inverse=True)
    sums[found] += np.bincount(place, weight)


class Use(NamedTuple):
    """Labeled images in the order in which they are used.

    Attributes:
        rows: int64 (n,), which image.
        share: float64 (n,), the share from which on it is used.
        before: int64 (n,), how many images of its identity are used before it.
    """

    rows: LongArray
    share: DoubleArray
    before: LongArray


def order_of_use(identities: LongArray, seed: int) -> Use:
    """Order labeled images by use, so that a greater share only adds to them.

    With share s, of an identity's n images 1 + s (n - 1) are used: as many, one more or one less, as chance
    has it.

    Args:
        identities: int64 (n,), of the labeled images.
        seed: of the order.
    """
    generator = np.random.default_rng([seed, 8])
    shuffled = generator.permutation(len(identities))
    _, person, count = np.unique(identities[shuffled], return_inverse=True, return_counts=True)
    by_person = np.argsort(person, kind="stable")
    person = person[by_person]
    before = np.arange(len(person)) - (np.cumsum(count) - count)[person]
    rounding = generator.random(len(count))[person]
    share = np.where(before > 0, (before - rounding) / np.maximum(count[person] - 1, 1), 0.0)
    order = np.argsort(share, kind="stable")
    return Use(shuffled[by_person][order], share[order], before[order])


def use_share(labeled: Views, share: float, seed: int) -> Views:
    """Return the labeled images that are used at a share, in the order of use; all as they are with 1."""
    if share >= 1:
        return labeled
    assert labeled.identities is not None
    use = order_of_use(labeled.identities, seed)
    return labeled.take(use.rows[use.share <= share])


def matching_share(
    scored: ConsensusGraph,
    labeled: LongArray,
    share: float,
    identities: LongArray,
    seed: int,
    growth: float = 1.0,
) -> float:
    """Return the share of the labeled images that makes them as dense as the unlabeled ones; 1 if no denser.

    Trees trained among denser images estimate the density of the others well (Omniglot: 2.6 for 2.3 images
    per identity, 5.2 for 6.0), trees trained among sparser ones do not (2.9 for 6.0). So where trees are
    older than some of the images, identities are assumed to have grown in proportion. At least 500 genuine
    pairs are kept.

    Args:
        scored: pairs of all images, scored with `share` of the labeled ones among them.
        labeled: int64 (n,), identities of all images, -1 where unlabeled.
        share: that is used now.
        identities: int64, of all labeled images.
        seed: of the order of use.
        growth: how many times as many unlabeled images there are as when trees were trained.
    """
    unlabeled, of_labeled = images_per_identity(scored, labeled)
    if of_labeled <= 1 or not (labeled < 0).any():
        return share
    wanted = share * growth * (unlabeled - 1) / (of_labeled - 1)
    if wanted >= 1:
        return 1.0
    use = order_of_use(identities, seed)
    # An image that comes to r others of its identity makes r pairs.
    enough = np.flatnonzero(np.cumsum(use.before) >= _FEWEST_PAIRS)
    return max(wanted, float(use.share[enough[0]])) if len(enough) else 1.0


def is_as_dense(share: float, wanted: float) -> bool:
    """Return whether a share is near enough to the one that is wanted."""
    return _AS_DENSE * share <= wanted <= share / _AS_DENSE

"""Made-up embeddings: identities with lookalikes, uneven quality, networks with own errors.

For the demo, the tests and the benchmarks; real data does not look exactly like this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError
from cdp.types import Views
from cdp.types.arrays import DoubleArray, FloatArray, LongArray

_IDENTITY_DIMENSIONS = 24
_NUISANCE_DIMENSIONS = 12


@dataclass(frozen=True)
class SyntheticSplit:
    """Views of a labeled and an unlabeled part that share no identity."""

    labeled: Views
    unlabeled: Views


def synthetic_views(
    n_identities: int = 1000,
    images_per_identity: float = 12.0,
    *,
    labeled: float = 0.3,
    members: int = 4,
    dimensions: int = 128,
    noise: float = 0.5,
    junk: float = 0.03,
    seed: int = 0,
) -> SyntheticSplit:
    """Embeddings of made-up people by a base network and a committee.

    Args:
        images_per_identity: mean number of images; numbers vary widely, and some people have one image only.
        labeled: share of the people in the labeled part.
        noise: how unsure the networks are.
        junk: share of images that show no recognizable face.
    """
    if n_identities < 4 or not 0 < labeled < 1:
        raise InputError(
            "synthetic_views: at least 4 identities and a labeled share in (0, 1) are needed.",
            code="synthetic-views-too-few",
        )
    generator = np.random.default_rng(seed)
    counts = 1 + generator.negative_binomial(1, 1 / images_per_identity, n_identities)
    identities: LongArray = np.repeat(np.arange(n_identities), counts)
    # People come in families of about five lookalikes.
    families = generator.normal(size=(max(1, n_identities // 5), _IDENTITY_DIMENSIONS))
    people = 0.6 * families[generator.integers(0, len(families), n_identities)] + 0.8 * generator.normal(
        size=(n_identities, _IDENTITY_DIMENSIONS)
    )
    quality = np.exp(0.35 * generator.normal(size=len(identities)))
    seen = people[identities]
    is_junk = generator.random(len(identities)) < junk
    seen[is_junk] = 0.3 * generator.normal(size=(int(is_junk.sum()), _IDENTITY_DIMENSIONS))
    nuisance = generator.normal(size=(len(identities), _NUISANCE_DIMENSIONS))
    base, *committee = (
        _embed(seen, quality, nuisance, network, noise, dimensions, seed) for network in range(members + 1)
    )
    views = Views(base, {f"member{number}": one for number, one in enumerate(committee, start=1)}, identities)
    labeled_people = generator.permutation(n_identities)[: max(2, round(labeled * n_identities))]
    is_labeled = np.isin(identities, labeled_people)
    return SyntheticSplit(views.take(is_labeled), views.take(~is_labeled))


def _embed(
    seen: DoubleArray,
    quality: DoubleArray,
    nuisance: DoubleArray,
    network: int,
    noise: float,
    dimensions: int,
    seed: int,
) -> FloatArray:
    """Embed by one network: the first is the best; others are noisier and see other nuisances."""
    own = np.random.default_rng([seed, network])
    attention = own.uniform(0.6, 1.4, _IDENTITY_DIMENSIONS)
    blur = noise * (1.0 if network == 0 else 1.05 + 0.05 * network)
    hidden = np.concatenate(
        [
            seen * attention + (blur * quality)[:, None] * own.normal(size=seen.shape),
            0.45 * nuisance * own.uniform(0, 1, _NUISANCE_DIMENSIONS),
        ],
        axis=1,
    )
    projection = own.normal(size=(hidden.shape[1], dimensions)) / np.sqrt(hidden.shape[1])
    embedded: FloatArray = np.tanh(hidden @ projection).astype(np.float32)
    return embedded

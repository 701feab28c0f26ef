"""The vote: the paper's baseline without a mediator, and plain single-model linking without a committee."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from cdp.errors import InputError
from cdp.types import Opinions
from cdp.types.arrays import BoolArray, FloatArray


class Vote(BaseEstimator):  # type: ignore[misc]
    """Accept a pair if enough committee members have the edge and the base model finds it similar enough.

    "A pair is selected if this pair is voted by all the committee members (best setting empirically). A vote is
    counted if there is an edge in the k-NN graph of a committee member." When comparing committees, the paper
    also "adjusts pair similarity threshold".

    Nothing is learned, so no labelled part is needed. The doubt about an accepted pair is 1 - base similarity.

    Args:
        quorum: how many members must agree; None = all of them.
        threshold: the base similarity must be greater than this; None = no threshold.
    """

    def __init__(self, quorum: int | None = None, threshold: float | None = None) -> None:
        self.quorum = quorum
        self.threshold = threshold

    def check(self, n_members: int) -> None:
        """Refuse settings that this committee cannot meet."""
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise InputError(
                f"Vote(threshold={self.threshold}): threshold is a cosine similarity in [-1, 1]."
            )
        if self.quorum is not None and not 0 <= self.quorum <= n_members:
            raise InputError(
                f"Vote(quorum={self.quorum}): the committee has {n_members} members; "
                f"choose 0 to {n_members}, or None for all."
            )

    def decide(self, opinions: Opinions) -> tuple[BoolArray, FloatArray]:
        """Which pairs are accepted, bool (m,), and the doubt about every pair, float32 (m,)."""
        self.check(len(opinions.committee))
        quorum = len(opinions.committee) if self.quorum is None else self.quorum
        similarity = opinions.affinity[:, 0]
        accepted = opinions.relationship.sum(axis=1) >= quorum
        if self.threshold is not None:
            accepted &= similarity > np.float32(self.threshold)
        return accepted, np.maximum(1 - similarity, 0)

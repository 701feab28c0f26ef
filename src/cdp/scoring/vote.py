"""The vote: the paper's baseline without a mediator, and plain single-model linking without a committee."""

from __future__ import annotations

import numpy as np

from cdp.errors import InputError
from cdp.types import Opinions
from cdp.types.arrays import BoolArray, FloatArray


def check_quorum(quorum: int, n_members: int) -> None:
    """Refuse a quorum that the committee cannot meet."""
    if quorum > n_members:
        raise InputError(
            f"quorum = {quorum}: the committee has {n_members} member{'' if n_members == 1 else 's'}; ask for as "
            "many at most, or -1 for all.",
            code="quorum-exceeds-committee",
            value=quorum,
            members=n_members,
        )


def vote(opinions: Opinions, quorum: int = -1, vote_threshold: float = -1.0) -> tuple[BoolArray, FloatArray]:
    """Which pairs are accepted, bool (m,), and the doubt about every pair, float32 (m,).

    "A pair is selected if this pair is voted by all the committee members (best setting empirically). A vote is
    counted if there is an edge in the k-NN graph of a committee member." When comparing committees, the paper
    also "adjusts pair similarity threshold". The doubt about a pair is 1 - base similarity.

    Args:
        opinions: of the committee; only relationship and the base's affinity count.
        quorum: how many members must agree; -1 = all of them.
        vote_threshold: the base similarity must be greater than this; -1 = any.
    """
    n_members = len(opinions.committee)
    check_quorum(quorum, n_members)
    accepted = opinions.relationship.sum(axis=1) >= (n_members if quorum < 0 else quorum)
    doubt = np.maximum(1 - opinions.affinity[:, 0], 0)
    if vote_threshold > -1:
        accepted &= is_more_similar(doubt, vote_threshold)
    return accepted, doubt


def is_more_similar(doubt: FloatArray, vote_threshold: float) -> BoolArray:
    """Where the base similarity, given as doubt, is strictly greater than the threshold, bool (m,)."""
    # Both rounded alike, in float32: a similarity equal to the threshold never passes.
    similar: BoolArray = doubt < np.float32(1) - np.float32(vote_threshold)
    return similar

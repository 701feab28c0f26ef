"""The vote: the paper's baseline without a mediator, and plain single-model linking without a committee."""

from __future__ import annotations

import numpy as np

from cdp.errors import InputError
from cdp.types import Opinions
from cdp.types.arrays import BoolArray, FloatArray


def check_min_votes(min_votes: int | None, n_members: int) -> None:
    """Refuse more votes than the committee has members."""
    if min_votes is not None and min_votes > n_members:
        raise InputError(
            f"min_votes = {min_votes}: the committee has {n_members} member{'' if n_members == 1 else 's'}; "
            "lower min_votes.",
            code="min-votes-exceed-committee",
            value=min_votes,
            members=n_members,
        )


def vote(
    opinions: Opinions, min_votes: int | None = None, threshold: float = -1.0
) -> tuple[BoolArray, FloatArray]:
    """Accept pairs by vote: bool (m,), and the doubt about every pair, float32 (m,).

    "A pair is selected if this pair is voted by all the committee members (best setting empirically). A vote
    is counted if there is an edge in the k-NN graph of a committee member." When comparing committees, the
    paper also "adjusts pair similarity threshold". The doubt about a pair is 1 - base similarity.

    Args:
        opinions: of the committee; only relationship and the base's affinity count.
        min_votes: members that must agree; None = all of them.
        threshold: the base similarity must be greater than this; -1 = any.
    """
    n_members = len(opinions.committee)
    check_min_votes(min_votes, n_members)
    accepted = opinions.relationship.sum(axis=1) >= (n_members if min_votes is None else min_votes)
    doubt = np.maximum(1 - opinions.affinity[:, 0], 0)
    if threshold > -1:
        accepted &= is_more_similar(doubt, threshold)
    return accepted, doubt


def is_more_similar(doubt: FloatArray, threshold: float) -> BoolArray:
    """Return where the base similarity, given as doubt, is strictly greater than the threshold, bool (m,)."""
    # Both rounded alike, in float32: a similarity equal to the threshold never passes.
    similar: BoolArray = doubt < np.float32(1) - np.float32(threshold)
    return similar
